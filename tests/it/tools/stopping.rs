//! A person stops a turn with tools wherever it is: it ends at once, and nothing of it goes on.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::json;
use talaria::agents::mcp::McpServerState;
use talaria::config::BuiltinTool;

use super::support::{ScriptedTool, agent_in, agent_with, agent_with_servers, calls, shown};
use crate::mcp::scripted;
use crate::support::logged::Logged;
use crate::support::upstream::{Answer, Upstream, delta};

/// The line of the log before a request is sent again.
const AGAIN: &str = "a request to the model broke and is sent again";

#[tokio::test]
async fn in_the_pause_before_a_request_is_sent_again() {
    let logged = Logged::listen();
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    // The longest pause there is.
    let busy = Answer::reply(503, &[("retry-after", "60"), ("content-type", "application/json")], "{}");
    upstream.answers(calls("I look.", &[("a", "look", "{}")])).answers(busy);
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("I look.").await;
    while logged.with(AGAIN).is_empty() {
        tokio::task::yield_now().await;
    }
    // Nothing goes over the network from here on, so the clock may stand still: a pause that did not end would show.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    gateway.room().says("@ann", "/stop").await;
    assert_snapshot!(shown(&gateway, "(stopped)").await, @r"
    @ann  go
    bot   I look.
          (stopped)
    @ann  /stop
    ");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(upstream.prompts().len(), 2);
}

#[tokio::test]
async fn while_the_model_writes() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("I look.", &[("a", "look", "{}")]))
        .answers(Answer::stream().sends(delta("I saw")).hangs())
        .answers(Answer::says(["Yes."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("I saw").await;
    gateway.room().says("@ann", "/stop").await;
    assert_snapshot!(shown(&gateway, "(stopped)").await, @r"
    @ann  go
    bot   I look.
          I saw
          (stopped)
    @ann  /stop
    ");
    gateway.room().says("@ann", "and now?").await;
    gateway.room().shows("Yes.").await;
    let next = upstream.prompts()[2].json()["messages"].to_string();
    assert!(next.contains("I saw"), "the text that people read is remembered: {next}");
}

#[tokio::test]
async fn while_an_mcp_server_starts() {
    let upstream = Upstream::plain().await;
    let (gateway, scene) = agent_with_servers(&upstream, [("s", scripted("hangs"))]).await;
    gateway.room().says("@ann", "go").await;
    scene.comes_to(|scene| scene.state() == McpServerState::Starting).await;
    gateway.room().says("@ann", "/stop").await;
    assert_snapshot!(shown(&gateway, "(stopped)").await, @r"
    @ann  go
    @ann  /stop
    note  (stopped)
    ");
    assert!(upstream.prompts().is_empty());
    // The start goes on for the next turn; only its own limit, a reload or the end of the process ends it.
    assert_eq!(scene.state(), McpServerState::Starting);
    drop(gateway);
    scene.ends().await;
}

#[tokio::test]
async fn while_the_ask_of_a_command_is_open() {
    let upstream = Upstream::plain().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = agent_in(&upstream, folder.path(), &[BuiltinTool::Terminal]).await;
    let command = json!({ "command": "echo x > ran" }).to_string();
    upstream.answers(calls("I run it.", &[("a", "terminal", &command)]));

    gateway.room().says("@ann", "go").await;
    let asked = gateway.room().is_asked("echo x > ran").await;
    gateway.room().says("@ann", "/stop").await;
    shown(&gateway, "(stopped)").await;
    // The code is worth nothing any more.
    gateway.room().says("@ann", &format!("/approve {}", asked.code)).await;
    gateway.room().says("@ann", "hello?").await;
    let room = shown(&gateway, "ok").await;
    assert!(room.contains("Denied, because it was stopped"), "{room}");
    assert!(!folder.path().join("ran").exists());
}
