//! Gates D1 and D3: the cost of durability, and whether a long history costs more than a short one.
//!
//! How often a turn waits for the disk is counted, not timed, because disks differ by a factor of a hundred: this
//! program runs again under strace, which writes down each sync and makes it slow, so that turns meet at the disk on a
//! quick one too. A turn of the store loads the last 50 messages and appends two; a turn of the server is a whole
//! request in a session, with an agent that answers at once.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context as _;
use talaria::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, MessageRole, PreparedTurn, TurnEnd,
    TurnEvent,
};
use talaria::ids::{SessionId, TurnId};
use talaria::rules::SessionKey;
use talaria::store::{self, Store, StoreThreads};
use talaria_platform::{BoxFuture, CancellationToken};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Scale;
use crate::count::role;
use crate::room;
use crate::rounds::{ratio, thread_cpu};
use crate::serving::{KEY, server_settings};
use crate::table::Row;

const CALLERS: usize = 64;
const LAST: usize = 50;

/// Turns of each caller whose syncs are counted.
const TURNS: usize = 25;

/// Makes strace hold each sync for twenty milliseconds, as a slow disk does.
const SLOW_SYNC: &str = "--inject=fsync,fdatasync:delay_enter=20000";

/// Syncs of a turn that is alone: it is taken, handed to the agent, and ended. The rest is its share when the log is moved
/// into the database.
const ALONE: f64 = 3.2;

/// D1: syncs of the disk for each turn that survives a crash, alone and with many callers at once.
pub fn syncs(scale: Scale) -> anyhow::Result<Vec<Row>> {
    if scale == Scale::Quick && Command::new("strace").arg("--version").output().is_err() {
        crate::say("D1: skipped, because strace is missing; `apt-get install strace`");
        return Ok(Vec::new());
    }
    let alone = syncs_per_turn("server", 1)?;
    let together = syncs_per_turn("server", CALLERS)?;
    let stored = syncs_per_turn("store", CALLERS)?;
    let repeatable = syncs_per_turn("repeatable", 1)?;
    Ok(vec![
        Row::at_most("D1", "syncs per turn of the server, one caller", alone, ALONE),
        Row::at_most("D1", format!("syncs per turn of the server, {CALLERS} callers"), together, 3.0),
        Row::at_least("D1", format!("turns of the store per sync, {CALLERS} callers"), 1.0 / stored, 20.0),
        Row::at_most("D1", "syncs per write whose loss a network forgives", repeatable, 0.0),
    ])
}

/// Syncs per turn: those of a process that runs twice as many turns, minus those of one that runs them once.
fn syncs_per_turn(what: &str, callers: usize) -> anyhow::Result<f64> {
    let run = |turns: usize| syncs_of(&role(&[&"durable", &what, &callers, &turns]));
    let (once, twice) = (run(TURNS)?, run(2 * TURNS)?);
    Ok((twice as f64 - once as f64) / (callers * TURNS) as f64)
}

/// Counts the syncs of this program in a role.
fn syncs_of(role: &[String]) -> anyhow::Result<usize> {
    let folder = crate::scratch()?;
    let trace = folder.path().join("trace");
    let output = Command::new("strace")
        .args([
            "--follow-forks",
            "--seccomp-bpf",
            "--quiet=all",
            "--trace=fsync,fdatasync",
            SLOW_SYNC,
            "--output",
        ])
        .arg(&trace)
        .arg(std::env::current_exe()?)
        .arg(crate::ROLE)
        .args(role)
        .output()
        .context("strace cannot be run; `apt-get install strace`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{} failed under strace: {said}", role.join(" "));
    // A call that another thread interrupts takes a second line, which has no bracket behind the name.
    let syncs = fs::read_to_string(trace)?.lines().filter(|line| line.contains("sync(")).count();
    anyhow::ensure!(syncs > 0, "strace saw no sync: {said}");
    Ok(syncs)
}

/// Runs a process that was started above.
pub fn role_of(words: &[String]) -> anyhow::Result<()> {
    let number =
        |at: usize| -> anyhow::Result<usize> { Ok(words.get(at).context("a number is missing")?.parse()?) };
    let (callers, turns) = (number(2)?, number(3)?);
    match words[1].as_str() {
        "server" => Runtime::new()?.block_on(server_turns(callers, turns)),
        "repeatable" => repeatable_writes(turns),
        _ => store_turns(callers, turns),
    }
}

/// Lets every caller run its turns in a session of its own, on the store alone.
fn store_turns(callers: usize, turns: usize) -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let sessions = (0..callers)
        .map(|caller| bench.session(&format!("caller {caller}"), LAST))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let ran: store::Result<()> = bench.runtime.block_on(async {
        let mut callers = JoinSet::new();
        for session in sessions {
            callers.spawn(call(bench.store.clone(), session, turns));
        }
        callers.join_all().await.into_iter().collect()
    });
    Ok(ran?)
}

