//! The least that a relay on our libraries can be: it reads every delta with reqwest and serde_json, keeps the text, and
//! once a second puts the text of each stream on disk with SQLite, before people would see it. What it costs is theirs and
//! the kernel's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::Connection;
use talaria::openai::sse::SseParser;
use talaria::openai::wire::{ChunkCache, StreamChunk};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::consumers::{allow_many_files, port_and_streams};
use crate::child;
use crate::rounds::process_cpu;

/// Pause between two edits of a room, as the gateway beside it has.
const PAUSE: Duration = Duration::from_secs(1);

/// Texts that wait for the disk, each with its stream and the one who waits.
type Checkpoints = mpsc::Sender<(usize, String, oneshot::Sender<()>)>;

/// Reads all streams and stores their texts.
pub fn storing(words: &[String]) -> anyhow::Result<()> {
    allow_many_files();
    let (port, streams) = port_and_streams(words)?;
    let (folder, runtime) = (crate::scratch()?, Runtime::new()?);
    let (edits, disk) = (Arc::<AtomicUsize>::default(), disk(&folder.path().join("texts.db"))?);
    let client = reqwest::Client::builder().no_proxy().build()?;
    child::serve("ready", |question| match question {
        "begin" => {
            for stream in 0..streams {
                runtime.spawn(read(client.clone(), port, stream, disk.clone(), edits.clone()));
            }
            String::from("yes")
        }
        "edits" => edits.load(Ordering::Relaxed).to_string(),
        _ => process_cpu().to_string(),
    })
}

async fn read(
    client: reqwest::Client,
    port: u16,
    stream: usize,
    disk: Checkpoints,
    edits: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let mut answer = client.post(format!("http://127.0.0.1:{port}/v1/chat/completions")).send().await?;
    let (mut parser, mut chunks, mut text) = (SseParser::default(), ChunkCache::default(), String::new());
    let mut next = Instant::now();
    while let Some(chunk) = answer.chunk().await? {
        let mut events = parser.feed(&chunk);
        while let Some(event) = events.next_event()? {
            let data = event.text();
            let chunk: StreamChunk<'_> = chunks.read(&data)?;
            text.push_str(chunk.text().unwrap_or_default());
        }
        if Instant::now() >= next {
            let (done, stored) = oneshot::channel();
            disk.send((stream, text.clone(), done))?;
            stored.await?;
            edits.fetch_add(1, Ordering::Relaxed);
            next = Instant::now() + PAUSE;
        }
    }
    Ok(())
}

/// Starts the thread that stores texts; those that wait at the same moment share a commit.
fn disk(path: &std::path::Path) -> anyhow::Result<Checkpoints> {
    let database = Connection::open(path)?;
    database.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE texts (stream INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;",
    )?;
    let (jobs, waiting) = mpsc::channel::<(usize, String, oneshot::Sender<()>)>();
    std::thread::spawn(move || {
        while let Ok(first) = waiting.recv() {
            let group: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
            if let Err(error) = store(&database, &group) {
                crate::say(&format!("the floor cannot store its texts: {error}"));
                return;
            }
            for (_, _, done) in group {
                let _ = done.send(());
            }
        }
    });
    Ok(jobs)
}

fn store(database: &Connection, group: &[(usize, String, oneshot::Sender<()>)]) -> rusqlite::Result<()> {
    let transaction = database.unchecked_transaction()?;
    for (stream, text, _) in group {
        let mut put = transaction.prepare_cached(
            "INSERT INTO texts (stream, text) VALUES (?1, ?2) ON CONFLICT (stream) DO UPDATE SET text = ?2",
        )?;
        put.execute((stream, text))?;
    }
    transaction.commit()
}
