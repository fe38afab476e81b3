//! A tool call is a step on every surface, with a line about its subject.

use serde_json::{Value, json};
use talaria::config::StepsSetting;

use super::support::{ScriptedTool, ToolScript, agent_with, calls, model_agent};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::relay::relay;
use crate::support::served::{KEY, Served, json, settings};
use crate::support::stream::{Event, Stream};
use crate::support::upstream::{Answer, Gate, Upstream, delta};

/// A server whose agent looks at `src` when it is asked.
async fn looking(upstream: &Upstream, look: &ScriptedTool) -> Served {
    Served::of(agent_with(upstream, &[look]).await, settings()).await
}

fn looks(upstream: &Upstream) {
    upstream
        .answers(calls("Let me look.", &[("c1", "look", r#"{"what":"src"}"#)]))
        .answers(Answer::says(["There are 42."]));
}

/// The data of all events of these kinds.
fn of_kinds(events: &[Event], kinds: &[&str]) -> Vec<Value> {
    let wanted = events.iter().filter(|event| kinds.contains(&event.kind().as_str()));
    wanted.map(|event| event.json()).collect()
}

#[tokio::test]
async fn a_room_shows_the_tool_and_its_subject_while_it_runs() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::new("look", ToolScript::Waits("42 files"));
    let gateway = agent_with(&upstream, &[&look]).await;
    looks(&upstream);
    gateway.room().says("@ann", "how many?").await;
    gateway.room().shows("⚙️ look: `src`").await;
    look.gate.add_permits(1);
    gateway.room().shows("There are 42.").await;
    assert!(!gateway.room().now().contains("⚙️"));
}

#[tokio::test]
async fn a_room_may_be_shown_the_name_only_or_nothing() {
    for (steps, line) in [(StepsSetting::Name, "⚙️ look…"), (StepsSetting::Hidden, "")] {
        let upstream = Upstream::plain().await;
        let look = ScriptedTool::new("look", ToolScript::Waits("42 files"));
        let agent = model_agent(&upstream, &[&look], |_| {});
        let gateway = TestGateway::with(Setup { agent: Some(agent), steps, ..Setup::default() }).await;
        looks(&upstream);
        gateway.room().says("@ann", "how many?").await;
        gateway.room().shows("Let me look.").await;
        if !line.is_empty() {
            gateway.room().shows(line).await;
        }
        look.gate.add_permits(1);
        gateway.room().shows("There are 42.").await;
        let ever_shown = gateway.room().history_of_first().join("\n");
        assert!(
            !ever_shown.contains("src") && (line.is_empty() != ever_shown.contains("⚙️")),
            "{ever_shown}"
        );
    }
}

#[tokio::test]
async fn a_chat_stream_has_the_subject_as_a_label() {
    let (upstream, look) = (Upstream::plain().await, ScriptedTool::returns("look", "42 files"));
    let served = looking(&upstream, &look).await;
    looks(&upstream);
    let body = json!({ "messages": [{ "role": "user", "content": "how many?" }], "stream": true });
    let events = Stream::of(served.post("/v1/chat/completions", &body).await).rest().await;
    let steps = of_kinds(&events, &["hermes.tool.progress"]);
    let told: Vec<_> = steps
        .iter()
        .map(|step| json!([step["tool"], step["label"], step["toolCallId"], step["status"]]))
        .collect();
    assert_eq!(told, [json!(["look", "src", "1.0", "running"]), json!(["look", "src", "1.0", "completed"])]);
}

#[tokio::test]
async fn the_events_of_a_run_have_the_subject_as_a_preview() {
    let (upstream, look) = (Upstream::plain().await, ScriptedTool::returns("look", "42 files"));
    let served = looking(&upstream, &look).await;
    looks(&upstream);
    let begun = json(served.post("/v1/runs", &json!({ "input": "how many?" })).await).await;
    let path = format!("/v1/runs/{}/events", begun["run_id"].as_str().unwrap());
    let events = Stream::of(served.get(&path).await).rest().await;
    let steps = of_kinds(&events, &["tool.started", "tool.progress", "tool.completed"]);
    let told: Vec<_> = steps
        .iter()
        .map(|step| {
            json!([step["event"], step["tool"], step["tool_call_id"], step["preview"], step["error"]])
        })
        .collect();
    assert_eq!(
        told,
        [
            json!(["tool.started", "look", "1.0", "src", null]),
            json!(["tool.completed", "look", "1.0", null, false])
        ]
    );
}

#[tokio::test]
async fn the_stream_of_a_session_has_the_subject_as_a_preview() {
    let (upstream, look) = (Upstream::plain().await, ScriptedTool::returns("look", "42 files"));
    let served = looking(&upstream, &look).await;
    looks(&upstream);
    served.post("/api/sessions", &json!({ "id": "s" })).await;
    let answer = served.post("/api/sessions/s/chat/stream", &json!({ "message": "how many?" })).await;
    let events = Stream::of(answer).rest().await;
    let steps = of_kinds(&events, &["tool.started", "tool.progress", "tool.completed"]);
    let told: Vec<_> = steps
        .iter()
        .map(|step| json!([step["tool_name"], step["tool_call_id"], step["preview"], step["args"]]))
        .collect();
    assert_eq!(told, [json!(["look", "1.0", "src", null]), json!(["look", "1.0", "src", null])]);
    // The transcript of the turn has the call and its result.
    let end = of_kinds(&events, &["run.completed"]).remove(0);
    let roles: Vec<_> = end["messages"].as_array().unwrap().iter().map(|one| one["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "assistant"]);
    assert_eq!(end["messages"][0]["tool_calls"][0]["function"]["name"], "look");
}

#[tokio::test]
async fn a_response_has_the_call_as_an_item() {
    let (upstream, look) = (Upstream::plain().await, ScriptedTool::returns("look", "42 files"));
    let served = looking(&upstream, &look).await;
    looks(&upstream);
    let answer = served.post("/v1/responses", &json!({ "input": "how many?", "stream": true })).await;
    let events = Stream::of(answer).rest().await;
    let end = of_kinds(&events, &["response.completed"]).remove(0);
    let output = end["response"]["output"].as_array().unwrap();
    let items: Vec<_> =
        output.iter().map(|item| json!([item["type"], item["name"], item["status"]])).collect();
    assert!(items.contains(&json!(["mcp_call", "look", "completed"])), "{items:?}");
}

#[tokio::test]
async fn a_relay_shows_the_subject_of_a_tool_at_our_own_server() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::new("look", ToolScript::Waits("42 files"));
    let served = looking(&upstream, &look).await;
    looks(&upstream);
    let relay = relay(&format!("http://{}", served.address), Some(KEY)).await;
    relay.room().says("@ann", "how many?").await;
    relay.room().shows("⚙️ look: `src`").await;
    look.gate.add_permits(1);
    relay.room().shows("There are 42.").await;
}

/// A foreign agent's summary of the arguments may hold anything that it saw.
#[tokio::test]
async fn a_relay_shows_only_the_name_of_a_tool_at_any_other_server() {
    let upstream = Upstream::plain().await;
    let tool = json!({ "tool": "look", "label": "TOP-SECRET.txt", "toolCallId": "1", "status": "running" });
    let begun = format!("event: hermes.tool.progress\ndata: {tool}\n\n");
    let gate = Gate::new();
    upstream
        .answers(Answer::stream().sends(begun).waits(&gate).sends(delta("42.") + "data: [DONE]\n\n").ends());
    let relay = relay(&upstream.url(), None).await;
    relay.room().says("@ann", "how many?").await;
    relay.room().shows("⚙️ look…").await;
    assert!(!relay.room().now().contains("TOP-SECRET"), "{}", relay.room().now());
    gate.open();
    relay.room().shows("bot   42.").await;
}
