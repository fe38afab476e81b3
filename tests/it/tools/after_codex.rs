//! A model goes on with a conversation in which codex has worked: it sees what was done, and no call that it cannot make.

use serde_json::{Value, json};
use talaria::agent::SessionMessage;
use talaria::agents::codex::projector::Projector;
use talaria::ids::{SessionId, TurnId};

use super::support::{ScriptedTool, agent_with, told};
use crate::support::gateway::TestGateway;
use crate::support::upstream::{Answer, Upstream};

/// The messages of a turn of codex that looked, changed a file and called a tool of a server.
fn codex_turn() -> Vec<SessionMessage> {
    let mut projector = Projector::new("thread");
    let items: [Value; 7] = [
        json!({ "type": "userMessage", "id": "u", "content": [{ "type": "text", "text": "tidy up" }] }),
        json!({ "type": "reasoning", "id": "r", "summary": ["**Thinking**"], "content": [] }),
        json!({ "type": "agentMessage", "id": "m1", "text": "Let me look." }),
        json!({ "type": "commandExecution", "id": "c1", "command": "ls", "cwd": "/ws", "status": "failed",
            "aggregatedOutput": "no such folder\n", "exitCode": 2 }),
        json!({ "type": "plan", "id": "p", "text": "1. make the folder" }),
        json!({ "type": "mcpToolCall", "id": "c2", "server": "files", "tool": "make", "status": "completed",
            "arguments": { "path": "x" }, "result": { "content": [{ "type": "text", "text": "made" }] } }),
        json!({ "type": "agentMessage", "id": "m2", "text": "It is tidy." }),
    ];
    items.iter().flat_map(|item| projector.completed(item)).collect()
}

/// Adds these messages to the only session, as if an earlier turn had recorded them.
async fn remember(gateway: &TestGateway, messages: Vec<SessionMessage>) {
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    let session = database.query_row("SELECT id FROM sessions", [], |row| row.get(0)).map(SessionId).unwrap();
    let turn = TurnId("codex".to_owned());
    let job = gateway
        .store()
        .write(move |tx| messages.iter().try_for_each(|message| tx.add_record(&session, &turn, message)));
    job.await.unwrap();
}

/// The messages that a model is sent when it goes on.
async fn sent(tools: &[&ScriptedTool]) -> Vec<String> {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["Hello."])).answers(Answer::says(["You are welcome."]));
    let gateway = agent_with(&upstream, tools).await;
    gateway.room().says("@ann", "tidy up").await;
    gateway.room().shows("Hello.").await;
    remember(&gateway, codex_turn()).await;
    gateway.room().says("@ann", "thanks").await;
    gateway.room().shows("You are welcome.").await;
    told(&upstream.prompts()[1])
}

const TOLD: &str = "assistant: Hello.\n\nLet me look.\n\n\
    (I called the tool exec_command with {\"command\":\"ls\",\"cwd\":\"/ws\"}. It returned:\n```\nno such folder\n[exit code: 2]\n```)\n\n\
    (I called the tool mcp.files.make with {\"path\":\"x\"}. It returned:\n```\nmade\n```)\n\n\
    It is tidy.";

#[tokio::test]
async fn a_model_without_tools_is_told_in_words_what_codex_did() {
    assert_eq!(sent(&[]).await, ["user: tidy up", TOLD, "user: thanks"]);
}

#[tokio::test]
async fn a_model_with_other_tools_is_told_in_words_what_codex_did() {
    let look = ScriptedTool::returns("look", "42 files");
    assert_eq!(sent(&[&look]).await, ["user: tidy up", TOLD, "user: thanks"]);
}

#[tokio::test]
async fn a_model_with_a_tool_of_that_name_sees_the_call() {
    let exec = ScriptedTool::returns("exec_command", "x");
    let sent = sent(&[&exec]).await;
    assert_eq!(sent[0], "user: tidy up");
    assert!(sent[1].starts_with("assistant: Hello.\n\nLet me look. exec_command("), "{}", sent[1]);
    assert!(
        sent[2].starts_with("tool for ") && sent[2].ends_with(": no such folder\n[exit code: 2]"),
        "{}",
        sent[2]
    );
    assert!(sent[3].starts_with("assistant: (I called the tool mcp.files.make"), "{}", sent[3]);
    assert_eq!(sent.len(), 5);
}
