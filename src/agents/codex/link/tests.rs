//! A turn that codex begins by itself is ended, and nothing else is. The test plays codex over pipes.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::*;
use crate::agents::codex::wire::EffectivePolicy;

const THREAD: &str = "thread";

/// A link with an idle thread, and its peer.
struct LinkScene {
    link: Arc<CodexLink>,
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl LinkScene {
    fn new() -> Self {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (from_peer, to_peer) = tokio::io::split(ours);
        let (rpc, _) = RpcClient::piped(from_peer, to_peer);
        let (reader, writer) = tokio::io::split(theirs);
        let link = CodexLink::new(rpc, None, Arc::default());
        link.add_thread(THREAD, LoadedThread::new(EffectivePolicy::default(), 0));
        Self { link, reader: BufReader::new(reader), writer }
    }

    /// Codex tells this about a turn.
    fn hears(&self, method: &str, turn: &str) {
        self.link.observe(&IncomingMessage {
            position: 0,
            method: method.to_owned(),
            params: json!({ "threadId": THREAD, "turn": { "id": turn } }),
            request: None,
            bytes: 0,
        });
    }

    /// The next call that codex gets.
    async fn reads(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Codex gets this call next, and answers it with nothing.
    async fn answers(&mut self, method: &str) -> Value {
        let call = self.reads().await;
        assert_eq!(call["method"], method);
        let answer = json!({ "id": call["id"], "result": {} });
        self.writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        call["params"].clone()
    }

    /// Codex gets no call before one that is made now.
    async fn has_nothing_to_read(&mut self) {
        let link = self.link.clone();
        let last = spawn_task("last", async move { link.call("last", Value::Null).await });
        self.answers("last").await;
        last.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_foreign_turn_that_has_ended_by_itself_ends_no_commands_of_earlier_turns() {
    let mut scene = LinkScene::new();
    scene.hears("turn/started", "own");
    scene.hears("turn/completed", "own");
    scene.has_nothing_to_read().await;
}

#[tokio::test]
async fn a_foreign_turn_that_has_ended_by_itself_takes_ours_not_with_it() {
    let mut scene = LinkScene::new();
    scene.hears("turn/started", "own");
    scene.hears("turn/completed", "own");
    scene.link.change_thread(THREAD, LoadedThread::start_turn);
    scene.has_nothing_to_read().await;
    assert_eq!(scene.link.thread(THREAD).unwrap().active, Some(ActiveTurn::Starting(None)));
}

#[tokio::test]
async fn a_foreign_turn_that_runs_is_ended_by_its_id_and_its_commands_with_it() {
    let mut scene = LinkScene::new();
    scene.hears("turn/started", "own");
    let interrupted = scene.answers("turn/interrupt").await;
    assert_eq!(interrupted, json!({ "threadId": THREAD, "turnId": "own" }));
    scene.hears("turn/completed", "own");
    scene.answers("thread/backgroundTerminals/clean").await;
    scene.has_nothing_to_read().await;
}

#[tokio::test(start_paused = true)]
async fn our_turn_that_begins_right_behind_an_interrupted_foreign_one_goes_on() {
    let mut scene = LinkScene::new();
    scene.hears("turn/started", "own");
    scene.answers("turn/interrupt").await;
    scene.hears("turn/completed", "own");
    scene.link.change_thread(THREAD, LoadedThread::start_turn);
    tokio::time::sleep(INTERRUPT_WAIT * 2).await;
    assert!(!scene.link.is_stuck(), "it is not waited for as if it were the foreign one");
    scene.has_nothing_to_read().await;
}
