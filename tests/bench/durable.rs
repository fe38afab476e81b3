//! Gates D1 and D3: the cost of durability, and whether a long history costs more than a short one.
//!
//! A turn here is the store's part of one: it loads the last 50 messages and appends two.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use talaria::agent::MessageRole;
use talaria::ids::{SessionId, TurnId};
use talaria::rules::SessionKey;
use talaria::store::{self, Store, StoreThreads};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::rounds::{ratio, thread_cpu};
use crate::table::Row;

const CALLERS: usize = 64;
const LAST: usize = 50;
const WINDOW: Duration = Duration::from_secs(1);

/// Syncs per second above which turns do not wait for the disk.
const QUICK_DISK: f64 = 1000.0;

/// D1: turns per second, as a multiple of the rate of one `fdatasync` after the other on this disk.
///
/// The limit was made for a disk with 282 of them a second. On a disk with thousands it asks for more turns than two
/// cores can load and append, and is missed although nothing waits for the disk.
pub fn group_commit() -> anyhow::Result<Vec<Row>> {
    let bench = Bench::new()?;
    let sessions = (0..CALLERS)
        .map(|caller| bench.session(&format!("caller {caller}"), LAST))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut synced = File::create(bench.folder.path().join("floor"))?;
    let ratio = ratio("fdatasync/s", || syncs_per_second(&mut synced), || bench.turns_per_second(&sessions))?;
    let what = format!("durable turns/s with {CALLERS} callers / fdatasync/s ({})", ratio.noise);
    let row = Row::at_least("D1", what, ratio.median, 20.0);
    Ok(vec![match ratio.floor > QUICK_DISK {
        true => row.known(1.3, "the disk is quicker than the turns are loaded"),
        false => row,
    }])
}

/// D3: the last 50 of 100,000 messages against the last 50 of 100.
pub fn long_history() -> anyhow::Result<Vec<Row>> {
    let (few, many) = (Bench::new()?, Bench::new()?);
    let (short, long) = (few.session("short", 100)?, many.session("long", 100_000)?);
    let ratio = ratio("µs", || few.load(&short), || many.load(&long))?;
    let what = format!("CPU to load the last {LAST} of 100,000 messages / of 100 ({})", ratio.noise);
    Ok(vec![Row::at_most("D3", what, ratio.median, 2.0)])
}

/// How often per second a page can be written and synced, one after the other.
fn syncs_per_second(file: &mut File) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut syncs = 0;
    while start.elapsed() < WINDOW {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / start.elapsed().as_secs_f64())
}

/// A store on the project's disk (`/tmp` may be memory), and its callers.
struct Bench {
    runtime: Runtime,
    store: Option<Store>,
    threads: Option<StoreThreads>,
    folder: TempDir,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let folder = crate::scratch()?;
        let (store, threads) = Store::open(&folder.path().join("talaria.db"))?;
        Ok(Self { runtime: Runtime::new()?, store: Some(store), threads: Some(threads), folder })
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

    fn turns_per_second(&self, sessions: &[SessionId]) -> anyhow::Result<f64> {
        let start = Instant::now();
        let turns: store::Result<u32> = self.runtime.block_on(async {
            let mut callers = JoinSet::new();
            for session in sessions {
                callers.spawn(call(self.store.clone(), session.clone(), start + WINDOW));
            }
            callers.join_all().await.into_iter().sum()
        });
        Ok(f64::from(turns?) / start.elapsed().as_secs_f64())
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

/// One caller: runs turn after turn until the window closes.
async fn call(store: Option<Store>, session: SessionId, until: Instant) -> store::Result<u32> {
    let Some(store) = store else { return Ok(0) };
    let mut turns = 0;
    while Instant::now() < until {
        let of = session.clone();
        let loaded = store.read(move |tx| tx.history(&of, LAST, usize::MAX)).await?;
        std::hint::black_box(loaded);
        let to = session.clone();
        store.write(move |tx| append(tx, &to).and_then(|()| append(tx, &to))).await?;
        turns += 1;
    }
    Ok(turns)
}

fn append(tx: &store::Tx<'_>, session: &SessionId) -> store::Result<()> {
    let content = "A sentence that somebody may have said in a chat, of a usual length. ".repeat(3);
    tx.record(session, &TurnId("turn".into()), MessageRole::User, &content)
}
