//! Turns that a person ends, or the end of the process.

use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::OpenFlags;
use rustix::process::Signal;
use talaria::agent::{
    Agent as _, AgentError, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, SessionMessage, TurnEnd,
    TurnEvent,
};
use talaria::agents::proxy::ProxyAgent;
use talaria::config::{AgentSettings, Config, ConfigSources};
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria_platform::{BoxFuture, CancellationToken};

use crate::support::binary::Talaria;
use crate::support::network::{Network, Shown};
use crate::support::upstream::{Answer, DONE, Gate, Nobody, Upstream, delta, event};

/// Longest wait of a test. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Defect 15.
#[tokio::test]
async fn a_signal_during_a_stream_keeps_the_text() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::stream().sends(delta("Half an answer")).hangs());
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    process.types("hi\n");
    process.shows("Half an answer").await;
    process.signal(Signal::TERM);
    process.ended().await.failed_with("Half an answer\n").said("(stopped)\n");
}

#[tokio::test]
async fn a_run_that_can_be_resumed_goes_on_in_the_next_process() {
    let upstream = Upstream::idempotent().await;
    upstream.answers(Answer::stream().sends(delta("Half an answer")).hangs());
    let talaria = Talaria::to(&upstream);
    let network = Network::listen(talaria.home());
    let test = format!("socket: {}, access: {{people: ['@ann:test']}}", network.socket().display());
    talaria.rewrites_config(format!("platforms: {{test: {{{test}}}}}\n"));
    let process = talaria.starts();
    assert!(network.is_read(PATIENCE, 1).await);
    network.says_as("@ann:test", "!home", true, "hi");
    is_kept(&talaria, "Half an answer").await;
    process.signal(Signal::TERM);
    process.ended().await;

    upstream.answers(Answer::says(["Half an answer", " and the rest."]));
    let _process = talaria.starts();
    let whole = |shown: &Shown| shown.body().markdown == "Half an answer and the rest.";
    assert!(
        network.shows(PATIENCE, |messages| messages.iter().any(whole)).await,
        "{:#?}",
        network.messages()
    );
    let prompts = upstream.prompts();
    assert_eq!(prompts.len(), 2);
    assert_eq!(prompts[0].body, prompts[1].body);
    assert_eq!(prompts[0].header("idempotency-key"), prompts[1].header("idempotency-key"));
}

/// The next pipe has another reader, who asked something else.
#[tokio::test]
async fn what_a_pipe_asked_ends_with_it_however_it_ends() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let upstream = Upstream::idempotent().await;
        let headers = [("content-type", "text/event-stream"), ("x-hermes-run-id", "run-7")];
        upstream.answers(Answer::stream_with(&headers).sends(delta("Half an answer")).hangs());
        let talaria = Talaria::to(&upstream);
        let mut process = talaria.starts();
        process.types("hi\n");
        process.shows("Half an answer").await;
        process.signal(signal);
        let ended = process.ended().await;
        if signal != Signal::KILL {
            ended.failed_with("Half an answer\n").said("(stopped)\n");
            upstream.has_requests("/v1/runs/run-7/stop", 1).await;
        }
        upstream.answers(Answer::says(["Fine."]));
        let next = talaria.reads("and now?\n").await;
        next.showed("Fine.\n");
        assert!(!next.err.contains("Half") && !next.err.contains("interrupted —"), "{}", next.err);
        let asked: Vec<_> = upstream
            .prompts()
            .iter()
            .map(|prompt| String::from_utf8_lossy(&prompt.body).contains("and now?"))
            .collect();
        assert_eq!(asked, [false, true], "{signal:?}");
    }
}

/// Also ends if the request is about to be repeated.
#[tokio::test]
async fn what_a_pipe_asked_ends_at_the_upstream_too_when_it_was_cut_off() {
    let upstream = Upstream::idempotent().await;
    let headers = [("content-type", "text/event-stream"), ("x-hermes-run-id", "run-7")];
    upstream.answers(Answer::stream_with(&headers).sends(delta("Half an answer")).resets());
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    process.types("hi\n");
    process.logs("a try failed").await;
    process.signal(Signal::INT);
    process.ended().await;
    upstream.has_requests("/v1/runs/run-7/stop", 1).await;
}

/// Also ends a prompt that has not begun, because the agent is away.
#[tokio::test]
async fn what_a_pipe_asked_of_nobody_is_not_asked_by_the_next_one() {
    let nobody = Nobody::new();
    let talaria = Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url());
    let mut process = talaria.starts();
    process.types("hi\n");
    process.logs("a try failed").await;
    process.signal(Signal::INT);
    process.ended().await.failed_with("");
    let upstream = nobody.becomes_an_upstream();
    upstream.answers(Answer::says(["Fine."]));
    talaria.reads("and now?\n").await.showed("Fine.\n");
    assert_eq!(upstream.prompts().len(), 1);
}

