//! Conversations: one for each session, opened again after a restart, and never replaced silently.

use std::time::Duration;

use serde_json::json;

use super::scene::AcpScene;
use super::scripted_agent::{LoadRule, Script};

#[tokio::test]
async fn the_conversation_is_opened_again_after_a_restart_and_its_history_is_not_shown() {
    let mut scene = AcpScene::with(Script::default()).await;
    scene.asks("one", "bot   one").await;
    let folder = scene.session_folder();
    let opened = scene.agent.received("session/new").remove(0);
    assert_eq!(opened, json!({ "cwd": folder, "mcpServers": [] }));
    assert_eq!(scene.agent.variable("HOME"), std::env::var("HOME").ok(), "logins are there");
    scene.gateway.restart().await;
    scene.asks("two", "bot   two").await;
    let loaded = scene.agent.received("session/load").remove(0);
    assert!(loaded["sessionId"].as_str().unwrap().starts_with("session-") && loaded["cwd"] == json!(folder));
    assert_eq!(scene.agent.received("session/new").len(), 1);
    let room = scene.room().now();
    assert!(!room.contains("an earlier answer") && !room.contains("no longer"), "{room}");
    scene.ends().await;
}

#[tokio::test]
async fn a_conversation_that_the_agent_forgot_is_told_and_the_new_one_knows_what_was_said() {
    for script in [Script::default(), Script::default().without_load()] {
        let mut scene = AcpScene::with(script).await;
        scene.asks("my name is Ann", "bot   my name is Ann").await;
        scene.gateway.restart().await;
        scene.agent.forgets_everything();
        scene.asks("who am I?", "The agent no longer had this conversation").await;
        assert_eq!(scene.agent.received("session/new").len(), 2);
        let prompt = scene.agent.received("session/prompt")[1]["prompt"].to_string();
        assert!(prompt.contains("User: my name is Ann"), "{prompt}");
        // It is told once.
        scene.asks("hello", "bot   hello").await;
        assert_eq!(scene.room().now().matches("no longer had").count(), 1);
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_load_without_an_answer_is_an_error_of_its_own_and_begins_nothing() {
    for rule in [LoadRule::Hangs, LoadRule::Dies] {
        let mut scene =
            AcpScene::as_set(Script::default(), |_, times| times.load = Duration::from_millis(500)).await;
        scene.asks("one", "bot   one").await;
        scene.gateway.restart().await;
        scene.agent.plays(&Script::default().loading(rule));
        scene.asks("two", "the agent did not open this conversation again").await;
        assert_eq!(scene.agent.received("session/new").len(), 1, "{rule:?}");
        // The conversation stays what it is.
        scene.agent.plays(&Script::default());
        scene.asks("three", "bot   three").await;
        assert_eq!(scene.agent.received("session/new").len(), 1);
        assert!(!scene.room().now().contains("no longer"));
        scene.ends().await;
    }
}

#[tokio::test]
async fn new_begins_another_conversation_and_ends_the_process_of_the_old_one() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("one", "bot   one").await;
    scene.room().says("@ann", "/new").await;
    scene.comes_to("the process is ended", || scene.children() == 0).await;
    scene.asks("two", "bot   two").await;
    assert_eq!(
        (scene.agent.received("session/new").len(), scene.agent.received("session/load").len()),
        (2, 0)
    );
    scene.ends().await;
}

#[tokio::test]
async fn a_question_that_is_taken_back_is_no_part_of_the_next_conversation() {
    let scene = AcpScene::with(Script::default()).await;
    scene.asks("one", "bot   one").await;
    scene.asks("wrong", "bot   wrong").await;
    scene.room().is_answered("@ann", "/undo").await;
    scene.asks("two", "bot   two").await;
    assert_eq!(scene.agent.received("session/new").len(), 2);
    let prompts = scene.agent.received("session/prompt");
    let last = prompts.last().unwrap()["prompt"].to_string();
    assert!(last.contains("User: one") && !last.contains("wrong"), "{last}");
    scene.ends().await;
}

#[tokio::test]
async fn home_may_be_the_folder_of_the_session() {
    let scene = AcpScene::as_set(Script::default(), |config, _| {
        config.home = talaria::config::HomeSetting::Session;
    })
    .await;
    scene.asks("one", "bot   one").await;
    assert_eq!(scene.agent.variable("HOME"), scene.session_folder().to_str().map(str::to_owned));
    scene.ends().await;
}
