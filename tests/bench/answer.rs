//! Gate L1: an answer that is twice as long costs little more than twice as much.
//!
//! The whole core runs, from a person's question to the finished answer in the room; only the agent is ours. It emits
//! ten bytes each ten milliseconds of a paused clock, and waits each second until the store has written everything to
//! disk: every run makes the same edits at the same moments, however slow callgrind makes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use talaria::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, PreparedTurn, TurnEnd, TurnEvent,
};
use talaria::store::Store;
use talaria_platform::{BoxFuture, CancellationToken, ShowMode};

use crate::count::{instructions, role};
use crate::room::{self, Rooms};
use crate::table::Row;

/// Deltas of the longer answer: 1 MB.
const DELTAS: usize = 100_000;

/// How many times the work twice the text may cost. Above two, because the clock decides how often a running answer
/// is checked; work that grows with the square of the length would be near four.
const TWICE: f64 = 2.3;

/// Deltas of an answer whose cost is subtracted.
const HARDLY_ANY: usize = 100;

/// L1 for rooms with edits and for a terminal.
///
/// The limit for one delta, which includes the benchmark's own clock, is not from the specification: it catches work
/// that is repeated for every delta, which stays linear and yet is too much.
pub fn growth() -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (style, name, most) in
        [("edit", "edited in a room", 7_000.0), ("append", "printed on a terminal", 12_000.0)]
    {
        let run =
            |deltas: usize| instructions(&role(&[&"answer", &style, &deltas])).map(|count| count as f64);
        let start = run(HARDLY_ANY)?;
        let (half, whole) = (run(DELTAS / 2)? - start, run(DELTAS)? - start);
        let what = format!("cost of 1 MB in 100,000 deltas / of 0.5 MB in 50,000, {name}");
        rows.push(Row::at_most("L1", what, whole / half, TWICE));
        let what = format!("instructions per delta from agent to room, {name}");
        rows.push(Row::at_most("L1", what, whole / DELTAS as f64, most));
    }
    Ok(rows)
}

/// Runs a process that was started above.
pub fn role_of(words: &[String]) -> anyhow::Result<()> {
    let show = match words.get(1).map(String::as_str) {
        Some("append") => ShowMode::Append,
        _ => ShowMode::Edit { pause: Duration::from_secs(1) },
    };
    let deltas: usize = words.get(2).context("how many deltas?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let folder = crate::scratch()?;
    let rooms = Rooms::new(1, show);
    rooms.ask.cancel();
    runtime.block_on(async {
        // A blocking task keeps the paused clock from running ahead by itself.
        let (clock, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let agent = |store: &Store| anyhow::Ok(Arc::new(Talker { deltas, store: store.clone() }) as _);
        let (mut gateway, _) = room::gateway(folder.path(), Some(rooms.clone()), agent).await?;
        gateway.finished().await?;
        drop(clock);
        anyhow::Ok(())
    })?;
    let (finished, edits) = (rooms.finished.load(Ordering::Relaxed), rooms.edits.load(Ordering::Relaxed));
    let said: usize = (0..deltas).map(|delta| room::inked(word(delta))).sum();
    anyhow::ensure!(finished >= said, "of {said} bytes only {finished} arrived");
    anyhow::ensure!(edits > 0, "the answer did not grow");
    crate::answer(&format!("{finished} bytes, {edits} edits"));
    Ok(())
}

/// An agent that emits so many deltas, one each 10 ms.
struct Talker {
    deltas: usize,
    store: Store,
}

impl Talker {
    async fn talk(&self, out: &dyn AgentOutput) {
        const STEP: Duration = Duration::from_millis(100);
        const STEP_DELTAS: usize = 10;
        for delta in 0..self.deltas {
            out.emit(TurnEvent::Text(word(delta)));
            if delta % STEP_DELTAS != STEP_DELTAS - 1 {
                continue;
            }
            tokio::time::advance(STEP).await;
            settle().await;
            if delta % (10 * STEP_DELTAS) == 10 * STEP_DELTAS - 1 {
                // The store does its jobs in order, so those of the conversation are done too.
                let _ = self.store.write(|_| Ok(())).await;
                settle().await;
            }
        }
    }
}

/// Lets every other task do what it can do without waiting.
async fn settle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

/// Ten bytes: prose with paragraphs, and a block of code now and then.
fn word(delta: usize) -> &'static str {
    match delta % 1000 {
        0 => "\n\n```rust\n",
        60 => "x();\n```\n\n",
        number if number % 100 == 99 => "its end.\n\n",
        number if number % 2 == 0 => "some words",
        _ => " and more ",
    }
}

impl Agent for Talker {
    fn about(&self) -> AgentInfo {
        AgentInfo::new(AgentKind::Proxy, "talker")
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
    }

    fn run_turn<'a>(
        &'a self,
        _: &'a AgentTurn,
        _: PreparedTurn,
        out: &'a dyn AgentOutput,
        _: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            self.talk(out).await;
            Ok(TurnEnd::Done)
        })
    }
}
