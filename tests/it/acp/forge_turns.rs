//! A turn whose surface wants the agent's own lines, on the agent alone.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use talaria::agent::{
    Agent as _, AgentError, AgentErrorKind, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason,
    SessionMessage, TurnEnd, TurnEvent,
};
use talaria::agents::AgentServices;
use talaria::agents::acp::AcpAgent;
use talaria::agents::acp::pool::AcpPool;
use talaria::agents::process::ProcessHost;
use talaria::config::AcpConfig;
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria_platform::{BoxFuture, CancellationToken};
use tempfile::TempDir;

use super::scripted_agent::{Act, Script, ScriptedAgent};
use crate::support::relay::services;

/// Keeps what an agent emits.
#[derive(Default)]
struct Output {
    lines: Mutex<Vec<Value>>,
    text: Mutex<String>,
    facts: Mutex<serde_json::Map<String, Value>>,
    report: Mutex<Option<Value>>,
}

impl AgentOutput for Output {
    fn emit(&self, event: TurnEvent<'_>) {
        match event {
            TurnEvent::Raw(line) => self.lines.lock().push(serde_json::from_str(line).unwrap()),
            TurnEvent::Text(text) => self.text.lock().push_str(text),
            TurnEvent::Facts(facts) => self.facts.lock().extend(facts),
            TurnEvent::Upstream(report) => *self.report.lock() = Some(report),
            _ => {}
        }
    }

    fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(async { AskChoice::Deny(DenyReason::Person) })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

/// An agent without a gateway.
struct Direct {
    scripted: ScriptedAgent,
    agent: AcpAgent,
    pool: std::sync::Arc<AcpPool>,
    folder: TempDir,
    report: Option<Value>,
}

impl Direct {
    fn new(script: &Script) -> Self {
        let (scripted, folder) = (ScriptedAgent::new(script), tempfile::tempdir().unwrap());
        let host = ProcessHost::new(folder.path()).with_shim(env!("CARGO_BIN_EXE_talaria"));
        let pool = AcpPool::new(std::sync::Arc::new(host), 2);
        let services = AgentServices { acp: pool.clone(), ..services() };
        let config = AcpConfig::new(scripted.command().display().to_string(), folder.path().join("work"));
        Self { scripted, agent: AcpAgent::new(config, &services), pool, folder, report: None }
    }

    async fn asks(&mut self, prompt: &str, wants_raw: bool) -> (Output, Result<TurnEnd, AgentError>) {
        let name = AgentName::new("claude").unwrap();
        let turn = AgentTurn::new(TurnId("t".into()), name, SessionId("s".into()));
        let folder = self.folder.path().join("forge");
        let turn = AgentTurn {
            prompt: prompt.to_owned(),
            wants_raw,
            folder: Some(folder),
            upstream: self.report.clone(),
            ..turn
        };
        let output = Output::default();
        let prepared = self.agent.prepare(&turn).await.unwrap();
        let running = self.agent.run_turn(&turn, prepared, &output, CancellationToken::new());
        let end = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap();
        self.report = output.report.lock().clone().or(self.report.take());
        (output, end)
    }
}

#[tokio::test]
async fn the_lines_are_passed_on_as_they_came_with_the_final_answer_and_the_stop_reason() {
    let odd = json!({ "sessionUpdate": "of_2027", "more": [1, 2] });
    let script = Script::default()
        .turn("go", [Act::says(&["Hel", "lo"]), Act::Updates(odd.clone()), Act::stops("of_2027")]);
    let mut direct = Direct::new(&script);
    let (output, end) = direct.asks("go", true).await;
    assert_eq!(end, Ok(TurnEnd::Done));
    let lines = output.lines.lock().clone();
    let kinds: Vec<_> = lines.iter().map(|line| line["params"]["update"]["sessionUpdate"].as_str()).collect();
    let text = Some("agent_message_chunk");
    assert_eq!(kinds, [text, text, Some("of_2027"), None]);
    assert_eq!(lines[2]["params"]["update"], odd);
    assert_eq!(
        (&lines[3]["result"], &lines[3]["jsonrpc"]),
        (&json!({ "stopReason": "of_2027" }), &json!("2.0"))
    );
    assert_eq!(*output.text.lock(), "Hello");
    let facts = output.facts.lock().clone();
    assert_eq!(facts["stop_reason"], "of_2027");
    assert!(facts["acp_session_id"].as_str().unwrap().starts_with("session-"));
    assert_eq!(direct.scripted.received("session/new")[0]["cwd"], json!(direct.folder.path().join("forge")));
    // The prompt is passed unchanged.
    let prompt = &direct.scripted.received("session/prompt")[0]["prompt"];
    assert_eq!(*prompt, json!([{ "type": "text", "text": "go" }]));
    assert!(direct.agent.has_process(&SessionId("s".into())));
    assert!(!direct.agent.has_process(&SessionId("other".into())));

    let (output, _) = direct.asks("go", false).await;
    assert!(output.lines.lock().is_empty(), "nobody wants them");
    direct.pool.end().await;
}

#[tokio::test]
async fn a_lost_conversation_fails_the_turn_and_a_dead_agent_leaves_its_last_words() {
    let script = Script::default()
        .turn("die", [Act::says(&["Hm"]), Act::exits(3, "panic: key=sk-proj-0123456789abcdef0123 gone")]);
    let mut direct = Direct::new(&script);
    let (output, end) = direct.asks("die", true).await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::CutShort);
    let facts = output.facts.lock().clone();
    let stderr = facts["stderr"].as_str().unwrap();
    assert!(stderr.contains("panic:") && !stderr.contains("sk-proj-0123456789"), "{stderr}");
    assert_eq!(facts["stop_reason"], "error");

    direct.scripted.forgets_everything();
    let (output, end) = direct.asks("hello", true).await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::Refused);
    assert_eq!(output.facts.lock()["session_lost"], true);
    assert_eq!(direct.scripted.received("session/new").len(), 1, "nothing is begun silently");
    direct.pool.end().await;
}
