//! The client over pipes, with a peer that each test plays itself.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::peer_process::PeerProcess;
use super::*;

/// Deadline of calls that are answered.
const SOON: Duration = Duration::from_secs(20);

/// The other end of a connection.
struct TestPeer {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl TestPeer {
    /// The next message of ours; `None` at the end.
    async fn reads(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await.unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    async fn says(&mut self, message: Value) {
        self.writes(format!("{message}\n").as_bytes()).await;
    }

    async fn writes(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.unwrap();
    }
}

fn connect(dialect: RpcDialect, limits: RpcLimits) -> (RpcClient, RpcIncoming, TestPeer) {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (from_peer, to_peer) = tokio::io::split(ours);
    let (client, incoming) = RpcClient::over(from_peer, to_peer, PeerProcess::only_pipes(), dialect, limits);
    let (reader, writer) = tokio::io::split(theirs);
    (client, incoming, TestPeer { reader: BufReader::new(reader), writer })
}

fn bare() -> (RpcClient, RpcIncoming, TestPeer) {
    connect(RpcDialect::Bare, RpcLimits::default())
}

fn calling(client: &RpcClient, method: &'static str) -> tokio::task::JoinHandle<Result<RpcAnswer, RpcError>> {
    let client = client.clone();
    spawn_task("call", async move { client.call(method, Value::Null, SOON).await })
}

#[tokio::test]
async fn an_answer_tells_which_messages_came_before_it() {
    let (client, mut incoming, mut peer) = bare();
    let call = calling(&client, "thread/start");
    assert_eq!(peer.reads().await, Some(json!({ "id": 1, "method": "thread/start" })));
    peer.says(json!({ "method": "a", "params": { "n": 1 } })).await;
    peer.says(json!({ "id": 1, "method": "ask" })).await;
    peer.says(json!({ "id": 1, "result": { "thread": "t" } })).await;
    peer.says(json!({ "method": "b" })).await;
    let answer = call.await.unwrap().unwrap();
    assert_eq!((answer.result, answer.position), (json!({ "thread": "t" }), 2));
    let message = |position, method: &str, params, request| IncomingMessage {
        position,
        method: method.to_owned(),
        params,
        request,
    };
    assert_eq!(incoming.next().await, Some(message(0, "a", json!({ "n": 1 }), None)));
    let asked = incoming.next().await.unwrap();
    assert_eq!(asked, message(1, "ask", Value::Null, Some(RequestId::Number(1))));
    assert_eq!(incoming.next().await, Some(message(2, "b", Value::Null, None)));
    client.reply(RequestId::Number(1), Ok(json!("yes"))).await.unwrap();
    assert_eq!(peer.reads().await, Some(json!({ "id": 1, "result": "yes" })));
}

#[tokio::test]
async fn the_strict_dialect_names_its_version_and_reads_messages_without_it() {
    let (client, mut incoming, mut peer) = connect(RpcDialect::Strict, RpcLimits::default());
    client.notify("hello", Some(json!({}))).await.unwrap();
    assert_eq!(peer.reads().await, Some(json!({ "jsonrpc": "2.0", "method": "hello", "params": {} })));
    peer.says(json!({ "method": "a" })).await;
    assert_eq!(incoming.next().await.unwrap().method, "a");
}

#[tokio::test]
async fn a_fault_of_the_peer_reaches_its_caller() {
    let (client, _incoming, mut peer) = bare();
    let call = calling(&client, "turn/start");
    peer.reads().await;
    peer.says(json!({ "id": 1, "error": { "code": -32001, "message": "busy" } })).await;
    assert_eq!(call.await.unwrap(), Err(RpcError::Fault(RpcFault::new(-32_001, "busy"))));
}

#[tokio::test]
async fn noise_is_skipped_and_counted_and_never_answered() {
    let limits = RpcLimits { line_bytes: 10_000, ..RpcLimits::default() };
    let (client, mut incoming, mut peer) = connect(RpcDialect::Bare, limits);
    let long = format!("{{\"method\":\"long\",\"params\":\"{}\"}}\n", "x".repeat(100_000));
    let noise = ["Welcome!\n", "\n", "{\"half\":\n", "[1,\"a\"]\n", "\"x\"\n", "{}\n", &long];
    peer.writes(noise.concat().as_bytes()).await;
    peer.writes(b"\xff\xfe\n{\"method\":\"bad\xff\",\"params\":\"\xc3\"}\r\n").await;
    peer.says(json!({ "id": 99, "result": 1 })).await;
    peer.says(json!({ "id": null, "error": { "code": -32700, "message": "what?" } })).await;
    peer.says(json!({ "method": "end" })).await;
    let repaired = incoming.next().await.unwrap();
    assert_eq!((&*repaired.method, &repaired.params), ("bad\u{fffd}", &json!("\u{fffd}")));
    let last = incoming.next().await.unwrap();
    assert_eq!((&*last.method, last.position), ("end", 1));
    assert_eq!(client.noise(), 8);
    client.notify("only this", None).await.unwrap();
    assert_eq!(peer.reads().await, Some(json!({ "method": "only this" })));
}

#[tokio::test]
async fn a_peer_that_sends_only_noise_is_broken_off() {
    let limits = RpcLimits { line_bytes: 1_000, noise_bytes: 100_000, ..RpcLimits::default() };
    for chunk in [&b"xxxxxxxx"[..], b"\n\n\n\n", b"noise\n"] {
        let (client, mut incoming, mut peer) = connect(RpcDialect::Bare, limits);
        let call = calling(&client, "initialize");
        let writing = spawn_task("babble", async move {
            peer.reads().await;
            while peer.writer.write_all(chunk).await.is_ok() {}
        });
        assert!(incoming.next().await.is_none());
        let failure = client.gone().await;
        assert_eq!(failure.cause, Some(BreakCause::Noise));
        assert_eq!(call.await.unwrap(), Err(RpcError::Gone(failure)));
        drop((client, incoming));
        writing.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_deadline_and_its_late_answer_is_ignored() {
    let (client, _incoming, mut peer) = bare();
    let late = client.call("slow", Value::Null, Duration::from_secs(5)).await;
    assert_eq!(late, Err(RpcError::Deadline));
    let call = calling(&client, "quick");
    assert_eq!(peer.reads().await.unwrap()["id"], 1);
    assert_eq!(peer.reads().await.unwrap()["id"], 2);
    peer.says(json!({ "id": 1, "result": "late" })).await;
    peer.says(json!({ "id": 2, "result": "quick" })).await;
    assert_eq!(call.await.unwrap().unwrap().result, "quick");
}

#[tokio::test]
async fn the_end_of_the_peer_fails_every_call_and_ends_the_queue() {
    let (client, mut incoming, mut peer) = bare();
    let calls = [calling(&client, "a"), calling(&client, "b")];
    peer.reads().await;
    peer.reads().await;
    peer.writes(b"{\"method\":\"last\"}").await;
    drop(peer);
    for call in calls {
        assert!(matches!(call.await.unwrap(), Err(RpcError::Gone(_))));
    }
    assert_eq!(incoming.next().await.unwrap().method, "last");
    assert!(incoming.next().await.is_none() && client.is_gone());
    assert!(matches!(client.call("c", Value::Null, SOON).await, Err(RpcError::Gone(_))));
    assert!(matches!(client.notify("d", None).await, Err(RpcError::Gone(_))));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_stops_the_reader_until_somebody_takes_from_it() {
    let limits = RpcLimits { queue: 4, ..RpcLimits::default() };
    let (client, mut incoming, mut peer) = connect(RpcDialect::Bare, limits);
    let flood = async move {
        for n in 0..10_000 {
            peer.says(json!({ "method": "flood", "params": n })).await;
        }
        peer
    };
    let mut flooding = spawn_task("flood", flood);
    // The clock moves only when nobody can go on.
    assert!(tokio::time::timeout(SOON, &mut flooding).await.is_err());
    assert_eq!(client.core.link.incoming.position(), 4);
    for n in 0..10_000 {
        assert_eq!(incoming.next().await.unwrap().params, n);
    }
    drop(flooding.await.unwrap());
    assert!(incoming.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_behind_a_full_queue_is_found_within_twice_the_limit() {
    let limits = RpcLimits { queue: 4, ..RpcLimits::default() };
    let (client, mut incoming, mut peer) = connect(RpcDialect::Bare, limits);
    let call = calling(&client, "a");
    peer.reads().await;
    for n in 0..8 {
        peer.says(json!({ "method": "flood", "params": n })).await;
    }
    peer.says(json!({ "id": 1, "result": "here" })).await;
    let RpcAnswer { result, position, .. } = call.await.unwrap().unwrap();
    assert_eq!((result, position), (json!("here"), 8));

    // Nine more than that hide it, until the deadline.
    let call = calling(&client, "b");
    peer.reads().await;
    peer.says(json!({ "method": "flood", "params": 8 })).await;
    peer.says(json!({ "id": 2, "result": "hidden" })).await;
    assert_eq!(call.await.unwrap(), Err(RpcError::Deadline));
    for n in 0..=8 {
        assert_eq!(incoming.next().await.unwrap().params, n);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_fill_the_queue_too_and_one_long_line_always_fits() {
    let limits = RpcLimits { queue_bytes: 100, ..RpcLimits::default() };
    let (client, mut incoming, mut peer) = connect(RpcDialect::Bare, limits);
    let writing = async move {
        for _ in 0..3 {
            peer.says(json!({ "method": "long", "params": "x".repeat(200) })).await;
        }
        // Nobody reads any more when the test ends.
        let _ = peer.writer.write_all(&[b' '; 10_000]).await;
    };
    let mut writing = spawn_task("long", writing);
    assert!(tokio::time::timeout(SOON, &mut writing).await.is_err());
    assert_eq!(client.core.link.incoming.position(), 1);
    for _ in 0..3 {
        assert_eq!(incoming.next().await.unwrap().method, "long");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_dropped_when_their_consumer_is_gone_and_calls_go_on() {
    let limits = RpcLimits { queue: 2, ..RpcLimits::default() };
    let (client, incoming, mut peer) = connect(RpcDialect::Bare, limits);
    drop(incoming);
    let call = calling(&client, "a");
    peer.reads().await;
    for _ in 0..1_000 {
        peer.says(json!({ "method": "flood" })).await;
    }
    peer.says(json!({ "id": 1, "result": 1 })).await;
    assert_eq!(call.await.unwrap().unwrap().position, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_hangs_nobody() {
    let (client, _incoming, peer) = bare();
    let stuck = client.call("large", json!("x".repeat(100_000)), Duration::from_secs(10)).await;
    assert_eq!(stuck, Err(RpcError::Deadline));
    // Its line is half written; others wait behind it, and are not written once they are given up.
    assert_eq!(client.call("behind", Value::Null, Duration::from_secs(10)).await, Err(RpcError::Deadline));
    let sent = client.notify("n", None).await;
    assert!(matches!(sent, Err(RpcError::Gone(_))), "{sent:?}");
    assert_eq!(client.gone().await.cause, Some(BreakCause::NotReading));
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_is_never_written() {
    let (client, _incoming, mut peer) = bare();
    let large = {
        let client = client.clone();
        spawn_task("large", async move { client.call("large", json!("x".repeat(100_000)), SOON).await })
    };
    tokio::task::yield_now().await;
    assert_eq!(client.call("behind", Value::Null, Duration::from_secs(1)).await, Err(RpcError::Deadline));
    let after = calling(&client, "after");
    for method in ["large", "after"] {
        assert_eq!(peer.reads().await.unwrap()["method"], method);
    }
    large.abort();
    after.abort();
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_before_it_is_sent() {
    let limits = RpcLimits { line_bytes: 1_000, ..RpcLimits::default() };
    let (client, _incoming, mut peer) = connect(RpcDialect::Bare, limits);
    let refused = client.call("large", json!("x".repeat(1_000)), SOON).await;
    assert!(matches!(refused, Err(RpcError::TooLarge { limit: 1_000, .. })), "{refused:?}");
    let refused = client.reply(RequestId::Number(1), Ok(json!("x".repeat(1_000)))).await;
    assert!(matches!(refused, Err(RpcError::TooLarge { limit: 1_000, .. })), "{refused:?}");
    client.notify("small", None).await.unwrap();
    assert_eq!(peer.reads().await.unwrap()["method"], "small");
}

#[tokio::test(start_paused = true)]
async fn the_last_client_that_is_dropped_closes_the_connection() {
    let (client, mut incoming, mut peer) = bare();
    let other = client.clone();
    drop(client);
    other.notify("still here", None).await.unwrap();
    assert!(peer.reads().await.is_some());
    drop(other);
    assert_eq!(peer.reads().await, None);
    assert!(incoming.next().await.is_none());
}
