//! Programs that misbehave: each ends in a clear error, or does no harm, and the gateway goes on with bounded memory.

use std::time::Duration;

use super::scene::AcpScene;
use super::scripted_agent::{Act, Script};
use crate::codex::bad_peers::{is_frugal, peak_memory};
use crate::support::gateway::Setup;

#[tokio::test]
async fn a_program_that_is_not_there_or_ends_at_once_is_told_and_the_next_try_starts_anew() {
    let scene =
        AcpScene::as_set(Script::default(), |config, _| config.command = "/nowhere/agent".into()).await;
    scene.asks("hello", "the program of this agent is not installed").await;
    scene.ends().await;

    let dying = Script::default().starting([Act::exits(7, "SECRET: no such option")]);
    let scene = AcpScene::with(dying).await;
    scene.asks("hello", "the program of this agent could not be started").await;
    assert!(!scene.room().now().contains("SECRET"));
    scene.agent.plays(&Script::default());
    scene.asks("again", "bot   again").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_program_that_is_no_agent_is_ended_in_time() {
    for act in [Act::waits("never"), Act::EndlessLine] {
        let scene = AcpScene::as_set(Script::default().initializing([act]), |_, times| {
            times.initialize = Duration::from_secs(1);
        })
        .await;
        scene.asks("hello", "the program of this agent").await;
        scene.comes_to("it is ended", || scene.children() == 0).await;
        scene.ends().await;
    }
    let other = Script { greeting: serde_json::json!({ "protocolVersion": 2 }), ..Script::default() };
    let scene = AcpScene::with(other).await;
    scene.asks("hello", "does not speak version 1").await;
    scene.ends().await;
    // `cat` sends back what it gets: that is no answer.
    let scene = AcpScene::as_set(Script::default(), |config, times| {
        config.command = "cat".into();
        times.initialize = Duration::from_secs(1);
    })
    .await;
    scene.asks("hello", "did not answer when it was started").await;
    scene.ends().await;
}

#[tokio::test]
async fn an_agent_that_dies_in_a_turn_keeps_its_text_and_the_next_turn_opens_its_conversation() {
    let script = Script::default().turn("die", [Act::says(&["I begin."]), Act::exits(1, "oops")]);
    let scene = AcpScene::with(script).await;
    scene.asks("die", "the agent ended unexpectedly").await;
    assert!(scene.room().now().contains("I begin."));
    scene.asks("hello", "bot   hello").await;
    assert_eq!(scene.agent.received("session/load").len(), 1);
    // An agent may also die between two turns.
    scene.ends().await;
}

#[tokio::test]
async fn noise_and_long_lines_do_no_harm() {
    let megabyte = 1024 * 1024;
    let script = Script::default()
        .starting([
            Act::writes("Welcome to the agent!\n\n\u{1b}[2J{\"jsonrpc\": \n"),
            Act::LongLine(20 * megabyte),
        ])
        .turn(
            "noise",
            [
                Act::says(&["Be"]),
                Act::LongLine(30 * megabyte),
                Act::LongMessage(4 * megabyte),
                Act::LongMessage(12 * megabyte),
                Act::writes("[]\nnull\n7\n{\"id\":77,\"result\":{}}\n"),
                Act::says(&["fore and after."]),
            ],
        );
    let scene = AcpScene::with(script).await;
    let before = peak_memory();
    scene.asks("noise", "fore and after.").await;
    is_frugal(before);
    scene.ends().await;
}

#[tokio::test]
async fn a_flood_is_cut_at_the_limit_of_a_turn_and_memory_stays_bounded() {
    let script = Script::default().turn("flood", [Act::Floods(200_000), Act::Hangs]);
    let scene = AcpScene::of(script, Setup { turn_bytes: 300_000, ..Setup::default() }, |_, _| {}).await;
    let before = peak_memory();
    scene.asks("flood", "cut short").await;
    is_frugal(before);
    scene.comes_to("the agent may be ended", || scene.children() <= 2).await;
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn an_endless_line_ends_at_the_deadline_of_the_turn() {
    let script = Script::default().turn("endless", [Act::says(&["Hm"]), Act::EndlessLine]);
    let scene = AcpScene::as_set(script, |config, times| {
        config.turn_timeout = Duration::from_secs(1);
        times.cancel = Duration::from_millis(200);
    })
    .await;
    let before = peak_memory();
    scene.asks("endless", "(cut short:").await;
    is_frugal(before);
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_conversation_that_is_refused_is_told() {
    for (code, words) in [(-32_000, "the agent is not logged in"), (-32_603, "did not open a conversation")] {
        let script = Script { new_error: Some((code, "SECRET".to_owned())), ..Script::default() };
        let scene = AcpScene::with(script).await;
        scene.asks("hello", words).await;
        assert!(!scene.room().now().contains("SECRET"));
        scene.agent.plays(&Script::default());
        scene.asks("again", "bot   again").await;
        scene.ends().await;
    }
}
