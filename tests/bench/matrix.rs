//! Gates M1 and M2: the cost of showing an answer in a Matrix room, in work and in bytes.
//!
//! Compiles the adapter's own files for this without the rest of it: they need no SDK.

#[path = "../../adapters/matrix/src/outbound/content.rs"]
#[allow(dead_code, unused_imports, reason = "only edits are measured, and the tests in it run over there")]
mod content;
#[path = "../../adapters/matrix/src/outbound/html.rs"]
#[allow(dead_code, unused_imports, reason = "the tests in it run over there")]
mod html;
#[path = "../../adapters/matrix/src/outbound/render_cache.rs"]
#[allow(dead_code, unused_imports, reason = "the tests in it run over there")]
mod render_cache;

use anyhow::Context as _;
use talaria_platform::{BodyKind, MessageBody, MessageId};

use crate::count::{difference, role};
use crate::sse::exponent;
use crate::table::Row;

/// Bytes of the texts that are compared.
const LENGTHS: [usize; 5] = [4_000, 8_000, 16_000, 32_000, 64_000];

/// Bytes between two edits: a second of a quick model.
const STEP: usize = 300;

/// The default limit of a message in bytes; longer answers are split.
const LONGEST: usize = 10_000;

/// Markdown that makes a careless parser slow when there is much of it: constructs that never end, or that are
/// nested.
const HOSTILE: [&str; 10] = [">", "- ", "- \n", "*a _b ", "[a](", "[", "![a", "`a", "<a ", "&#|\n|-|\n"];

/// M1: showing an answer while it grows costs little more than showing it once, whatever its length and content.
pub fn growth() -> anyhow::Result<Vec<Row>> {
    let stream = costs("stream", &LENGTHS)?;
    let (length, whole) = stream[stream.len() - 1];
    Ok(vec![
        Row::at_most(
            "M1",
            "growth exponent of rendering an answer of 4 KB to 64 KB as it grows",
            exponent(&stream),
            1.1,
        ),
        Row::at_most("M1", "instructions per byte, an answer of 64 KB as it grows", whole / length, 500.0),
        Row::at_most("M1", "edits that look unlike their text rendered at once", unlike() as f64, 0.0),
        Row::at_most(
            "M1",
            "growth exponent of rendering 4 KB to 64 KB of each hostile text",
            // All together: a pattern that grows faster than the rest soon dominates.
            exponent(&costs("hostile", &[LENGTHS[0], LENGTHS[2], LENGTHS[4]])?),
            1.1,
        ),
    ])
}

/// M2: the text is included as few times as possible, and an event can carry any text.
pub fn size() -> anyhow::Result<Vec<Row>> {
    let message = MessageId::new(format!("${}", "e".repeat(43)));
    let sent = |text: &str| {
        let content = content::edit(&message, &MessageBody::new(BodyKind::Answer, text), html::render(text));
        content.map(|content| content::sealed(content.len()))
    };
    let mut rows = Vec::new();
    for (name, text) in [
        ("prose", prose(LONGEST)),
        ("an answer with lists, tables and code", answer(LONGEST)),
        ("nothing but code", format!("```rust\n{}```\n", CODE.repeat(LONGEST / CODE.len() - 1))),
    ] {
        let bytes = sent(&text)? as f64 / text.len() as f64;
        rows.push(Row::at_most("M2", format!("ciphertext bytes per byte of 10 KB, {name}"), bytes, 3.5));
    }
    let mut largest = 0;
    let mut refused = 0;
    for unit in HOSTILE.into_iter().chain(["a", "\"", "<", "é", "&", "*<* ", "\\*", "|a\n"]) {
        for length in (1..LONGEST).step_by(463).chain([LONGEST]) {
            let text = filled(unit, length);
            match sent(&text) {
                Ok(bytes) => largest = largest.max(bytes),
                Err(_) => refused += 1,
            }
        }
    }
    let room = content::EVENT as f64;
    rows.push(Row::at_most(
        "M2",
        "largest ciphertext / event, 1 B to 10 KB of anything",
        largest as f64 / room,
        0.95,
    ));
    rows.push(Row::at_most("M2", "texts of up to 10 KB that no event can carry", f64::from(refused), 0.0));
    Ok(rows)
}

