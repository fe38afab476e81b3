//! Gates K1 and K2: turns by the real codex through the real program, beside codex alone.
//!
//! Both ask the same scripted model, and each has a codex and a conversation of its own. Ours is asked over HTTP, so its
//! time has everything that a turn costs: the request, the engine, the store, and the way to codex and back.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::child::resident;
use crate::it::upstream::Upstream;
use crate::program::ServedProgram;
use crate::real::codex_home::{CodexHome, CodexOptions, KEY, KEY_VARIABLE};
use crate::real::direct::DirectCodex;
use crate::real::responses::says;
use crate::rounds::{ROUNDS, median};
use crate::table::Row;

/// Turns of one measurement.
const TURNS: usize = 10;

const MB: f64 = 1024.0 * 1024.0;

/// K1: time that a turn takes longer than codex itself needs for it.
pub fn overhead() -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let model = scripted().await;
        let ours = OurCodex::start(&model)?;
        let home = CodexHome::new(&model.url(), &CodexOptions::default());
        let mut direct = DirectCodex::start(&home).await;
        let thread = direct.starts_thread(json!({})).await;
        // The first turns start things that stay.
        direct.turn(&thread, "how many?", &Value::Null).await;
        ours.turn().await?;

        let mut alone = async || {
            direct.turn(&thread, "how many?", &Value::Null).await;
            anyhow::Ok(())
        };
        let (mut more, mut floors) = (Vec::new(), Vec::new());
        let mut before = millis(&mut alone).await?;
        for _ in 0..ROUNDS {
            let value = millis(async || ours.turn().await).await?;
            let after = millis(&mut alone).await?;
            more.push(value - before.midpoint(after));
            floors.push(before.midpoint(after));
            before = after;
        }
        let what = format!("a turn by codex, beyond codex alone, which takes {:.0} ms (ms)", median(floors));
        Ok(vec![Row::at_most("K1", what, median(more), 20.0)])
    })
}

/// K2: memory of our own process while it keeps a codex warm.
pub fn memory() -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let model = scripted().await;
        let ours = OurCodex::start(&model)?;
        for _ in 0..TURNS {
            ours.turn().await?;
        }
        let used = resident(ours.program.id())? / MB;
        Ok(vec![Row::at_most("K2", "memory of ours with one warm codex (MB)", used, 25.0)])
    })
}

/// A model that always says the same.
async fn scripted() -> Upstream {
    let model = Upstream::plain().await;
    model.answers_by(|_| says(["Forty-", "two."]));
    model
}

/// Median time of one action in milliseconds, over [`TURNS`] of them.
async fn millis(mut action: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let begun = Instant::now();
        action().await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// The real program with an agent of kind `codex`. Dropping it ends it.
struct OurCodex {
    program: ServedProgram,
    _home: CodexHome,
}

impl OurCodex {
    fn start(model: &Upstream) -> anyhow::Result<Self> {
        let home = CodexHome::new(&model.url(), &CodexOptions::default());
        let config = format!(
            "agents:\n  coder:\n    kind: codex\n    command: {}\n    codex_home: {}\n    workspace: {}\n    \
             env: {{{KEY_VARIABLE}: {KEY}}}\n",
            home.program().display(),
            home.codex_home().display(),
            home.workspace().display(),
        );
        Ok(Self { program: ServedProgram::start(&config, home.path())?, _home: home })
    }

    /// One turn of the same conversation.
    async fn turn(&self) -> anyhow::Result<()> {
        let body = json!({ "model": "talaria", "messages": [{ "role": "user", "content": "how many?" }] });
        let request = self.program.request(Method::POST, "/v1/chat/completions");
        let request = request.header("x-hermes-session-id", "s").body(body.to_string());
        let answer = request.send().await?.text().await?;
        anyhow::ensure!(answer.contains("Forty-two."), "{answer}");
        Ok(())
    }
}
