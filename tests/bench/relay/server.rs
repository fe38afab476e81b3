//! An agent server that streams deltas to every client, on command. Each delta contains the time when it was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::rounds::{monotonic_micros, process_cpu};
use crate::{child, sse};

/// Pause between two deltas of one stream.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// How a stream is answered.
#[derive(Clone, Copy)]
struct Plan {
    deltas: usize,
    /// Pause before the first delta of the stream with this number.
    offset: fn(usize) -> Duration,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    sent: AtomicUsize,
}

/// Prints its port; then answers `open` and `sent` with a count and `cpu` with its time, and obeys `go` and `pause`.
/// An answer never ends, or has as many deltas as the argument says; with the word `at-once` it begins without a pause.
pub fn server(words: &[String]) -> anyhow::Result<()> {
    let deltas = words.get(1).map(|word| word.parse()).transpose()?;
    let offset = if words.get(2).is_some_and(|word| word == "at-once") { |_| Duration::ZERO } else { phase };
    super::consumers::allow_many_files();
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let port = listener.local_addr()?.port();
    let (running, run) = watch::channel(false);
    let counts = Arc::new(Counts::default());
    runtime.spawn(accept(
        listener,
        run,
        counts.clone(),
        Plan { deltas: deltas.unwrap_or(usize::MAX), offset },
    ));
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

async fn accept(listener: TcpListener, run: watch::Receiver<bool>, counts: Arc<Counts>, plan: Plan) {
    while let Ok((stream, _)) = listener.accept().await {
        let (run, counts) = (run.clone(), counts.clone());
        talaria_platform::spawn_task("stand-in-upstream", async move {
            // A consumer that goes away is the usual end.
            let _ = answer(stream, run, &counts, plan).await;
        });
    }
}

async fn answer(
    stream: TcpStream,
    mut run: watch::Receiver<bool>,
    counts: &Counts,
    Plan { mut deltas, offset }: Plan,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let asks = read_request(&mut stream).await?;
    let mut stream = stream.into_inner();
    if !asks.starts_with("POST") {
        // Capabilities do not matter here.
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
        return Ok(());
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let number = counts.open.fetch_add(1, Ordering::Relaxed);
    let phase = offset(number);
    while deltas > 0 {
        run.wait_for(|&running| running).await?;
        tokio::time::sleep(phase).await;
        let mut ticks = tokio::time::interval(INTERVAL);
        while *run.borrow() && deltas > 0 {
            ticks.tick().await;
            stream.write_all(&chunk(&sse::stamped(monotonic_micros()))).await?;
            counts.sent.fetch_add(1, Ordering::Relaxed);
            deltas -= 1;
        }
    }
    let end = r#"data: {"id":"chatcmpl-9f3a61c27be84d05","object":"chat.completion.chunk","created":1760000000,"model":"hermes-agent","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    stream.write_all(&chunk(format!("{end}\n\ndata: [DONE]\n\n").as_bytes())).await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(())
}

/// Offset of a stream, so that not all tick at one moment: 37 is prime to the milliseconds of an interval.
pub fn phase(number: usize) -> Duration {
    Duration::from_millis(number as u64 * 37 % 100)
}

/// One chunk of the transfer encoding, as servers flush each delta.
fn chunk(delta: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", delta.len()).as_bytes(), delta, b"\r\n"].concat()
}

/// Reads a request to its end, given by its length; returns its first line.
async fn read_request(stream: &mut BufReader<TcpStream>) -> anyhow::Result<String> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    stream.read_line(&mut first).await?;
    loop {
        line.clear();
        anyhow::ensure!(stream.read_line(&mut line).await? > 0, "no request");
        match line.trim().to_ascii_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse()?,
            _ if line.trim().is_empty() => break,
            _ => {}
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    Ok(first)
}
