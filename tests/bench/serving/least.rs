//! The least that a server on our libraries can be: one that only writes, and a relay that reads and writes events and
//! keeps nothing. What they cost is axum's, hyper's, reqwest's and the kernel's.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use talaria::openai::sse::SseParser;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Interval, interval};

use crate::relay::{INTERVAL, allow_many_files, phase};
use crate::rounds::{monotonic_micros, process_cpu};
use crate::{child, sse};

/// Where all of them are asked.
const PATH: &str = "/v1/chat/completions";

/// Syncs before a model is asked: the question is taken, and it is handed over.
const SYNCS: usize = 2;

/// One stream of a server that only writes.
struct Ticking {
    run: watch::Receiver<bool>,
    counts: Arc<Counts>,
    phase: Duration,
    ticks: Option<Interval>,
    events: usize,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    sent: AtomicUsize,
}

/// Runs a server on axum that writes ten events a second to everybody, while it is told to.
pub fn writer() -> anyhow::Result<()> {
    allow_many_files();
    let (runtime, counts) = (Runtime::new()?, Arc::<Counts>::default());
    let (running, run) = watch::channel(false);
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let port = listener.local_addr()?.port();
    let of = counts.clone();
    let answer = move |_: Bytes| {
        let phase = phase(of.open.fetch_add(1, Ordering::Relaxed));
        let ticking = Ticking { run: run.clone(), counts: of.clone(), phase, ticks: None, events: 0 };
        async move { events(stream::unfold(ticking, Ticking::next)) }
    };
    runtime.spawn(serve(listener, Router::new().route(PATH, post(answer))));
    child::serve(&port.to_string(), |question| match question {
        "open" => counts.open.load(Ordering::Relaxed).to_string(),
        "sent" => counts.sent.load(Ordering::Relaxed).to_string(),
        "cpu" => process_cpu().to_string(),
        other => {
            running.send_replace(other == "go");
            String::from("yes")
        }
    })
}

impl Ticking {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let is_running = *self.run.borrow();
            match &mut self.ticks {
                Some(ticks) if is_running => {
                    ticks.tick().await;
                    self.counts.sent.fetch_add(1, Ordering::Relaxed);
                    let event = numbered(&mut self.events, &sse::stamped(monotonic_micros()));
                    return Some((event, self));
                }
                Some(_) | None => {
                    self.run.wait_for(|&running| running).await.ok()?;
                    tokio::time::sleep(self.phase).await;
                    self.ticks = Some(interval(INTERVAL));
                }
            }
        }
    }
}

/// Runs a relay on axum and reqwest, at the first port, before the model at the second. It reads every event and writes
/// it anew. With a third word, a folder, it first waits for the disk as often as the gateway has to.
pub fn passing(words: &[String]) -> anyhow::Result<()> {
    allow_many_files();
    let port = |index: usize| -> anyhow::Result<u16> { Ok(words.get(index).context("a port")?.parse()?) };
    let (own, model) = (port(1)?, port(2)?);
    let journal = words.get(3).map(|folder| Journal::open(Path::new(folder))).transpose()?;
    // The model closes each connection after its answer, and without retries one of those must not be used again.
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
    let answer = move |body: Bytes| {
        let (client, journal) = (client.clone(), journal.clone());
        async move {
            if let Some(journal) = journal {
                for _ in 0..SYNCS {
                    journal.sync(body.clone()).await;
                }
            }
            let asked = client.post(format!("http://127.0.0.1:{model}{PATH}")).body(body).send().await;
            let passing =
                asked.ok().map(|answer| Passing { answer, parser: SseParser::default(), events: 0 });
            events(stream::unfold(passing, |passing: Option<Passing>| async move { passing?.next().await }))
        }
    };
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", own)).await?;
        serve(listener, Router::new().route(PATH, post(answer))).await;
        Ok(())
    })
}

/// One stream of the relay.
struct Passing {
    answer: reqwest::Response,
    parser: SseParser,
    events: usize,
}

impl Passing {
    /// The events of the next chunk. `None` at the end, and after an error, which the reader notices as a missing end.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        let chunk = self.answer.chunk().await.ok()??;
        let mut written = Vec::new();
        let mut events = self.parser.feed(&chunk);
        while let Ok(Some(event)) = events.next_event() {
            let data = [b"data: ", event.text().as_bytes(), b"\n\n"].concat();
            written.extend_from_slice(&numbered(&mut self.events, &data));
        }
        Some((Bytes::from(written), Some(self)))
    }
}

/// A file that several write to and that is synced for all who wait at the same moment.
#[derive(Clone)]
struct Journal(mpsc::Sender<(Bytes, oneshot::Sender<()>)>);

impl Journal {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let mut file = File::create(folder.join("journal"))?;
        let (jobs, waiting) = mpsc::channel::<(Bytes, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            while let Ok(first) = waiting.recv() {
                let group: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
                let written = group.iter().try_for_each(|(bytes, _)| file.write_all(bytes));
                if written.and_then(|()| file.sync_data()).is_err() {
                    return;
                }
                for (_, done) in group {
                    let _ = done.send(());
                }
            }
        });
        Ok(Self(jobs))
    }

    async fn sync(&self, bytes: Bytes) {
        let (done, synced) = oneshot::channel();
        let _ = self.0.send((bytes, done));
        let _ = synced.await;
    }
}

/// An event with its number before it, as ours have one.
fn numbered(count: &mut usize, event: &[u8]) -> Bytes {
    *count += 1;
    [format!("id: {count}\n").as_bytes(), event].concat().into()
}

fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> ([(&'static str, &'static str); 1], Body) {
    use futures_util::StreamExt as _;
    ([("content-type", "text/event-stream")], Body::from_stream(stream.map(Ok::<_, Infallible>)))
}

async fn serve(listener: TcpListener, router: Router) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        talaria_platform::spawn_task("stand-in-server", async move {
            // A reader that goes away is the usual end.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
