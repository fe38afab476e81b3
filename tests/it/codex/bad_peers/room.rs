//! A codex that misbehaves under a room: people read a clear sentence, nothing of codex' own words, and the next question is
//! answered.

use std::time::Duration;

use serde_json::json;

use super::is_frugal;
use crate::codex::scene::CodexScene;
use crate::codex::scripted_peer::{Act, Scenario, ScriptedAnswer};
use crate::support::room::Room;

/// Words of a codex on standard error, which belong into the log.
const LAST_WORDS: &str = "error: cannot read /home/ann/.codex/config.toml\n";

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks a question that every scenario here answers well, in the same room and in another.
async fn is_healthy(scene: &CodexScene) {
    scene.codex.plays(&Scenario::default());
    scene.room().says("@ann", "are you well?").await;
    shows(scene, &scene.room(), "bot   are you well?").await;
    let other = scene.gateway.direct_room("!other");
    other.says("@bob", "and here?").await;
    shows(scene, &other, "bot   and here?").await;
}

/// Waits until a room shows these words.
async fn shows(scene: &CodexScene, room: &Room, words: &str) {
    if tokio::time::timeout(PATIENCE, room.shows(words)).await.is_err() {
        panic!("no {words:?}:\n{}\n{}", room.now(), scene.codex.history());
    }
}

/// The room comes to show these words, and nothing that codex wrote about itself.
async fn says(scene: &CodexScene, words: &str) {
    shows(scene, &scene.room(), words).await;
    let room = scene.room().now();
    assert!(!room.contains("config.toml") && !room.contains("xxxx"), "{room}");
}

