//! Prompts that arrive during a turn wait in order, and are told the truth.

use insta::assert_snapshot;

use crate::support::gateway::TestGateway;

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
    room.settled().await;
    room.says("@bob", "three").await;
    room.settled().await;
    first.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   The first answer
    @ann  two
    note  Noted; one is before it. /stop ends all of them.
    @bob  three
    note  Noted; 2 are before it. /stop ends all of them.
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

    let shown = room.settled().await;
    assert_snapshot!(shown.lines().skip(31).collect::<Vec<_>>().join("\n"), @r"
    note  Noted; 15 are before it. /stop ends all of them.
    note  Noted; 16 are before it. /stop ends all of them.
    @ann  one too many
    note  16 messages wait already, so this one was not taken. Please send it again later.
    ");

    first.goes_on();
    room.settled().await;
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    let expected: Vec<_> =
        ["running".to_owned()].into_iter().chain((1..=16).map(|n| format!("waiting {n}"))).collect();
    assert_eq!(heard, expected);
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
