//! MCP servers through the whole loop: one that fails costs its tools and nothing else, and no answer of one can hurt.

use std::time::Duration;

use serde_json::json;
use talaria::config::{McpServerConfig, ToolPermission};

use super::support::{agent_with_servers, calls, offered, system, told};
use crate::mcp::scripted;
use crate::mcp::scripted_server::TOOLS;
use crate::support::mcp::permits;
use crate::support::served::{Served, settings};
use crate::support::stream::Stream;
use crate::support::upstream::{Answer, Upstream};

/// A server whose tool `tool` may be called without a question.
fn permitting(tool: &str) -> McpServerConfig {
    permits(scripted("plain"), tool, ToolPermission::Allow)
}

#[tokio::test]
async fn a_server_that_fails_is_a_failed_step_and_the_tools_of_another_work_in_the_same_turn() {
    let upstream = Upstream::plain().await;
    let servers = [("bad", scripted("exits")), ("good", permitting("echo"))];
    let (gateway, scene) = agent_with_servers(&upstream, servers).await;
    upstream
        .answers(calls("", &[("c1", "mcp_good_echo", r#"{"text":"hello"}"#)]))
        .answers(Answer::says(["It says hello."]));
    let served = Served::of(gateway, settings()).await;
    let body = json!({ "messages": [{ "role": "user", "content": "echo" }], "stream": true });
    let events = Stream::of(served.post("/v1/chat/completions", &body).await).rest().await;

    let steps =
        events.iter().filter(|event| event.kind() == "hermes.tool.progress").map(|event| event.json());
    let steps: Vec<_> = steps.map(|step| json!([step["tool"], step["label"], step["status"]])).collect();
    let missing = "The MCP server `bad` does not run.";
    assert_eq!(
        steps,
        [
            json!(["mcp", missing, "running"]),
            json!(["mcp", missing, "failed"]),
            json!(["mcp_good_echo", "hello", "running"]),
            json!(["mcp_good_echo", "hello", "completed"]),
        ]
    );
    let prompts = upstream.prompts();
    assert!(system(&prompts[0]).contains(missing), "{}", system(&prompts[0]));
    assert!(!system(&prompts[0]).contains("without the key"), "words of a server instruct nobody");
    assert!(
        offered(&prompts[0]).iter().all(|name| name.starts_with("mcp_good_")),
        "{:?}",
        offered(&prompts[0])
    );
    assert_eq!(told(&prompts[1]).last().unwrap(), "tool for c1: hello");
    drop(served);
    scene.ends().await;
}

#[tokio::test]
async fn an_answer_that_is_no_json_ends_the_call_at_its_limit_and_the_turn_goes_on() {
    let upstream = Upstream::plain().await;
    let config = McpServerConfig { timeout: Duration::from_millis(300), ..permitting("garbage") };
    let config = permits(config, "echo", ToolPermission::Allow);
    let (gateway, scene) = agent_with_servers(&upstream, [("s", config)]).await;
    upstream
        .answers(calls("", &[("c1", "mcp_s_garbage", "{}")]))
        .answers(calls("", &[("c2", "mcp_s_echo", r#"{"text":"still there"}"#)]))
        .answers(Answer::says(["Then without it."]));
    gateway.room().says("@ann", "go").await;
    gateway.room().shows("Then without it.").await;
    let prompts = upstream.prompts();
    let failure = "tool for c1: Error: The MCP server `s` gave no answer within 0.3 seconds.";
    assert_eq!(told(&prompts[1]).last().unwrap(), failure);
    assert_eq!(told(&prompts[2]).last().unwrap(), "tool for c2: still there");
    drop(gateway);
    scene.ends().await;
}

#[tokio::test]
async fn a_result_of_ten_megabytes_is_cut_for_the_model() {
    let upstream = Upstream::plain().await;
    let (gateway, scene) = agent_with_servers(&upstream, [("s", permitting("large"))]).await;
    upstream.answers(calls("", &[("c1", "mcp_s_large", "{}")])).answers(Answer::says(["Too much."]));
    gateway.room().says("@ann", "go").await;
    gateway.room().shows("Too much.").await;
    let result = told(&upstream.prompts()[1]).pop().unwrap();
    assert!(result.starts_with("tool for c1: xxx") && result.ends_with("xxx"), "{} bytes", result.len());
    assert!(result.contains("bytes left out") && result.len() < 60_000, "{} bytes", result.len());
    drop(gateway);
    scene.ends().await;
}

#[tokio::test]
async fn the_room_is_told_the_state_of_each_server() {
    let upstream = Upstream::plain().await;
    let servers = [("bad", scripted("exits")), ("good", scripted("plain"))];
    let (gateway, scene) = agent_with_servers(&upstream, servers).await;
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("ok").await;
    gateway.room().says("@ann", "/status").await;
    gateway.room().shows(&format!("MCP server good: runs. Tools: {}.", TOOLS.len())).await;
    let room = gateway.room().now();
    assert!(room.contains("MCP server bad: does not work, because it ended. Tools: 0."), "{room}");
    assert!(!room.contains("key") && !room.contains("exit"), "{room}");
    drop(gateway);
    scene.ends().await;
}