/// Defect 8.
#[tokio::test]
async fn stopping_does_not_wait_for_a_silent_server() {
    for (upstream, told) in [(Upstream::plain().await, 0), (Upstream::idempotent().await, 1)] {
        let headers = [("content-type", "text/event-stream"), ("x-hermes-run-id", "run-7")];
        upstream.answers(Answer::stream_with(&headers).sends(delta("Let me ")).hangs());
        let (proxy, out, stop) = (proxy(&upstream), Heard::default(), CancellationToken::new());
        let turn = turn();
        let prepared = proxy.prepare(&turn).await.unwrap();
        let running = proxy.run_turn(&turn, prepared.clone(), &out, stop.clone());
        let stopping = async {
            out.has("Let me ").await;
            stop.cancel();
        };
        let both = async { tokio::join!(running, stopping).0 };
        let end = tokio::time::timeout(Duration::from_secs(20), both).await.expect("it should end at once");
        assert_eq!(end, Ok(TurnEnd::Stopped));
        // The person does not wait for this request, so it comes a moment later.
        upstream.has_requests("/v1/runs/run-7/stop", told).await;
    }
}

/// Half an answer must not pass for a whole one, whatever finish reason comes with it.
#[tokio::test]
async fn a_run_that_was_stopped_elsewhere_is_not_shown_as_complete() {
    for reason in [Some("stop"), Some("error"), Some("length"), None] {
        let upstream = Upstream::idempotent().await;
        let end = serde_json::json!({
            "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }],
            "hermes": { "run_id": "run_1", "status": "cancelled", "text": "Half" },
        });
        let error = match reason {
            Some(_) => String::new(),
            None => event(&serde_json::json!({ "error": { "code": 502, "outcome": "cancelled" } })),
        };
        upstream.answers(Answer::events(delta("Half") + &*event(&end) + &*error + DONE));
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended
            .failed_with("Half\n")
            .said("(cut short: it was stopped at the agent server; /retry asks again)\n");
    }
}

/// The run has no name until the server answers; as soon as it does, it gets the stop.
#[tokio::test]
async fn a_stop_before_the_server_answers_reaches_the_run_when_it_has_begun() {
    let (upstream, gate) = (Upstream::idempotent().await, Gate::new());
    let headers = [("content-type", "text/event-stream"), ("x-hermes-run-id", "run-7")];
    upstream.answers(Answer::bytes("").waits(&gate).then(Answer::stream_with(&headers).hangs()));
    let (proxy, out, stop) = (proxy(&upstream), Heard::default(), CancellationToken::new());
    let turn = turn();
    let prepared = proxy.prepare(&turn).await.unwrap();
    let running = proxy.run_turn(&turn, prepared.clone(), &out, stop.clone());
    let stopping = async {
        gate.is_reached().await;
        stop.cancel();
    };
    let end = async { tokio::join!(running, stopping).0 };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), end).await, Ok(Ok(TurnEnd::Stopped)));
    gate.open();
    // The engine goes on with what is left.
    proxy.abandon(&turn).expect("the run is yet to be stopped").await;
    upstream.has_requests("/v1/runs/run-7/stop", 1).await;
    assert!(proxy.abandon(&turn).is_none());
}

/// Waits until the text is on disk, where a crash cannot lose it. Another process writes it, and nothing reports
/// when.
async fn is_kept(talaria: &Talaria, text: &str) {
    let look = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let stored = rusqlite::Connection::open_with_flags(talaria.home().join("talaria.db"), flags).ok()?;
        stored.query_row("SELECT text FROM checkpoints", [], |row| row.get::<_, String>(0)).ok()
    };
    let kept = async {
        while look().is_none_or(|kept| kept != text) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), kept).await.expect("the text should be kept");
}

fn proxy(upstream: &Upstream) -> ProxyAgent {
    let folder = tempfile::tempdir().unwrap();
    let sources = ConfigSources { config: None, folder: folder.path().to_owned(), serve: false };
    let vars = |name: &str| match name {
        "GATEWAY_PROXY_URL" => Some(upstream.url()),
        "TALARIA_HOME" => Some(folder.path().display().to_string()),
        _ => None,
    };
    match Config::load(&sources, &vars).unwrap().agents.default_entry() {
        Some(AgentSettings::Proxy(config)) => ProxyAgent::new(config.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A turn that asks for nothing.
fn turn() -> AgentTurn {
    let session = SessionId("20260101_000000_00000000".into());
    AgentTurn {
        prompt: "hi".into(),
        key: "k".into(),
        ..AgentTurn::new(TurnId("0123456789abcdef".into()), AgentName::proxy(), session)
    }
}

/// Remembers the text of a turn.
#[derive(Default)]
struct Heard {
    text: Mutex<String>,
    news: tokio::sync::Notify,
}

impl AgentOutput for Heard {
    fn emit(&self, event: TurnEvent<'_>) {
        if let TurnEvent::Text(text) = event {
            self.text.lock().push_str(text);
            self.news.notify_one();
        }
    }

    fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(async { AskChoice::Deny(DenyReason::Gone) })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

impl Heard {
    async fn has(&self, text: &str) {
        while *self.text.lock() != text {
            self.news.notified().await;
        }
    }
}
