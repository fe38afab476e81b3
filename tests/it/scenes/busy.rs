//! A prompt that comes while an answer runs: it waits, or replaces the running one.

use std::collections::HashMap;

use insta::assert_snapshot;
use talaria::rules::{AccountRules, BusyPolicy, PlaceRules};
use talaria_platform::RoomId;

use crate::support::gateway::{Setup, TestGateway};

async fn gateway(change: impl FnOnce(&mut AccountRules)) -> TestGateway {
    let mut setup = Setup::default();
    change(&mut setup.rules);
    TestGateway::with(setup).await
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_interrupts_stops_the_answer_keeps_its_text_and_runs() {
    let gateway = gateway(|rules| rules.busy = BusyPolicy::Interrupt).await;
    let room = gateway.room();
    let first = gateway.agent().says(["Monday: laundry."]).then_hangs();
    gateway.agent().says(["It rains."]);

    room.says("@ann", "plan my week").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@ann", "wait, how is the weather?").await;

    assert_snapshot!(room.settled().await, @"
    @ann  plan my week
    bot   Monday: laundry.
          (stopped)
    @ann  wait, how is the weather?
    bot   It rains.
    ");
    assert!(first.was_told_to_stop());
    // The interrupted conversation is in the history.
    let history: Vec<_> =
        gateway.agent_itself().heard()[1].history.iter().map(|message| message.content.clone()).collect();
    assert_eq!(history, ["plan my week", "Monday: laundry."]);
}

#[tokio::test(start_paused = true)]
async fn of_many_interruptions_the_last_is_answered() {
    let gateway = gateway(|rules| rules.busy = BusyPolicy::Interrupt).await;
    let room = gateway.room();
    let first = gateway.agent().when("one").then_ignores_everything();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    for text in ["two", "three", "four"] {
        room.says("@ann", text).await;
    }
    assert_snapshot!(room.settled().await, @"
    @ann  one
    @ann  two
    @ann  three
    @ann  four
    note  (stopped)
    note  Not run: it was stopped before its turn came.
    note  Not run: it was stopped before its turn came.
    bot   ok
    ");
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "four"]);
}

#[tokio::test(start_paused = true)]
async fn a_room_can_be_different_from_its_account() {
    let gateway = gateway(|rules| {
        rules.busy = BusyPolicy::Interrupt;
        rules.places = HashMap::from([(
            RoomId::from("!all"),
            PlaceRules { busy: Some(BusyPolicy::Queue), ..PlaceRules::default() },
        )]);
    })
    .await;
    let room = gateway.shared_room();
    let first = gateway.agent().says(["The first answer"]).then_hangs();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@bob", "two").await;
    room.settled().await;
    first.goes_on();
    assert_snapshot!(room.settled().await, @"
    @ann  one
    bot   The first answer
    @bob  two
    note  Queued: one other message comes first. /stop ends both.
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn an_interruption_survives_a_restart() {
    let mut gateway = gateway(|rules| rules.busy = BusyPolicy::Interrupt).await;
    let room = gateway.room();
    let first = gateway.agent().when("one").says(["The first answer"]).then_hangs();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@ann", "two").await;
    gateway.restart().await;
    let shown = room.settled().await;
    assert!(shown.contains("The first answer\n      (stopped)\n"), "{shown}");
    assert!(shown.ends_with("bot   ok\n"), "{shown}");
}
