//! Answers of an agent server that runs turns as hermes-agent does, in its format.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::relay::relay_as;
use crate::support::upstream::{Answer, Upstream};

/// The run of the first turn.
pub const RUN: &str = "run_1";

/// The features of runs, as hermes-agent announces them.
pub const FEATURES: [&str; 5] =
    ["run_submission", "run_status", "run_events_sse", "run_stop", "run_approval_response"];

/// hermes-agent's own description of its capabilities.
pub fn capabilities() -> Answer {
    capabilities_without(&[])
}

/// The same without these features.
pub fn capabilities_without(left_out: &[&str]) -> Answer {
    let mut features = json!({
        "chat_completions": true, "approval_events": true, "session_resources": true,
        "session_continuity_header": "X-Hermes-Session-Id",
    });
    for name in FEATURES {
        features[name] = json!(!left_out.contains(&name));
    }
    Answer::status(200, &json!({ "features": features }).to_string())
}

/// A server that begins one run.
pub async fn upstream() -> Upstream {
    let upstream = Upstream::with_capabilities(capabilities()).await;
    upstream.answers_at("/v1/runs", [begun(RUN)]).answers_at("/events", [Answer::unknown()]);
    upstream
}

/// A server whose run has these events.
pub async fn with_events(events: Answer) -> Upstream {
    let upstream = upstream().await;
    upstream.answers_at("/events", [events, Answer::unknown()]);
    upstream
}

/// A gateway that relays to it, by runs.
pub async fn gateway(upstream: &Upstream) -> TestGateway {
    relay_as(&upstream.url(), Some("a key of our own, long enough"), "gateway: {upstream: runs}\n").await
}

/// The answer to a request that begins a run.
pub fn begun(run: &str) -> Answer {
    Answer::status(202, &json!({ "run_id": run, "status": "started" }).to_string())
}

/// One event of the first run.
pub fn event(name: &str, mut fields: Value) -> String {
    fields["event"] = json!(name);
    fields["run_id"] = json!(RUN);
    if fields["timestamp"].is_null() {
        fields["timestamp"] = json!(1000.5);
    }
    format!("data: {fields}\n\n")
}

/// More of the answer.
pub fn text(text: &str) -> String {
    event("message.delta", json!({ "delta": text }))
}

/// The beginning of a message again, which hermes-agent sends behind it.
pub fn repeated(text: &str) -> String {
    event("reasoning.available", json!({ "text": text }))
}

pub fn tool_started(tool: &str) -> String {
    event("tool.started", json!({ "tool": tool, "preview": "cargo test --key sk-secret-canary-0123456789" }))
}

pub fn tool_completed(tool: &str, error: bool) -> String {
    event("tool.completed", json!({ "tool": tool, "duration": 0.1, "error": error }))
}

/// An ask at this time of the server's clock.
pub fn asks(command: &str, at: f64) -> String {
    let fields = json!({
        "command": command, "pattern_key": "delete", "description": "delete in root path", "timestamp": at,
        "allow_permanent": true, "choices": ["once", "session", "always", "deny"],
    });
    event("approval.request", fields)
}

pub fn responded(choice: &str) -> String {
    event("approval.responded", json!({ "choice": choice, "resolved": 1 }))
}

/// The end of a run with this text. Like hermes-agent, it names the message again first.
pub fn completed(output: &str) -> String {
    let usage = json!({ "input_tokens": 11, "output_tokens": 7, "total_tokens": 18 });
    let end = event("run.completed", json!({ "output": output, "usage": usage }));
    repeated(output) + &*end + ": stream closed\n\n"
}

/// The state of the first run.
pub fn state(status: &str, mut fields: Value) -> Answer {
    fields["object"] = json!("hermes.run");
    fields["run_id"] = json!(RUN);
    fields["status"] = json!(status);
    Answer::status(200, &fields.to_string())
}

/// The state of a run that has this text.
pub fn has_completed(output: &str) -> Answer {
    state("completed", json!({ "output": output, "last_event": "run.completed" }))
}

/// The state of a run that waits for the answer to its ask of this time.
pub fn waits_for_approval(at: f64) -> Answer {
    state("waiting_for_approval", json!({ "last_event": "approval.request", "updated_at": at }))
}

/// Number of runs that the server was asked to begin.
pub fn runs_begun(upstream: &Upstream) -> usize {
    upstream.requests_to("/v1/runs").iter().filter(|request| request.method == "POST").count()
}

/// The answers to asks that the server got.
pub fn told(upstream: &Upstream) -> Vec<Value> {
    upstream.requests_to("/approval").iter().map(|request| request.json()).collect()
}

/// The messages of a session, as hermes-agent returns them.
pub fn session(messages: &[Value]) -> Answer {
    Answer::status(200, &json!({ "object": "list", "data": messages }).to_string())
}

pub fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

pub fn agent(text: &str, finish_reason: &str) -> Value {
    json!({ "role": "assistant", "content": text, "finish_reason": finish_reason })
}

/// The messages of an answer with a tool call.
pub fn with_tool(before: &str, after: &str) -> [Value; 3] {
    [
        json!({
            "role": "assistant", "content": before, "tool_calls": [{ "id": "call_1" }],
            "finish_reason": "tool_calls",
        }),
        json!({ "role": "tool", "content": "{\"output\": \"42\"}" }),
        agent(after, "stop"),
    ]
}

/// hermes-agent's description of its health with so many runs under way.
pub fn health(runs: usize) -> Answer {
    let queues = json!({ "background_queues": { "status": "ok", "active_api_runs": runs } });
    Answer::status(200, &json!({ "readiness": { "checks": queues } }).to_string())
}

/// Text of several paragraphs as a room shows it.
pub fn shown(text: &str) -> String {
    text.replace("\n\n", "\n      ")
}
