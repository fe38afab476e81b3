//! A turn that is stopped ends at codex too, whatever codex does.

use std::time::Duration;

use serde_json::json;

use super::scene::CodexScene;
use super::scripted_peer::{Act, InterruptRule, Scenario};
use crate::support::gateway::Setup;

#[tokio::test]
async fn stop_interrupts_codex_and_keeps_the_text() {
    let scenario = Scenario::default().turn("plan", [Act::says_half(&["Let me ", "think"]), Act::Hangs]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Let me think").await;
    scene.asks("/stop", "(stopped)").await;
    let interrupted = scene.codex.receives("turn/interrupt").await;
    assert_eq!(interrupted["threadId"], "thread-1");
    assert!(interrupted["turnId"].as_str().unwrap().starts_with("turn-"));
    // An interrupt does not end every command.
    let cleaned = scene.codex.receives("thread/backgroundTerminals/clean").await;
    assert_eq!(cleaned["threadId"], "thread-1");
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /stop
    ");
    // The thread is free for the next turn.
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_that_is_stopped_before_it_has_begun_does_not_begin() {
    let scenario = Scenario::default().turn("make", [Act::runs("make", "ok")]).beginning_behind("begin");
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make it").await;
    scene.codex.reached("begin").await;
    // Its start was answered, and that is all that codex said of it.
    scene.asks("/stop", "(stopped)").await;
    scene.codex.opens("begin");
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.codex.ran(), Vec::<String>::new());
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn the_late_end_of_an_earlier_turn_does_not_hide_the_one_that_runs() {
    let stale = json!({ "method": "turn/completed", "params": { "threadId": "$thread",
        "turn": { "id": "an-earlier-one", "items": [], "status": "interrupted", "error": null } } });
    let acts = [Act::writes(format!("{stale}\n")), Act::says_half(&["Let me think"]), Act::Hangs];
    let scene = CodexScene::with(Scenario::default().turn("plan", acts)).await;
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Let me think").await;
    scene.asks("/stop", "(stopped)").await;
    let interrupted = scene.codex.receives("turn/interrupt").await;
    assert!(interrupted["turnId"].as_str().unwrap().starts_with("turn-"), "{interrupted}");
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.codex.received("turn/start").len(), 2);
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_command_that_waits_for_approval_never_runs_after_a_stop() {
    let scenario = Scenario::default().turn("make", [Act::runs_if_allowed("make", "ok")]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "make it").await;
    let asked = scene.room().is_asked("make").await;
    scene.asks("/stop", "(stopped)").await;
    scene.room().says("@ann", &format!("/approve {}", asked.code)).await;
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.codex.ran(), Vec::<String>::new());
    // Codex never waits for nobody.
    assert_eq!(scene.codex.answers()[0]["error"]["code"], -32_600);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_ignores_an_interrupt_is_ended_and_nobody_hangs() {
    for rule in [InterruptRule::Silent, InterruptRule::Ignored] {
        let scenario =
            Scenario::default().turn("plan", [Act::says_half(&["Hm"]), Act::Hangs]).interrupted(rule);
        let scene = CodexScene::with(scenario).await;
        scene.room().says("@ann", "plan my week").await;
        scene.room().shows("Hm").await;
        scene.asks("/stop", "(stopped)").await;
        scene.comes_to("codex is ended", || scene.children() == 0).await;
        scene.asks("hello", "bot   hello").await;
        assert_eq!(scene.codex.processes().len(), 2, "{rule:?}");
        scene.ends().await;
    }
}

#[tokio::test]
async fn the_end_of_the_gateway_ends_a_running_turn_and_leaves_no_process() {
    let scenario = Scenario::default().turn("plan", [Act::says_half(&["Hm"]), Act::Hangs]);
    let mut scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "plan my week").await;
    scene.room().shows("Hm").await;
    scene.gateway.drain().await;
    assert_eq!(scene.children(), 0);
    scene.gateway.restart().await;
    scene.room().shows("(interrupted").await;
    scene.ends().await;
}

#[tokio::test]
async fn an_ask_that_nobody_answers_halts_the_task() {
    let scenario = Scenario::default()
        .turn("make", [Act::runs_if_allowed("make", "ok"), Act::says(&["I go on without it."])]);
    let setup = Setup { ask_for: Duration::from_millis(300), ..Setup::default() };
    let scene = CodexScene::of(scenario, setup, |_| {}).await;
    scene.room().says("@ann", "make it").await;
    scene.room().is_asked("make").await;
    scene.room().shows("(cut short").await;
    let room = scene.room().now();
    assert!(!room.contains("I go on"), "{room}");
    assert_eq!(scene.codex.answers()[0]["result"]["decision"], "cancel");
    assert_eq!(scene.codex.ran(), Vec::<String>::new());
    scene.ends().await;
}
