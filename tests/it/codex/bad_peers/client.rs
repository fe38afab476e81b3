//! The line client alone, with a process at the other end.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use talaria::agents::jsonrpc::{
    BreakCause, IncomingMessage, ProcessFailure, RequestId, RpcClient, RpcDialect, RpcError, RpcIncoming,
    RpcLimits,
};
use talaria::agents::process::{EndPatience, ProcessHost, ProcessSpec, StdinMode, count_children};
use tempfile::TempDir;

use super::{is_frugal, peak_memory};
use crate::codex::scripted_peer::{Act, Scenario, ScriptedAnswer, ScriptedCodex};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a scripted process.
struct Connected {
    codex: ScriptedCodex,
    client: RpcClient,
    incoming: RpcIncoming,
    home: TempDir,
}

impl Connected {
    fn to(scenario: &Scenario) -> Self {
        Self::with(scenario, RpcLimits::default())
    }

    fn with(scenario: &Scenario, limits: RpcLimits) -> Self {
        let (codex, home) = (ScriptedCodex::new(scenario), tempfile::tempdir().unwrap());
        let host = ProcessHost::new(home.path()).with_shim(env!("CARGO_BIN_EXE_talaria"));
        let pause = Duration::from_millis(500);
        let process = host.spawn(ProcessSpec {
            program: codex.command().into(),
            args: vec!["app-server".into()],
            env: std::env::var_os("PATH").map(|path| ("PATH".into(), path)).into_iter().collect(),
            cwd: home.path().to_owned(),
            stdin: StdinMode::Piped,
            patience: EndPatience { after_eof: pause, after_term: pause },
        });
        let (client, incoming) = RpcClient::start(process.unwrap(), RpcDialect::Bare, limits);
        Self { codex, client, incoming, home }
    }

    async fn calls(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        self.client.call(method, params, PATIENCE).await.map(|answer| answer.result)
    }

    /// Shakes hands and opens a thread.
    async fn opens_thread(&self) -> String {
        self.calls("initialize", json!({})).await.unwrap();
        self.client.notify("initialized", None).await.unwrap();
        let opened = self.calls("thread/start", json!({ "cwd": "/" })).await.unwrap();
        opened["thread"]["id"].as_str().unwrap().to_owned()
    }

    async fn starts_turn(&self, thread: &str, words: &str) -> Result<Value, RpcError> {
        let input = json!([{ "type": "text", "text": words }]);
        self.calls("turn/start", json!({ "threadId": thread, "input": input })).await
    }

    /// Takes messages until one with this method comes.
    async fn takes(&mut self, method: &str) -> IncomingMessage {
        let taking = async {
            loop {
                let message = self.incoming.next().await.expect("a living process");
                if message.method == method {
                    return message;
                }
            }
        };
        tokio::time::timeout(PATIENCE, taking).await.expect("it comes")
    }

    /// Takes everything until the process is gone.
    async fn is_gone(&mut self) -> ProcessFailure {
        let taking = async { while self.incoming.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, taking).await.expect("it ends");
        self.client.gone().await
    }

    async fn ends(self) {
        self.client.end().await;
        nobody_is_left(self.home.path());
    }
}

fn nobody_is_left(home: &Path) {
    assert_eq!(count_children(home), 0, "no process is left");
}

#[tokio::test]
async fn a_turn_with_an_approval_is_played_to_its_end() {
    let scenario = Scenario::default().turn(
        "list",
        [
            Act::Thinks("**Looking**".to_owned()),
            Act::runs_if_allowed("ls", "notes.txt\n"),
            Act::waits("listed"),
            Act::says(&["There are ", "notes."]),
        ],
    );
    let mut connected = Connected::to(&scenario);
    let thread = connected.opens_thread().await;
    connected.starts_turn(&thread, "list my files").await.unwrap();
    let asked = connected.takes("item/commandExecution/requestApproval").await;
    assert_eq!(asked.params["command"], "/bin/bash -lc 'ls'");
    assert_eq!(connected.codex.ran(), Vec::<String>::new());
    let id = asked.request.unwrap();
    // The first id of the process: ours were the same.
    assert_eq!(id, RequestId::Number(0));
    connected.client.reply(id, Ok(json!({ "decision": "accept" }))).await.unwrap();
    connected.codex.reached("listed").await;
    assert_eq!(connected.codex.ran(), ["ls"]);
    connected.codex.opens("listed");
    assert_eq!(connected.takes("item/agentMessage/delta").await.params["delta"], "There are ");
    let completed = connected.takes("turn/completed").await.params;
    assert_eq!(completed["turn"]["status"], "completed");
    assert_eq!(completed["turn"]["items"][0]["text"], "There are notes.");
    assert_eq!(connected.codex.received("turn/start").len(), 1);
    assert_eq!(connected.codex.answers(), [json!({ "id": 0, "result": { "decision": "accept" } })]);
    connected.ends().await;
}

