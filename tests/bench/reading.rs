//! Gates P1, P2, P4 and P5 as rows: the cost of reading a stream, its growth, and its correctness.

use std::process::Command;

use anyhow::Context as _;

use crate::Scale;
use crate::count::{difference, role};
use crate::sse::{self, CHUNKS, EVENTS, Kind};
use crate::table::Row;

/// Deltas of the shorter run; the longer one has twice as many.
const DELTAS: usize = 14_000;

const MB: f64 = 1024.0 * 1024.0;

/// P1 and P2.
pub fn cost(gate: &'static str) -> anyhow::Result<Vec<Row>> {
    let row = |kind: &str, what: &str, limit| {
        let run = |deltas: usize| role(&[&"sse-work", &kind, &deltas]);
        let instructions = difference(&run(DELTAS), &run(2 * DELTAS))? / DELTAS as f64;
        anyhow::Ok(Row::at_most(gate, format!("instructions per delta, {what}"), instructions, limit))
    };
    match gate {
        "P1" => Ok(vec![row("framing", "framing", 300.0)?]),
        _ => Ok(vec![
            row("json", "framing and JSON", 5000.0)?,
            row("full-json", "framing and JSON, no two chunks alike", 5000.0)?,
        ]),
    }
}

/// P4: growth in instructions, and the limit for a line that never ends.
pub fn growth(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let sizes = match scale {
        Scale::Quick | Scale::Usual => &EVENTS[..3],
        Scale::Full => &EVENTS[..],
    };
    let mut rows = Vec::new();
    for chunk in CHUNKS {
        let mut points = Vec::new();
        // An event of few chunks is copied less than one of many: this step would look like growth.
        for &bytes in sizes.iter().filter(|&&bytes| bytes >= 4 * chunk) {
            let run = |times: usize| role(&[&"sse-event", &bytes, &chunk, &times]);
            points.push((bytes as f64, difference(&run(1), &run(2))?));
        }
        let (least, most) = (points[0].0 / 1e3, points[points.len() - 1].0 / 1e3);
        let what = format!("growth exponent, one event of {least} KB to {most} KB in chunks of {chunk} B");
        rows.push(Row::at_most("P4", what, sse::exponent(&points), 1.02));
    }
    for chunk in CHUNKS {
        let (limit, taken, memory) = endless(chunk)?;
        let what = |what| format!("a line without end in chunks of {chunk} B: {what}");
        rows.push(Row::between("P4", what("taken / cap"), taken / limit, 0.9, 1.0));
        rows.push(Row::at_most("P4", what("memory beyond the cap (MB)"), (memory - limit) / MB, 1.0));
    }
    Ok(rows)
}

/// Limit, bytes taken and bytes of memory, in a process of its own: freed memory would be reused.
fn endless(chunk: usize) -> anyhow::Result<(f64, f64, f64)> {
    let output = Command::new(std::env::current_exe()?)
        .args([crate::ROLE, "sse-endless", &chunk.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [limit, taken, memory] = numbers[..] else {
        anyhow::bail!("no measurement: {said}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok((limit, taken, memory))
}

/// P5. A panic ends the whole run, so none is counted.
pub fn conformance(scale: Scale) -> Vec<Row> {
    let inputs = match scale {
        Scale::Quick => 20_000,
        Scale::Usual => 200_000,
        Scale::Full => 1_000_000,
    };
    let wrong = sse::conformance(inputs);
    for difference in wrong.iter().take(5) {
        crate::say(&format!("P5: read differently: {difference}"));
    }
    let what = format!("differences from the reference: all cases, {inputs} random streams");
    vec![Row::at_most("P5", what, wrong.len() as f64, 0.0)]
}

/// Runs a process that was started above.
pub fn role_of(words: &[String]) -> anyhow::Result<()> {
    let number = |at: usize| -> anyhow::Result<usize> {
        words.get(at).and_then(|word| word.parse().ok()).context("a number is missing")
    };
    match words[0].as_str() {
        "sse-work" => {
            let kind = match words.get(1).map(String::as_str) {
                Some("framing") => Kind::Framing,
                Some("json") => Kind::FramingAndJson,
                Some("full-json") => Kind::FramingAndFullJson,
                _ => anyhow::bail!("no such kind"),
            };
            anyhow::ensure!(sse::work(kind, number(2)?)? > 0, "nothing was read");
        }
        "sse-event" => {
            let (bytes, times) = (number(1)?, number(3)?);
            anyhow::ensure!(sse::one_event(bytes, number(2)?, times)? == bytes * times, "not all was read");
        }
        _ => {
            let endless = sse::endless_line(number(1)?);
            crate::answer(&format!("{} {} {}", endless.limit, endless.taken, endless.memory));
        }
    }
    Ok(())
}
