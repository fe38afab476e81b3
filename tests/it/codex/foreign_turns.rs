//! Turns that codex begins by itself, as for a goal: nobody started them, so they are ended, nothing of them is allowed or
//! shown, and the conversation goes on.

use super::scene::CodexScene;
use super::scripted_peer::{LogEvent, OwnTurn, Scenario};

/// Codex was told to end its own turn, ran nothing in it, and serves the room in the same process.
async fn is_healthy(scene: &CodexScene, question: &str) {
    scene.asks(question, &format!("bot   {question}")).await;
    scene.receives("turn/interrupt", 1).await;
    let interrupted = scene.codex.received("turn/interrupt").remove(0)["turnId"].clone();
    assert!(interrupted.as_str().unwrap().starts_with("own-turn-"), "{interrupted}");
    let room = scene.room().now();
    assert!(!room.contains("Nobody asked.") && !room.contains("make own"), "{room}");
    assert_eq!(scene.codex.ran(), Vec::<String>::new());
}

#[tokio::test]
async fn codex_is_started_without_goals() {
    let scene = CodexScene::with(Scenario::default()).await;
    scene.asks("hello", "bot   hello").await;
    let log = scene.codex.log();
    let arguments = log.iter().find_map(|entry| match &entry.event {
        LogEvent::Started { arguments, .. } => Some(arguments.as_str()),
        _ => None,
    });
    assert_eq!(arguments, Some("app-server -c features.goals=false"));
    let started = scene.codex.received("thread/start").remove(0);
    assert_eq!(started["config"]["features.goals"], false);
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_that_codex_begins_after_ours_is_ended_and_the_next_question_is_answered() {
    let scene = CodexScene::with(Scenario::default().beginning_its_own(OwnTurn::AfterTurn)).await;
    scene.asks("one", "bot   one").await;
    is_healthy(&scene, "two").await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_that_codex_begins_in_a_resumed_thread_is_ended_before_ours() {
    let mut scene = CodexScene::with(Scenario::default()).await;
    scene.asks("one", "bot   one").await;
    scene.codex.plays(&Scenario::default().beginning_its_own(OwnTurn::AtResume));
    scene.gateway.restart().await;
    is_healthy(&scene, "two").await;
    assert_eq!(scene.codex.received("turn/start").len(), 2);
    assert_eq!(scene.codex.processes().len(), 2);
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_that_codex_runs_in_place_of_ours_ends_ours_with_its_reason() {
    let scene = CodexScene::with(Scenario::default().beginning_its_own(OwnTurn::InPlace)).await;
    scene.asks("one", "codex still works on an earlier task").await;
    is_healthy(&scene, "two").await;
    assert_eq!(scene.codex.received("turn/start").len(), 2, "the first is not repeated");
    scene.ends().await;
}
