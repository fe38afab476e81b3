//! A turn that is stopped, or takes too long, ends at the agent too, whatever the agent does.

use std::time::Duration;

use serde_json::json;

use super::scene::AcpScene;
use super::scripted_agent::{Act, CancelRule, Script};

fn thinking() -> Script {
    Script::default().turn("plan", [Act::says(&["Let me ", "think"]), Act::Hangs])
}

#[tokio::test]
async fn stop_cancels_the_prompt_and_keeps_the_text_and_the_process() {
    let scene = AcpScene::with(thinking()).await;
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Let me think").await;
    scene.asks("/stop", "(stopped)").await;
    let cancelled = scene.agent.receives("session/cancel").await;
    assert!(cancelled["sessionId"].as_str().unwrap().starts_with("session-"));
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /stop
    ");
    scene.asks("hello", "bot   hello").await;
    assert_eq!((scene.agent.processes().len(), scene.agent.received("session/new").len()), (1, 1));
    scene.ends().await;
}

#[tokio::test]
async fn a_command_that_waits_for_approval_never_runs_after_a_stop() {
    let scene = AcpScene::with(Script::default().turn("make", [Act::runs_if_allowed("make", "ok")])).await;
    scene.room().says("@ann", "make it").await;
    let asked = scene.room().is_asked("make").await;
    scene.asks("/stop", "(stopped)").await;
    scene.room().says("@ann", &format!("/answer {} 1", asked.code)).await;
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.agent.ran(), Vec::<String>::new());
    // The protocol wants every request answered.
    assert_eq!(scene.agent.answers()[0]["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    scene.ends().await;
}

#[tokio::test]
async fn an_agent_that_ignores_a_cancel_is_ended_and_its_conversation_is_opened_again() {
    let scene = AcpScene::as_set(thinking().cancelled(CancelRule::Ignored), |_, times| {
        times.cancel = Duration::from_millis(200);
    })
    .await;
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Let me think").await;
    scene.asks("/stop", "(stopped)").await;
    scene.comes_to("the agent is ended", || scene.children() == 0).await;
    scene.asks("hello", "bot   hello").await;
    assert_eq!((scene.agent.processes().len(), scene.agent.received("session/load").len()), (2, 1));
    let room = scene.room().now();
    assert!(!room.contains("earlier answer") && !room.contains("no longer"), "{room}");
    scene.ends().await;
}

#[tokio::test]
async fn at_the_deadline_the_text_is_delivered_and_marked_and_thinking_people_do_not_count() {
    let script = thinking().turn("ask", [Act::runs_if_allowed("make", "ok"), Act::says(&["Built."])]);
    let scene = AcpScene::as_set(script, |config, _| config.turn_timeout = Duration::from_millis(700)).await;
    scene.room().says("@ann", "ask me").await;
    let asked = scene.room().is_asked("make").await;
    // A turn in another room shows that the time is up by now.
    let other = scene.gateway.direct_room("!other");
    other.says("@ann", "plan my week").await;
    scene.shows_in(&other, "(cut short: the task took longer than it may").await;
    assert!(other.now().contains("Let me think"), "{}", other.now());
    scene.asks(&format!("/answer {} 1", asked.code), "Built.").await;
    scene.ends().await;
}

#[tokio::test]
async fn an_agent_that_does_not_end_by_itself_is_killed_with_the_gateway() {
    let scene =
        AcpScene::with(Script::default().turn("stay", [Act::StaysAlive, Act::says(&["I stay."])])).await;
    scene.asks("stay", "I stay.").await;
    assert!(scene.children() > 0);
    scene.ends().await;
}

#[tokio::test]
async fn a_stop_cancels_permissions_and_refuses_everything_else_that_the_agent_wants() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("hello", "bot   hello").await;
    let late = scene.session_folder().join("late.txt");
    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    let call = json!({ "toolCallId": "c", "title": "make", "kind": "execute" });
    scene.agent.plays(&thinking().cancelling([
        Act::sends("fs/write_text_file", json!({ "path": late, "content": "x" })),
        Act::sends("fs/read_text_file", json!({ "path": late })),
        Act::sends("session/request_permission", json!({ "toolCall": call, "options": options })),
        Act::sends("_vendor/ask", json!({})),
    ]));
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Let me think").await;
    scene.asks("/stop", "(stopped)").await;
    scene.comes_to("all are answered", || scene.agent.answers().len() == 4).await;
    let answers = scene.agent.answers();
    assert_eq!(answers[2]["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    for refused in [&answers[0], &answers[1], &answers[3]] {
        assert!(refused["result"].is_null() && refused["error"]["code"].is_i64(), "{refused}");
    }
    assert!(!late.exists(), "it was refused");
    scene.ends().await;
}

#[tokio::test]
async fn a_write_that_has_begun_is_done_when_the_turn_is_over_and_the_agent_is_told_so() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("hello", "bot   hello").await;
    let files: Vec<_> = (0..16).map(|number| scene.session_folder().join(format!("{number}.txt"))).collect();
    let content = "x".repeat(512 * 1024);
    let write = |path| Act::sends("fs/write_text_file", json!({ "path": path, "content": content }));
    let acts = files.iter().map(write).chain([Act::says(&["Written."])]).collect::<Vec<_>>();
    scene.agent.plays(&Script::default().turn("write", acts));
    scene.asks("write", "Written.").await;
    for file in &files {
        assert_eq!(std::fs::read_to_string(file).unwrap().len(), content.len());
    }
    scene.comes_to("all are answered", || scene.agent.answers().len() == files.len()).await;
    for answer in scene.agent.answers() {
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    scene.ends().await;
}
