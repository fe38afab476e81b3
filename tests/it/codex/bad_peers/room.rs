//! A codex that misbehaves under a room: people read a clear sentence, nothing of codex' own words, and the next question is
//! answered.

use std::time::Duration;

use serde_json::{Value, json};

use super::is_frugal;
use crate::codex::scene::CodexScene;
use crate::codex::scripted_peer::{Act, Scenario, ScriptedAnswer};
use crate::support::gateway::Setup;
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

/// A message of a turn.
fn of_turn(method: &str, mut params: Value) -> Value {
    params["threadId"] = json!("$thread");
    params["turnId"] = json!("$turn");
    json!({ "method": method, "params": params })
}

#[tokio::test]
async fn a_flood_of_text_is_cut_at_the_limit_of_a_turn() {
    let delta = of_turn("item/agentMessage/delta", json!({ "itemId": "m", "delta": "x".repeat(1_000) }));
    let scenario = Scenario::default().turn("tell", [Act::repeats(&delta, 100_000), Act::Hangs]);
    let scene = CodexScene::of(scenario, Setup { turn_bytes: 300_000, ..Setup::default() }, |_| {}).await;
    let before = super::peak_memory();
    scene.room().says("@ann", "tell me").await;
    shows(&scene, &scene.room(), "(cut short:").await;
    is_frugal(before);
    is_healthy(&scene).await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_flood_of_items_costs_no_memory_and_has_an_end() {
    let item = json!({ "type": "commandExecution", "id": "call-$number", "command": "make", "cwd": "/",
        "status": "completed", "aggregatedOutput": "x".repeat(1_000), "exitCode": 0 });
    let item = of_turn("item/completed", json!({ "item": item }));
    let scenario = Scenario::default().turn("tell", [Act::repeats(&item, 1_000), Act::says(&["Done."])]);
    let scene = CodexScene::with(scenario).await;
    let before = super::peak_memory();
    scene.room().says("@ann", "tell me").await;
    shows(&scene, &scene.room(), "Done.").await;
    is_frugal(before);
    is_healthy(&scene).await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn of_a_flood_of_requests_only_the_first_are_asked_and_the_others_are_refused() {
    const REQUESTS: usize = 40;
    const ASKED: usize = 16;
    let mut request = of_turn(
        "item/commandExecution/requestApproval",
        json!({ "kind": "command", "itemId": "call-$number", "command": "make $number", "cwd": "/" }),
    );
    request["id"] = json!("ask-$number");
    let scenario = Scenario::default().turn("tell", [Act::repeats(&request, REQUESTS), Act::Hangs]);
    let scene = CodexScene::with(scenario).await;
    let before = super::peak_memory();
    scene.room().says("@ann", "tell me").await;
    let refused = || scene.codex.answers().iter().filter(|answer| !answer["error"].is_null()).count();
    scene.comes_to("the others are refused", || refused() == REQUESTS - ASKED).await;
    assert_eq!(scene.codex.answers().len(), REQUESTS - ASKED, "nobody has answered the first ones");
    shows(&scene, &scene.room(), "asks for more than anybody could answer").await;
    is_frugal(before);
    scene.room().says("@ann", "/stop").await;
    shows(&scene, &scene.room(), "(stopped)").await;
    let allowed =
        scene.codex.answers().iter().filter(|answer| answer["result"]["decision"] == "accept").count();
    assert_eq!((allowed, scene.codex.ran()), (0, Vec::<String>::new()));
    is_healthy(&scene).await;
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
