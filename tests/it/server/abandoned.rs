//! Clients that start a stream and leave: nothing of it stays on the server.

use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::binary::{Process, Talaria};
use crate::support::gateway::Setup;
use crate::support::served::{KEY, Served, settings};
use crate::support::stream::Stream;
use crate::support::upstream::{Answer, Upstream, delta};

const CHAT: &str = "/v1/chat/completions";

/// Streams at once.
const AT_ONCE: usize = 50;

/// Longest wait until nothing is left. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn asks() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })
}

fn how_many() -> usize {
    if std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full") { 10_000 } else { 1000 }
}

/// How a client leaves.
#[derive(Clone, Copy)]
enum Leaves {
    AfterText,
    BeforeTheHead,
    HalfClosed,
}

/// Starts a stream and leaves it.
async fn abandon(address: &str, key: &str, how: Leaves) {
    let body = asks().to_string();
    let mut socket = TcpStream::connect(address.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body.as_str()).as_bytes()).await.unwrap();
    if matches!(how, Leaves::BeforeTheHead) {
        return;
    }
    let mut seen = Vec::new();
    while memchr::memmem::find(&seen, b"Hel").is_none() {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
    }
    if matches!(how, Leaves::HalfClosed) {
        socket.shutdown().await.unwrap();
        // The server has closed the connection.
        while socket.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
    }
}

async fn abandon_many(address: &str, key: &str, count: usize) {
    let ways = [Leaves::AfterText, Leaves::BeforeTheHead, Leaves::AfterText, Leaves::HalfClosed];
    for batch in 0..count / AT_ONCE {
        let all = (0..AT_ONCE).map(|n| abandon(address, key, ways[(batch + n) % ways.len()]));
        futures_util::future::join_all(all).await;
    }
}

#[tokio::test]
async fn no_place_stays_taken() {
    let served = Served::with(
        Setup::default(),
        talaria::server::ServerSettings { runs: (AT_ONCE, AT_ONCE), ..settings() },
    )
    .await;
    let turns = served.gateway.server().turns.clone();
    for _ in 0..4 {
        let scripts: Vec<_> = (0..AT_ONCE).map(|_| served.agent().says(["Hel"]).then_hangs()).collect();
        let mut streams = Vec::new();
        for _ in 0..AT_ONCE {
            // Exactly as many as allowed are accepted, so the places of the last round are free again.
            let answer = served.post(CHAT, &asks()).await;
            assert_eq!(answer.status(), 200);
            let mut stream = Stream::of(answer);
            stream.until_text("Hel").await;
            streams.push(stream);
        }
        assert_eq!(served.post(CHAT, &asks()).await.status(), 429);
        drop(streams);
        turns.idle().await;
        assert_eq!(turns.open_logs(), 0);
        assert!(scripts.iter().all(|script| script.was_told_to_stop()));
    }
}

/// Waits until the process has no more files open than this.
async fn settles(process: &Process, files: usize) {
    let since = Instant::now();
    while process.open_files() > files {
        assert!(since.elapsed() < PATIENCE, "{} files, {files} before", process.open_files());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn files_and_memory_are_as_before() {
    let upstream = Upstream::plain().await;
    let hangs = || Answer::stream().sends(delta("Hel")).hangs();
    let talaria =
        Talaria::to(&upstream).var("API_SERVER_PORT", "0").var("API_SERVER_KEY", KEY).args(["serve"]);
    let mut process = talaria.starts();
    let address = process.serves().await;
    let idle = process.open_files();
    // Fills things that are made once and kept: threads, buffers, prepared statements.
    for _ in 0..4 * AT_ONCE {
        upstream.answers(hangs());
    }
    abandon_many(&address, KEY, 4 * AT_ONCE).await;
    settles(&process, idle + 16).await;
    let (files, memory) = (process.open_files(), process.memory());

    let count = how_many();
    for _ in 0..count {
        upstream.answers(hangs());
    }
    abandon_many(&address, KEY, count).await;
    settles(&process, files).await;
    let now = process.memory();
    let grown = now.saturating_sub(memory);
    assert!(grown < 8 * 1024 * 1024 + count * 2048, "{now} bytes after {count} streams, {memory} before");

    let client = Client::builder().no_proxy().build().unwrap();
    let metrics = client.get(format!("{address}/metrics")).bearer_auth(KEY).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let open: Vec<_> = metrics
        .lines()
        .filter(|line| line.contains("streams_open") || line.contains("readers_open"))
        .collect();
    assert!(open.iter().all(|line| line.starts_with('#') || line.ends_with(" 0")), "{open:?}");
    process.signal(rustix::process::Signal::TERM);
    assert_eq!(process.ended().await.code, 0);
}