/// Stores results that do not wait for the disk, one after the other.
fn repeatable_writes(writes: usize) -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let session = bench.session("repeatable", LAST)?;
    for _ in 0..writes {
        let to = session.clone();
        bench.runtime.block_on(bench.store()?.write_repeatable(move |tx| append(tx, &to)))?;
    }
    Ok(())
}

/// One caller: runs turn after turn.
async fn call(store: Option<Store>, session: SessionId, turns: usize) -> store::Result<()> {
    let Some(store) = store else { return Ok(()) };
    for _ in 0..turns {
        let of = session.clone();
        let loaded = store.read(move |tx| tx.history(&of, LAST, usize::MAX)).await?;
        std::hint::black_box(loaded);
        let to = session.clone();
        store.write(move |tx| append(tx, &to).and_then(|()| append(tx, &to))).await?;
    }
    Ok(())
}

/// Lets every caller run its turns in a session of its own, through the whole server.
async fn server_turns(callers: usize, turns: usize) -> anyhow::Result<()> {
    let folder = crate::scratch()?;
    let (mut gateway, _threads) = room::gateway(folder.path(), None, |_| Ok(Arc::new(QuickAgent))).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    gateway.serve(server_settings(), listener)?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut asking = JoinSet::new();
    for caller in 0..callers {
        let (client, url) = (client.clone(), url.clone());
        asking.spawn(async move {
            for _ in 0..turns {
                let body = r#"{"model": "m", "messages": [{"role": "user", "content": "plan my week"}]}"#;
                let request = client.post(&url).bearer_auth(KEY).body(body);
                let request = request.header("content-type", "application/json");
                let answer = request.header("x-hermes-session-id", format!("caller-{caller}")).send().await?;
                let answer = answer.error_for_status()?.text().await?;
                anyhow::ensure!(answer.contains(ANSWER), "{answer}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked??;
    }
    Ok(())
}

/// What [`QuickAgent`] answers.
const ANSWER: &str = "Monday is for writing, and Tuesday for reading what was written.";

/// An agent that answers at once.
struct QuickAgent;

impl Agent for QuickAgent {
    fn about(&self) -> AgentInfo {
        AgentInfo::new(AgentKind::Proxy, "quick")
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
            out.emit(TurnEvent::Text(ANSWER));
            Ok(TurnEnd::Done)
        })
    }
}

/// D3: the last 50 of 100,000 messages against the last 50 of 100.
pub fn long_history() -> anyhow::Result<Vec<Row>> {
    let (few, many) = (Bench::new()?, Bench::new()?);
    let (short, long) = (few.session("short", 100)?, many.session("long", 100_000)?);
    let ratio = ratio("µs", || few.load(&short), || many.load(&long))?;
    let what = format!("CPU to load the last {LAST} of 100,000 messages / of 100 ({})", ratio.noise);
    Ok(vec![Row::at_most("D3", what, ratio.median, 2.0)])
}

/// A store on the project's disk (`/tmp` may be memory), and its callers.
struct Bench {
    runtime: Runtime,
    store: Option<Store>,
    threads: Option<StoreThreads>,
    _folder: TempDir,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let folder = crate::scratch()?;
        let (store, threads) = Store::open(&folder.path().join("talaria.db"))?;
        Ok(Self { runtime: Runtime::new()?, store: Some(store), threads: Some(threads), _folder: folder })
    }

    fn store(&self) -> anyhow::Result<&Store> {
        self.store.as_ref().ok_or_else(|| anyhow::anyhow!("the store is closed"))
    }

    /// Makes a session with so many messages.
    fn session(&self, key: &str, messages: usize) -> anyhow::Result<SessionId> {
        let key = SessionKey { digest: key.to_owned(), account: "bench".into(), room: key.into() };
        let session = self.store()?.write(move |tx| {
            let session = tx.session_for(&key)?.id;
            (0..messages).try_for_each(|_| append(tx, &session))?;
            Ok(session)
        });
        Ok(self.runtime.block_on(session)?)
    }

    /// CPU time of one load on the store's own thread, in µs.
    fn load(&self, session: &SessionId) -> anyhow::Result<f64> {
        const TIMES: u32 = 2000;
        let session = session.clone();
        let timed = self.store()?.read(move |tx| {
            let start = thread_cpu();
            for _ in 0..TIMES {
                std::hint::black_box(tx.history(&session, LAST, usize::MAX)?);
            }
            Ok((thread_cpu() - start) / f64::from(TIMES) * 1e6)
        });
        Ok(self.runtime.block_on(timed)?)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The threads end when nobody holds the store any more; only then may its folder go.
        self.store = None;
        if let Some(threads) = self.threads.take() {
            threads.join();
        }
    }
}

fn append(tx: &store::Tx<'_>, session: &SessionId) -> store::Result<()> {
    let content = "A sentence that somebody may have said in a chat, of a usual length. ".repeat(3);
    tx.record(session, &TurnId("turn".into()), MessageRole::User, &content)
}
