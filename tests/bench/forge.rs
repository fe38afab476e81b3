//! Gates F1, F2 and F3: turns of ACP agents over the forge surface.
//!
//! F1 asks the real codex-acp, once over HTTP and once straight over ACP, each with a process and a conversation of its own
//! and the same scripted model behind it. F2 and F3 ask an agent that costs nothing itself ([`scripted_agent`]), so that they
//! measure only what lies between a program and its agent.

mod acpx;
mod direct_acp;
mod our_forge;
mod scripted_agent;

use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use self::acpx::Acpx;
use self::direct_acp::DirectAgent;
use self::our_forge::OurForge;
pub use self::scripted_agent::{ROLE as AGENT_ROLE, run as agent};
use crate::Scale;
use crate::it::upstream::Upstream;
use crate::real_acp::real_agents::RealAgent;
use crate::rounds::ratio;
use crate::table::Row;

/// Every prompt.
const PROMPT: &str = "how many?";

/// The end of every answer.
const ANSWER: &str = "Forty-two.";

/// Turns of one measurement.
const TURNS: usize = 20;

/// Turns of one measurement of acpx, which takes seconds for each.
const ACPX_TURNS: usize = 3;

/// Sessions of F3, and processes that they share.
const SESSIONS: usize = 100;
const PROCESSES: usize = 10;

/// Longest wait for the end of processes.
const PATIENCE: Duration = Duration::from_secs(20);

const MB: f64 = 1024.0 * 1024.0;

/// F1: a warm turn over the forge surface, beside the same turn straight over ACP.
pub fn overhead() -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    let model = runtime.block_on(scripted_model());
    let (home, other) = (crate::scratch()?, crate::scratch()?);
    let config = RealAgent::CodexAcp.config(home.path(), &model.url());
    let ours = OurForge::start(&config, home.path(), 1)?;
    let session = runtime.block_on(ours.begin())?;
    let mut direct = DirectAgent::start(&RealAgent::CodexAcp.config(other.path(), &model.url()))?;
    direct.begin()?;
    // The first turns start things that stay.
    direct.turn(PROMPT)?;
    runtime.block_on(ours.turn(&session, PROMPT))?;
    let measured = ratio(
        "ms",
        || millis(TURNS, || direct.turn(PROMPT)),
        || millis(TURNS, || runtime.block_on(ours.turn(&session, PROMPT))),
    )?;
    let what = format!("a turn by codex-acp over HTTP, beside one straight over ACP ({})", measured.noise);
    Ok(vec![Row::at_most("F1", what, measured.median, 1.1)])
}

/// F2: how much quicker a warm turn is than the same turn by acpx.
pub fn beside_acpx() -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    let home = crate::scratch()?;
    let config = scripted_agent::config(home.path().join("work"))?;
    let ours = OurForge::start(&config, home.path(), 1)?;
    let session = runtime.block_on(ours.begin())?;
    runtime.block_on(ours.turn(&session, PROMPT))?;
    let acpx = Acpx::begin(&config)?;
    // The first turn starts what the next ones use.
    acpx.turn()?;
    let measured = ratio(
        "ms",
        || millis(ACPX_TURNS, || acpx.turn()),
        || millis(TURNS, || runtime.block_on(ours.turn(&session, PROMPT))),
    )?;
    let what = format!("times that a turn is quicker than one by acpx ({})", measured.noise);
    Ok(vec![Row::at_least("F2", what, 1.0 / measured.median, 10.0)])
}

/// F3: many sessions that share a few processes. `quick` has only what is counted.
pub fn many_sessions(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    let home = crate::scratch()?;
    let config = scripted_agent::config(home.path().join("work"))?;
    let ours = OurForge::start(&config, home.path(), PROCESSES)?;
    let (mut rows, mut sessions, mut most, mut before) = (Vec::new(), Vec::new(), 0, (0.0, 0.0));
    // Twice, so that every session also goes on in another process.
    for number in 0..2 * SESSIONS {
        if number < SESSIONS {
            sessions.push(runtime.block_on(ours.begin())?);
        }
        runtime.block_on(ours.turn(&sessions[number % SESSIONS], PROMPT))?;
        most = most.max(scripted_agent::count()?);
        if number == PROCESSES {
            before = (ours.descriptors()? as f64, ours.memory()?);
        }
    }
    let what = format!("processes for {SESSIONS} sessions, at most {PROCESSES} at once");
    rows.push(Row::between("F3", what, most as f64, 1.0, PROCESSES as f64));
    let what = format!("open files more with {SESSIONS} sessions than with {PROCESSES}");
    rows.push(Row::at_most("F3", what, ours.descriptors()? as f64 - before.0, 4.0));
    let what = format!("memory of ours more with {SESSIONS} sessions than with {PROCESSES} (MB)");
    rows.push(Row::at_most("F3", what, (ours.memory()? - before.1) / MB, 10.0));
    if scale != Scale::Quick {
        rows.push(among_many(&runtime, &ours, &sessions)?);
    }
    for session in &sessions {
        runtime.block_on(ours.close(session))?;
    }
    let began = Instant::now();
    while scripted_agent::count()? > 0 && began.elapsed() < PATIENCE {
        sleep(Duration::from_millis(50));
    }
    let left = scripted_agent::count()? as f64;
    rows.push(Row::at_most("F3", "processes once all sessions are closed", left, 0.0));
    Ok(rows)
}

/// A warm turn while many sessions are open, beside one where no other session is.
fn among_many(runtime: &Runtime, ours: &OurForge, sessions: &[String]) -> anyhow::Result<Row> {
    let home = crate::scratch()?;
    let lonely = OurForge::start(&scripted_agent::config(home.path().join("work"))?, home.path(), 1)?;
    let session = runtime.block_on(lonely.begin())?;
    runtime.block_on(lonely.turn(&session, PROMPT))?;
    let last = sessions.last().map(String::as_str).unwrap_or_default();
    let measured = ratio(
        "ms",
        || millis(TURNS, || runtime.block_on(lonely.turn(&session, PROMPT))),
        || millis(TURNS, || runtime.block_on(ours.turn(last, PROMPT))),
    )?;
    let what =
        format!("a warm turn among {} sessions, beside a lone one ({})", sessions.len(), measured.noise);
    Ok(Row::at_most("F3", what, measured.median, 1.3))
}

/// A model that always says the same.
async fn scripted_model() -> Upstream {
    let model = Upstream::plain().await;
    model.answers_by(|_| crate::real::responses::says(["Forty-", "two."]));
    model
}

/// Time of the quickest of some equal actions in milliseconds: other work on the machine makes an action only slower, and more
/// so one that has more processes to wait for.
fn millis(times: usize, mut action: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut quickest = f64::INFINITY;
    for _ in 0..times {
        let begun = Instant::now();
        action()?;
        quickest = quickest.min(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(quickest)
}
