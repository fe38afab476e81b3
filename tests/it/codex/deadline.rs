//! The deadline of a turn: it delivers the text there is, and does not run while a person thinks.

use std::time::Duration;

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario};

fn thinking() -> Scenario {
    Scenario::default()
        .turn("slow", [Act::says(&["I have begun."]), Act::says_half(&["And n"]), Act::Hangs])
        .turn("ask", [Act::runs_if_allowed("make", "ok"), Act::says(&["Built."])])
}

#[tokio::test]
async fn at_the_deadline_the_text_is_delivered_and_marked_as_incomplete() {
    let scene =
        CodexScene::as_set(thinking(), |config| config.turn_timeout = Duration::from_millis(500)).await;
    scene.asks("slow", "(cut short: the task took longer than it may").await;
    let room = scene.room().now();
    assert!(room.contains("I have begun.") && room.contains("And n"), "{room}");
    assert_eq!(scene.codex.received("turn/interrupt").len(), 1);
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn the_deadline_does_not_run_while_a_person_thinks() {
    let scene =
        CodexScene::as_set(thinking(), |config| config.turn_timeout = Duration::from_millis(500)).await;
    scene.room().says("@ann", "ask me").await;
    let asked = scene.room().is_asked("make").await;
    // A turn in another room shows that the time is up by now, twice.
    let other = scene.gateway.direct_room("!other");
    for question in ["slow 1", "slow 2"] {
        other.says("@ann", question).await;
        let count = usize::from(question == "slow 2") + 1;
        scene
            .comes_to("the other turn is over", || other.now().matches("longer than it may").count() == count)
            .await;
    }
    scene.asks(&format!("/approve {}", asked.code), "Built.").await;
    scene.ends().await;
}
