//! Gates K1 and K2: turns by the real codex through the real program, beside codex alone.
//!
//! Both ask the same scripted model, and each has a codex and a conversation of its own. Ours is asked over HTTP, so its
//! time has everything that a turn costs: the request, the engine, the store, and the way to codex and back.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::header::AUTHORIZATION;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::child::resident;
use crate::it::upstream::Upstream;
use crate::real::codex_home::{CodexHome, CodexOptions, KEY, KEY_VARIABLE};
use crate::real::direct::DirectCodex;
use crate::real::responses::says;
use crate::rounds::{ROUNDS, median};
use crate::table::Row;

/// Turns of one measurement.
const TURNS: usize = 10;

/// Longest time of a turn. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The owner's key of the agent server.
const OWNER: &str = "a-key-of-the-owner-that-is-long-enough";

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
        let used = resident(ours.process.id())? / MB;
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
    process: Child,
    address: String,
    client: reqwest::Client,
    _home: CodexHome,
    _state: TempDir,
}

impl OurCodex {
    fn start(model: &Upstream) -> anyhow::Result<Self> {
        let home = CodexHome::new(&model.url(), &CodexOptions::default());
        let state = crate::scratch()?;
        let config = format!(
            "agents:\n  coder:\n    kind: codex\n    command: {}\n    codex_home: {}\n    workspace: {}\n    \
             env: {{{KEY_VARIABLE}: {KEY}}}\n",
            home.program().display(),
            home.codex_home().display(),
            home.workspace().display(),
        );
        std::fs::write(state.path().join("talaria.yaml"), config)?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_talaria"))
            .arg("serve")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .env("TALARIA_HOME", state.path())
            .env("API_SERVER_PORT", "0")
            .env("API_SERVER_KEY", OWNER)
            .current_dir(state.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(process.stderr.take().context("no pipe")?).lines();
        let address = |line: &String| {
            line.split_whitespace()
                .find_map(|word| Some(word.strip_prefix("address=")?.trim_matches('"').to_owned()))
        };
        let address = log.by_ref().map_while(Result::ok).find_map(|line| address(&line));
        // The rest of the log is read, so that the program can write it.
        std::thread::spawn(move || log.for_each(drop));
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self {
            process,
            address: address.context("it does not serve")?,
            client,
            _home: home,
            _state: state,
        })
    }

    /// One turn of the same conversation.
    async fn turn(&self) -> anyhow::Result<()> {
        let body = json!({ "model": "talaria", "messages": [{ "role": "user", "content": "how many?" }] });
        let request = self.client.post(format!("{}/v1/chat/completions", self.address));
        let request =
            request.header(AUTHORIZATION, format!("Bearer {OWNER}")).header("x-hermes-session-id", "s");
        let answer = request.body(body.to_string()).timeout(PATIENCE).send().await?.text().await?;
        anyhow::ensure!(answer.contains("Forty-two."), "{answer}");
        Ok(())
    }
}

impl Drop for OurCodex {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