/// Instructions of the work itself: a process that does it twice, minus one that does it once.
fn costs(work: &str, lengths: &[usize]) -> anyhow::Result<Vec<(f64, f64)>> {
    let run = |length: usize, times: usize| role(&[&"matrix", &work, &length, &times]);
    let cost = |length: usize| Ok((length as f64, difference(&run(length, 1), &run(length, 2))?));
    lengths.iter().map(|length| cost(*length)).collect()
}

/// Runs a process that was started above.
pub fn role_of(words: &[String]) -> anyhow::Result<()> {
    let number =
        |at: usize| -> anyhow::Result<usize> { Ok(words.get(at).context("a number is missing")?.parse()?) };
    let (length, times) = (number(2)?, number(3)?);
    let mut bytes = 0;
    for _ in 0..times {
        bytes += match words[1].as_str() {
            "stream" => show_all(&answer(length)),
            _ => HOSTILE.iter().map(|unit| html::write(&filled(unit, length)).html.len()).sum(),
        };
    }
    crate::answer(&bytes.to_string());
    Ok(())
}

/// Shows a text as delivery does: the first message grows until it is full, and at the end every part is shown
/// finished. Returns the bytes of all HTML.
fn show_all(text: &str) -> usize {
    let drafts = render_cache::RenderCache::default();
    let message = MessageId::new("$m");
    let full = text.len().min(LONGEST);
    let shown = |text: &str, done| drafts.render(&message, text, done).map_or(0, |html| html.len());
    let growing: usize = (STEP..full).step_by(STEP).map(|end| shown(&text[..end], false)).sum();
    let mut rest = text;
    let mut finished = 0;
    while !rest.is_empty() {
        let cut = if rest.len() > LONGEST {
            rest[..LONGEST].rfind("\n\n").map_or(LONGEST, |at| at + 2)
        } else {
            rest.len()
        };
        finished += shown(&rest[..cut], true);
        rest = &rest[cut..];
    }
    growing + finished
}

/// Counts the edits of an answer whose HTML differs from that of a renderer without a cache.
fn unlike() -> usize {
    let drafts = render_cache::RenderCache::default();
    let message = MessageId::new("$m");
    let text = answer(LENGTHS[2]);
    (1..text.len())
        .step_by(37)
        .filter(|end| drafts.render(&message, &text[..*end], false) != html::render(&text[..*end]))
        .count()
}

fn filled(unit: &str, length: usize) -> String {
    let mut text = unit.repeat(length / unit.len());
    text.extend(std::iter::repeat_n('x', length - text.len()));
    text
}

const CODE: &str = "    let total: Vec<u64> = items.iter().map(|item| item.size()).collect();\n";

fn prose(length: usize) -> String {
    let sentence = "The gateway keeps what was said, and says it again when a connection comes back. ";
    let mut text = String::new();
    while text.len() + 4 * sentence.len() < length {
        text.push_str(&sentence.repeat(3));
        text.push_str("\n\n");
    }
    text
}

/// An answer as models write them: headings, lists, a table and code, over and over.
fn answer(length: usize) -> String {
    let mut text = String::new();
    for part in 1.. {
        let section = format!(
            "## Part {part}\n\nThis part has **two** things to say, and `one` of them is [here](https://x.example/{part}).\n\n\
             - the first, which is rather short\n- the second, which goes on for a while, as such things do\n  - and a \
             remark on it\n\n```rust\n{CODE}{CODE}```\n\n| name | what it does |\n|---|---|\n| one | the first thing |\n\
             | two | the second thing |\n\n> And a quote,\n> of two lines.\n\n"
        );
        if text.len() + section.len() > length {
            text.push_str(&prose(length - text.len()));
            return text;
        }
        text.push_str(&section);
    }
    text
}