#[tokio::test]
async fn an_interrupted_turn_ends_and_cannot_be_interrupted_again() {
    let scenario = Scenario::default().turn("wait", [Act::says_half(&["Let me "]), Act::Hangs]);
    let mut connected = Connected::to(&scenario);
    let thread = connected.opens_thread().await;
    let resumed = connected.calls("thread/resume", json!({ "threadId": thread })).await;
    assert!(matches!(resumed, Err(RpcError::Fault(fault)) if fault.message.contains("no rollout found")));
    let turn = connected.starts_turn(&thread, "wait").await.unwrap()["turn"]["id"].clone();
    connected.takes("item/agentMessage/delta").await;
    connected.calls("turn/interrupt", json!({ "threadId": thread, "turnId": turn })).await.unwrap();
    assert_eq!(connected.takes("turn/completed").await.params["turn"]["status"], "interrupted");
    let again = connected.calls("turn/interrupt", json!({ "threadId": thread, "turnId": turn })).await;
    assert!(matches!(again, Err(RpcError::Fault(fault)) if fault.message == "no active turn to interrupt"));
    connected.client.end().await;
    nobody_is_left(connected.home.path());
}

#[tokio::test]
async fn noise_between_messages_is_skipped_and_bad_bytes_are_repaired() {
    let delta = br#"{"method":"item/agentMessage/delta","params":{"threadId":"$thread","delta":"caf"#;
    let broken = [&delta[..], b"\xc3\"}}\n"].concat();
    let scenario = Scenario::default()
        .starting([Act::writes(*b"Welcome to codex!\n\n\xff\xfe\n{\"half\": \n[1, 2]\n\"x\"\n{}\n")])
        .initializing([Act::writes(*b"Loading...\r\n")])
        .turn("hello", [Act::Writes(broken), Act::LongLine(9_000_000), Act::says(&["Hi."])]);
    let mut connected = Connected::to(&scenario);
    let thread = connected.opens_thread().await;
    connected.starts_turn(&thread, "hello").await.unwrap();
    assert_eq!(connected.takes("item/agentMessage/delta").await.params["delta"], "caf\u{fffd}");
    assert_eq!(connected.takes("item/agentMessage/delta").await.params["delta"], "Hi.");
    connected.takes("turn/completed").await;
    // Some more come from the test harness, which is between us.
    assert!(connected.client.noise() >= 9, "{}", connected.client.noise());
    let unreadable = |entry: &_| matches!(entry, crate::codex::scripted_peer::LogEvent::Unreadable(_));
    assert!(!connected.codex.log().iter().any(|entry| unreadable(&entry.event)));
    assert_eq!(connected.codex.answers(), Vec::<Value>::new(), "noise is never answered");
    connected.ends().await;
}

#[tokio::test]
async fn megabyte_lines_within_the_limit_arrive_and_longer_ones_cost_no_memory() {
    let long: Vec<Act> =
        (0..8).flat_map(|_| [Act::LongMessage(20_000_000), Act::LongMessage(1_000_000)]).collect();
    let scenario = Scenario::default().turn("hello", long);
    let mut connected = Connected::to(&scenario);
    let before = peak_memory();
    let thread = connected.opens_thread().await;
    connected.starts_turn(&thread, "hello").await.unwrap();
    for _ in 0..8 {
        let message = connected.takes("scripted/flood").await;
        assert_eq!(message.params["padding"].as_str().unwrap().len(), 1_000_000);
    }
    connected.takes("turn/completed").await;
    is_frugal(before);
    connected.ends().await;
}

#[tokio::test]
async fn an_endless_line_and_endless_noise_end_the_process_and_cost_no_memory() {
    for act in [Act::EndlessLine, Act::EndlessNoise] {
        let scenario = Scenario::default().turn("hello", [act.clone()]);
        let limits = RpcLimits { noise_bytes: 64 * 1024 * 1024, ..RpcLimits::default() };
        let mut connected = Connected::with(&scenario, limits);
        let before = peak_memory();
        let thread = connected.opens_thread().await;
        connected.starts_turn(&thread, "hello").await.unwrap();
        let failure = connected.is_gone().await;
        assert_eq!(failure.cause, Some(BreakCause::Noise), "{act:?}");
        assert!(matches!(connected.starts_turn(&thread, "again").await, Err(RpcError::Gone(_))));
        is_frugal(before);
        nobody_is_left(connected.home.path());
    }
}