#[tokio::test]
async fn noise_and_long_lines_around_a_turn_are_seen_by_nobody() {
    let delta = br#"{"method":"item/agentMessage/delta","params":{"threadId":"$thread","turnId":"$turn","itemId":"m","delta":"#;
    let item = |text: &[u8]| {
        let start = br#"{"method":"item/completed","params":{"threadId":"$thread","turnId":"$turn","item":{"type":"agentMessage","id":"m","text":"#;
        [&start[..], text, b"}}}\n"].concat()
    };
    let scenario = Scenario::default()
        .starting([Act::writes(*b"Welcome to codex!\n\n\xff\xfe\n{\"half\": \n[1, 2]\n\"x\"\n{}\n")])
        .initializing([Act::writes(*b"Loading...\r\n"), Act::LongLine(20_000_000)])
        .turn(
            "menu",
            [
                Act::notifies(
                    "item/started",
                    json!({ "item": { "type": "agentMessage", "id": "m", "text": "" } }),
                ),
                Act::LongMessage(20_000_000),
                Act::Writes([&delta[..], b"\"caf\xc3 cr\xe8me\"}}\n"].concat()),
                Act::writes(*b"warning: slow network\n"),
                Act::Writes(item(b"\"caf\xc3 cr\xe8me\"")),
            ],
        );
    let scene = CodexScene::with(scenario).await;
    scene.asks("the menu, please", "caf\u{fffd} cr\u{fffd}me").await;
    says(&scene, "caf\u{fffd} cr\u{fffd}me").await;
    assert!(!scene.room().now().contains("slow network"));
    is_healthy(&scene).await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_ends_at_its_start_is_said_without_its_words() {
    for scenario in [
        Scenario::default().starting([Act::exits(3, LAST_WORDS)]),
        Scenario::default().initializing([Act::exits(3, LAST_WORDS)]),
        Scenario::default().always("initialize", ScriptedAnswer::error(-32600, "config.toml is bad")),
    ] {
        let scene = CodexScene::with(scenario).await;
        scene.room().says("@ann", "hello").await;
        says(&scene, "codex could not be started").await;
        is_healthy(&scene).await;
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_codex_that_never_answers_initialize_is_ended_and_said() {
    let scene = CodexScene::with(Scenario::default().initializing([Act::Hangs])).await;
    scene.room().says("@ann", "hello").await;
    says(&scene, "codex did not answer when it was started").await;
    assert_eq!(scene.children(), 0, "it is ended");
    is_healthy(&scene).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_does_not_read_any_more_is_replaced() {
    let scene =
        CodexScene::with(Scenario::default().turn("first", [Act::says(&["One."]), Act::StopsReading])).await;
    scene.asks("first", "One.").await;
    scene.codex.plays(&Scenario::default());
    scene.room().says("@ann", "hello").await;
    says(&scene, "codex did not answer in time").await;
    is_healthy(&scene).await;
    assert_eq!(scene.codex.processes().len(), 2);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_is_stuck_while_nothing_runs_is_replaced_before_the_next_conversation_begins() {
    let scene =
        CodexScene::with(Scenario::default().turn("first", [Act::says(&["One."]), Act::StopsReading])).await;
    scene.asks("first", "One.").await;
    scene.codex.plays(&Scenario::default());
    let other = scene.gateway.direct_room("!other");
    other.says("@bob", "hello").await;
    shows(&scene, &other, "bot   hello").await;
    assert_eq!(scene.codex.processes().len(), 2);
    scene.ends().await;
}

#[tokio::test]
async fn an_endless_line_ends_codex_and_the_room_keeps_the_text() {
    let scenario = Scenario::default().turn("tell", [Act::says_half(&["Once upon"]), Act::EndlessLine]);
    let scene = CodexScene::with(scenario).await;
    let before = super::peak_memory();
    scene.room().says("@ann", "tell me a story").await;
    says(&scene, "codex ended unexpectedly").await;
    assert!(scene.room().now().contains("Once upon"), "{}", scene.room().now());
    is_frugal(before);
    is_healthy(&scene).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_flood_is_borne_and_the_answer_comes() {
    let scenario = Scenario::default().turn("tell", [Act::Floods(100_000), Act::says(&["Done."])]);
    let scene = CodexScene::with(scenario).await;
    let before = super::peak_memory();
    scene.asks("tell me", "Done.").await;
    is_frugal(before);
    is_healthy(&scene).await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_flood_of_long_messages_costs_no_memory() {
    let long: Vec<Act> =
        (0..100).map(|_| Act::LongMessage(4_000_000)).chain([Act::says(&["Done."])]).collect();
    let scene = CodexScene::with(Scenario::default().turn("tell", long)).await;
    let before = super::peak_memory();
    scene.asks("tell me", "Done.").await;
    is_frugal(before);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_dies_in_a_turn_is_said_with_the_text_so_far() {
    for end in [Act::Dies, Act::exits(1, LAST_WORDS)] {
        let scenario =
            Scenario::default().turn("tell", [Act::says_half(&["Once upon"]), Act::waits("end"), end]);
        let scene = CodexScene::with(scenario).await;
        scene.room().says("@ann", "tell me a story").await;
        scene.room().shows("Once upon").await;
        scene.codex.opens("end");
        says(&scene, "codex ended unexpectedly").await;
        assert!(scene.room().now().contains("Once upon"), "{}", scene.room().now());
        assert_eq!(scene.codex.received("turn/start").len(), 1, "a turn is never run again by itself");
        is_healthy(&scene).await;
        assert_eq!(scene.codex.processes().len(), 2);
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_turn_without_a_name_is_given_up_at_once() {
    let nameless = ScriptedAnswer::Result(json!({ "turn": { "status": "inProgress" } }));
    let scene = CodexScene::with(Scenario::default().once("turn/start", nameless)).await;
    scene.room().says("@ann", "tell me a story").await;
    says(&scene, "codex refused the request").await;
    // It may run all the same.
    scene.receives("turn/interrupt", 1).await;
    is_healthy(&scene).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_turn_whose_end_never_comes_can_be_stopped() {
    let scenario = Scenario::default().turn("tell", [Act::says_half(&["Once upon"]), Act::EndsSilently]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "tell me a story").await;
    scene.room().shows("Once upon").await;
    scene.room().says("@ann", "/stop").await;
    says(&scene, "(stopped)").await;
    is_healthy(&scene).await;
    scene.ends().await;
}
