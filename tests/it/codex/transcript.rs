//! What stays of a turn by codex: every message, tool and thought, also of a turn that was interrupted.

use serde_json::json;
use talaria::agent::NO_ANSWER;

use super::scene::CodexScene;
use super::scripted_peer::{Act, CommandAct, InterruptRule, Scenario};

/// The stored messages of the only session, one line each: role, reasoning, text, calls.
fn stored(scene: &CodexScene) -> Vec<String> {
    let database = rusqlite::Connection::open(scene.gateway.database()).unwrap();
    let mut query =
        database.prepare("SELECT role, reasoning, content, tools FROM messages ORDER BY id").unwrap();
    let rows = query.query_map([], |row| {
        let (role, reasoning): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        let (content, tools): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let tools: serde_json::Value = tools.map_or(json!({}), |tools| serde_json::from_str(&tools).unwrap());
        let called = tools["tool_calls"][0]["function"].clone();
        let call =
            called["name"].as_str().map(|name| format!(" {name}{}", called["arguments"].as_str().unwrap()));
        let thought = reasoning.map(|reasoning| format!(" ({reasoning})")).unwrap_or_default();
        Ok(format!("{role}{thought}: {content}{}", call.unwrap_or_default()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn command(waits: Option<&str>) -> Act {
    Act::Runs(CommandAct {
        command: "make".into(),
        output: "no rule\n".into(),
        exit: 2,
        asks: false,
        waits: waits.map(str::to_owned),
    })
}

#[tokio::test]
async fn a_turn_is_stored_with_its_tools_and_thoughts_and_the_prompt_once() {
    let plan = json!({ "item": { "type": "plan", "id": "plan-1", "text": "1. make it" } });
    let scenario = Scenario::default().turn(
        "make",
        [
            Act::Thinks("**Looking**".to_owned()),
            Act::says(&["Let me ", "try."]),
            Act::notifies("item/completed", plan),
            command(None),
            Act::says(&["There is no rule."]),
        ],
    );
    let scene = CodexScene::with(scenario).await;
    scene.asks("make it", "There is no rule.").await;
    assert!(!scene.room().now().contains("1. make it"), "a note is no part of the answer");
    let folder = scene.session_folder();
    assert_eq!(
        stored(&scene),
        [
            "user: make it",
            "assistant (**Looking**): Let me try.",
            "note: [codex: plan] 1. make it",
            &format!(
                "assistant:  exec_command{}",
                json!({ "command": "/bin/bash -lc 'make'", "cwd": folder })
            ),
            "tool: no rule\n[exit code: 2]",
            "assistant: There is no rule.",
        ]
    );
    scene.ends().await;
}

#[tokio::test]
async fn a_command_that_a_stop_ended_is_on_record() {
    for rule in [InterruptRule::Works, InterruptRule::Silent] {
        a_command_is_ended_by_a_stop(rule).await;
    }
}

async fn a_command_is_ended_by_a_stop(rule: InterruptRule) {
    let scenario = Scenario::default()
        .turn("make", [Act::says(&["Let me try."]), command(Some("never"))])
        .interrupted(rule);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make it").await;
    scene.room().shows("⚙️ exec_command: `make`").await;
    scene.asks("/stop", "(stopped)").await;
    let stored = stored(&scene);
    assert_eq!(stored[..2], ["user: make it", "assistant: Let me try."]);
    assert!(
        stored[2].starts_with("assistant:  exec_command{") && stored[2].contains("make"),
        "{}",
        stored[2]
    );
    assert!(stored[3].starts_with("tool: [no result: the turn ended"), "{}", stored[3]);
    assert_eq!(stored[4..], [format!("assistant: {NO_ANSWER}")]);
    scene.ends().await;
}

#[tokio::test]
async fn half_a_message_is_stored_whole_although_a_command_ended_meanwhile() {
    let item = |status: &str| {
        json!({ "item": { "type": "commandExecution", "id": "c1", "command": "sleep 9", "cwd": "/w", "status": status,
            "aggregatedOutput": "over\n", "exitCode": 0, "commandActions": [] } })
    };
    let delta =
        |delta: &str| Act::notifies("item/agentMessage/delta", json!({ "itemId": "m1", "delta": delta }));
    let begun = json!({ "item": { "type": "agentMessage", "id": "m1", "text": "" } });
    let scenario = Scenario::default().turn(
        "wait",
        [
            Act::notifies("item/started", item("inProgress")),
            Act::notifies("item/started", begun),
            delta("It is "),
            Act::notifies("item/completed", item("completed")),
            delta("over"),
            Act::Hangs,
        ],
    );
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "wait for it").await;
    scene.room().shows("It is over").await;
    scene.asks("/stop", "(stopped)").await;
    let stored = stored(&scene);
    assert_eq!((stored[2].as_str(), stored[3].as_str()), ("tool: over\n", "assistant: It is over"));
    assert_eq!(stored.len(), 4);
    scene.ends().await;
}