#[tokio::test]
async fn a_flood_that_nobody_takes_waits_in_the_pipe_and_nothing_of_it_is_lost() {
    let scenario = Scenario::default().turn("hello", [Act::Floods(50_000), Act::says(&["Done."])]);
    let mut connected = Connected::to(&scenario);
    let before = peak_memory();
    let thread = connected.opens_thread().await;
    connected.starts_turn(&thread, "hello").await.unwrap();
    // The flood has filled everything when the answer to this is not found any more.
    let soon = Duration::from_millis(500);
    while connected.client.call("account/read", Value::Null, soon).await != Err(RpcError::Deadline) {}
    let first = connected.takes("scripted/flood").await.position;
    for _ in 1..49_999 {
        connected.incoming.next().await.unwrap();
    }
    let last = connected.takes("scripted/flood").await.position;
    assert_eq!(last - first, 49_999);
    connected.takes("turn/completed").await;
    connected.calls("account/read", Value::Null).await.unwrap();
    is_frugal(before);
    connected.ends().await;
}

#[tokio::test]
async fn silence_at_initialize_ends_by_the_deadline_and_the_process_ends_in_order() {
    let silent = Scenario::default().always("initialize", ScriptedAnswer::Silence);
    let deaf = Scenario::default().starting([Act::Hangs]);
    for scenario in [silent, deaf] {
        let connected = Connected::to(&scenario);
        let answer = connected.client.call("initialize", json!({}), Duration::from_millis(300)).await;
        assert_eq!(answer, Err(RpcError::Deadline));
        connected.ends().await;
    }
}

#[tokio::test]
async fn an_early_end_is_told_with_its_status_and_its_last_words() {
    let at_start = Scenario::default().starting([Act::exits(3, "error: cannot read config.toml\n")]);
    let at_hello = Scenario::default().initializing([Act::exits(3, "error: cannot read config.toml\n")]);
    for scenario in [at_start, at_hello] {
        let mut connected = Connected::to(&scenario);
        let Err(RpcError::Gone(failure)) = connected.calls("initialize", json!({})).await else {
            panic!("it is gone");
        };
        assert_eq!((failure.exit.code, failure.cause), (Some(3), None));
        assert!(failure.stderr.contains("error: cannot read config.toml"), "{failure:?}");
        assert_eq!(connected.is_gone().await, failure);
        nobody_is_left(connected.home.path());
    }
}

#[tokio::test]
async fn a_process_that_dies_in_a_turn_fails_its_calls_after_its_last_messages() {
    let scenario = Scenario::default().turn("hello", [Act::says(&["Half"]), Act::waits("die"), Act::Dies]);
    let mut connected = Connected::to(&scenario);
    let thread = connected.opens_thread().await;
    connected.starts_turn(&thread, "hello").await.unwrap();
    connected.codex.reached("die").await;
    connected.codex.plays(&Scenario::default().always("account/read", ScriptedAnswer::Silence));
    let waiting = {
        let client = connected.client.clone();
        tokio::spawn(async move { client.call("account/read", Value::Null, PATIENCE).await })
    };
    connected.codex.receives("account/read").await;
    connected.codex.opens("die");
    let Err(RpcError::Gone(failure)) = waiting.await.unwrap() else { panic!("it is gone") };
    assert_eq!(failure.exit.code, Some(128 + 9));
    assert_eq!(connected.takes("item/agentMessage/delta").await.params["delta"], "Half");
    assert_eq!(connected.is_gone().await, failure);
    nobody_is_left(connected.home.path());
}

#[tokio::test]
async fn a_process_that_closes_its_output_is_as_good_as_silent() {
    // The shim holds the pipe too, so its end does not come before the end of the process.
    let scenario = Scenario::default().initializing([Act::ClosesOutput]);
    let connected = Connected::to(&scenario);
    let answer = connected.client.call("initialize", json!({}), Duration::from_secs(1)).await;
    assert_eq!(answer, Err(RpcError::Deadline));
    connected.ends().await;
}

#[tokio::test]
async fn a_process_that_does_not_read_hangs_neither_calls_nor_the_end() {
    let scenario = Scenario::default().initializing([Act::StopsReading]);
    let connected = Connected::to(&scenario);
    connected.calls("initialize", json!({})).await.unwrap();
    let large = json!("x".repeat(1_000_000));
    let soon = Duration::from_millis(300);
    for _ in 0..3 {
        let stuck = connected.client.call("turn/start", large.clone(), soon).await;
        assert_eq!(stuck, Err(RpcError::Deadline));
    }
    connected.ends().await;
}
