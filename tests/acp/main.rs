//! Real ACP agents behind the agent of kind `acp`, and a scripted provider behind them.
//!
//! `tests/acp/parts` installs them. Each test has a home folder of its own, and nothing leaves the machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

#[path = "../it/support"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod it {
    pub mod upstream;
}

#[path = "../codex/responses.rs"]
#[allow(dead_code, reason = "the tests with codex use the rest")]
mod responses;

mod provider;
mod real_agents;
mod recorder;
mod scene;

use talaria::agent::{AskChoice, DenyReason, TurnEnd};

use real_agents::RealAgent;
use scene::Scene;

/// A prompt, a tool call that is granted, one that is refused, a cancel, and the conversation again in another process.
async fn does_everything(agent: RealAgent) {
    let mut scene = Scene::new(agent).await;
    let said = scene.asks("hello there").await;
    assert_eq!(said.end, Ok(TurnEnd::Done), "{said}");
    assert!(said.text().contains("You said: hello there"), "{said}");
    assert_eq!(said.facts()["stop_reason"], "end_turn");
    assert!(
        said.lines().iter().any(|line| line["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
    );

    let mark = scene.folder().join("mark.txt");
    let command = format!("echo granted > {}", mark.display());
    let granted = scene.asks_with(&format!("[exec:{command}]"), None).await;
    assert_eq!(granted.end, Ok(TurnEnd::Done), "{granted}");
    let asked = granted.asked();
    assert!(asked.iter().any(|ask| ask.detail.contains(&command)), "{granted}");
    let options = asked.iter().flat_map(|ask| &ask.form.options);
    let rules: Vec<_> = options.filter(|option| option.id.contains("policy")).collect();
    assert!(rules.is_empty(), "nobody may write a rule that holds for everybody: {rules:?}");
    assert_eq!(std::fs::read_to_string(&mark).unwrap().trim(), "granted", "{granted}");
    assert!(
        granted
            .steps()
            .iter()
            .any(|step| step.detail.as_deref().is_some_and(|line| line.contains("echo granted"))),
        "{granted}"
    );

    let other = scene.folder().join("other.txt");
    let command = format!("echo refused > {}", other.display());
    let refusal = AskChoice::Deny(DenyReason::Person);
    let refused = scene.asks_with(&format!("[exec:{command}]"), Some(refusal)).await;
    // Some agents end the turn then, and others go on.
    assert_eq!(refused.end, Ok(TurnEnd::Done), "{refused}");
    assert!(!refused.asked().is_empty() && !other.exists(), "{refused}");

    let stopped = scene.is_stopped_in("[slow]").await;
    assert_eq!(stopped.end, Ok(TurnEnd::Stopped), "{stopped}");
    assert_eq!(stopped.facts()["stop_reason"], "cancelled");

    // The same process has done it all, and another one goes on, once that has ended.
    scene.is_reloaded();
    let again = scene.asks("and again").await;
    assert_eq!(again.end, Ok(TurnEnd::Done), "{again}");
    assert!(again.text().contains("You said: and again") && !again.text().contains("hello there"), "{again}");
    assert!(again.remarks().is_empty(), "the conversation is not lost: {again}");
    assert!(scene.was_told("hello there"), "the model sees the conversation so far");
    scene.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_acp_does_everything() {
    does_everything(RealAgent::CodexAcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zeds_codex_acp_does_everything() {
    does_everything(RealAgent::ZedCodexAcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_does_everything() {
    does_everything(RealAgent::OpenCode).await;
}
