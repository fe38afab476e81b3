//! Prompts that arrive during a turn wait in order, and the notice about them is true.

use std::time::Duration;

use insta::assert_snapshot;
use talaria_platform::{BodyKind, RateLimit, ShowMode};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::What;

#[tokio::test(start_paused = true)]
async fn prompts_wait_in_order_and_are_told_how_many_are_before_them() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().says(["The first answer"]).then_hangs();
    gateway.agent().says(["The second answer"]);
    gateway.agent().says(["The third answer"]);

    room.says("@ann", "one").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@ann", "two").await;
    room.shows("Queued: one other message comes first.").await;
    room.says("@bob", "three").await;
    room.shows("Queued: 2 messages come before").await;
    first.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   The first answer
    @ann  two
    note  Queued: 2 messages come before the last one. They are answered in order; /stop ends all of them.
    @bob  three
    bot   The second answer
    bot   The third answer
    ");
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn sixteen_wait_and_the_next_is_refused_for_all_to_see() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs();

    room.says("@ann", "running").await;
    first.is_hanging().await;
    for number in 1..=16 {
        room.says("@ann", &format!("waiting {number}")).await;
    }
    room.settled().await;
    room.says("@ann", "one too many").await;
    room.shows("this one was not taken").await;
    assert_eq!(
        room.ours(),
        [
            "Queued: 16 messages come before the last one. They are answered in order; /stop ends all of them.",
            "16 messages wait already, so this one was not taken. Please send it again later.",
        ]
    );
    room.says("@ann", "and another").await;
    room.settled().await;
    let full = "16 messages wait already, so the last 2 were not taken. Please send them again later.";
    assert_eq!(room.ours().get(1).map(String::as_str), Some(full));

    first.goes_on();
    room.settled().await;
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    let expected: Vec<_> =
        ["running".to_owned()].into_iter().chain((1..=16).map(|n| format!("waiting {n}"))).collect();
    assert_eq!(heard, expected);
}

/// "The last 2" would include the accepted one, which would then be asked twice, and the first never.
#[tokio::test(start_paused = true)]
async fn what_is_refused_after_something_was_taken_has_a_notice_of_its_own() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let (first, second) = (gateway.agent().then_hangs(), gateway.agent().then_hangs());

    room.says("@ann", "running").await;
    first.is_hanging().await;
    for number in 1..=16 {
        room.says("@ann", &format!("waiting {number}")).await;
    }
    room.settled().await;
    room.says("@ann", "refused").await;
    room.settled().await;
    first.goes_on();
    second.is_hanging().await;
    room.says("@ann", "taken").await;
    room.says("@ann", "refused too").await;
    room.settled().await;
    let refusals: Vec<_> = room.ours().into_iter().filter(|words| words.contains("not taken")).collect();
    let one = "16 messages wait already, so this one was not taken. Please send it again later.";
    assert_eq!(refusals, [one, one]);
    second.goes_on();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_question_that_is_edited_to_nothing_is_asked_as_it_was() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    let waiting = room.says("@ann", "two").await;
    room.edits("@ann", &waiting, "  \n").await;
    first.goes_on();
    room.settled().await;

    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two"]);
}

/// Synapse accepts ten messages at once and then one in five seconds.
#[tokio::test(start_paused = true)]
async fn ten_messages_at_once_cost_one_notice_and_its_edits() {
    let slow = Some(RateLimit { per_second: 0.2, burst: 10.0 });
    let gateway = TestGateway::with(Setup { rate: slow, limit: slow, ..Setup::default() }).await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs();
    room.says("@ann", "message 1").await;
    first.is_hanging().await;
    for number in 2..=10 {
        room.says("@ann", &format!("message {number}")).await;
    }
    room.settled().await;
    let requests = gateway.chat().requests();
    let notices: Vec<_> = requests.iter().filter(|request| request.body.kind == BodyKind::Notice).collect();
    let sent = notices.iter().filter(|request| request.what == What::Send).count();
    assert_eq!((sent, notices.len()), (1, 2), "{notices:?}");
    let noted =
        "Queued: 9 messages come before the last one. They are answered in order; /stop ends all of them.";
    assert_eq!(room.ours(), [noted]);

    first.goes_on();
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 10);
    assert_eq!(room.ours().len(), 11, "ten answers and one notice");

    // The next wait gets a notice of its own.
    let next = gateway.agent().then_hangs();
    room.says("@ann", "message 11").await;
    next.is_hanging().await;
    room.says("@ann", "message 12").await;
    room.settled().await;
    assert_eq!(room.ours().last().unwrap(), "Queued: one other message comes first. /stop ends both.");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_edited_one_notice_is_enough() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs();
    room.says("@ann", "message 1").await;
    first.is_hanging().await;
    for number in 2..=5 {
        room.says("@ann", &format!("message {number}")).await;
    }
    room.settled().await;
    assert_eq!(room.ours(), ["Queued: one other message comes first. /stop ends both."]);
}

/// The text describes the moment of the last message, so it stays true whatever happens in between.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_notice_that_waits_survives_a_restart() {
    let mut gateway = TestGateway::start().await;
    let first = gateway.agent().then_hangs();
    gateway.room().says("@ann", "message 1").await;
    first.is_hanging().await;
    gateway.room().says("@ann", "message 2").await;
    gateway.room().shows("Queued: one other message comes first").await;
    gateway.room().says("@ann", "message 3").await;
    gateway.restart().await;
    gateway.room().settled().await;
    let noted =
        "Queued: 2 messages come before the last one. They are answered in order; /stop ends all of them.";
    let ours = gateway.room().ours();
    assert_eq!(ours.iter().filter(|text| text.starts_with("Queued: ")).collect::<Vec<_>>(), [noted]);
}

#[tokio::test(start_paused = true)]
async fn a_notice_far_above_is_not_changed_any_more() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs();
    room.says("@ann", "message 1").await;
    first.is_hanging().await;
    room.says("@ann", "message 2").await;
    room.settled().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    room.says("@ann", "message 3").await;
    room.settled().await;
    assert_eq!(room.ours().len(), 2);
}
