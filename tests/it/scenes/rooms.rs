//! Rooms do not disturb each other, and each event counts once.

use insta::assert_snapshot;

use crate::support::gateway::TestGateway;

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_twice_is_answered_once() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    let asked = room.says("@ann", "hello").await;
    room.delivers_again(&asked).await;
    room.settled().await;
    room.delivers_again(&asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello
    bot   ok
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_again_after_a_restart_is_answered_once() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();

    let asked = room.says("@ann", "hello").await;
    room.settled().await;
    gateway.restart().await;
    room.delivers_again(&asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello
    bot   ok
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_room_that_hangs_holds_no_other_up() {
    let gateway = TestGateway::start().await;
    let (slow, quick) = (gateway.direct_room("!slow"), gateway.direct_room("!quick"));
    let hanging = gateway.agent().when("slow").then_hangs();

    slow.says("@ann", "something slow").await;
    hanging.is_hanging().await;
    quick.says("@bob", "something quick").await;

    assert_snapshot!(quick.settled().await, @r"
    @bob  something quick
    bot   ok
    ");
    assert_snapshot!(slow.now(), @"@ann  something slow");
}

#[tokio::test(start_paused = true)]
async fn rooms_do_not_share_what_was_said() {
    let gateway = TestGateway::start().await;
    let (one, other) = (gateway.direct_room("!one"), gateway.direct_room("!other"));

    one.says("@ann", "I am Ann").await;
    one.settled().await;
    other.says("@bob", "who am I?").await;
    other.settled().await;

    let heard = gateway.agent_itself().heard();
    assert!(heard[1].history.is_empty(), "{:?}", heard[1].history);
    assert_ne!(heard[0].session, heard[1].session);
}

#[tokio::test(start_paused = true)]
async fn in_a_shared_room_the_agent_is_told_who_speaks() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();

    room.says("@ann", "I like tea").await;
    room.settled().await;
    room.says("@bob", "what does Ann like?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[0].prompt, "\"ann\" (@ann:test): I like tea");
    assert_eq!(heard[1].history[0].content, "\"ann\" (@ann:test): I like tea");
    assert_eq!(heard[1].prompt, "\"bob\" (@bob:test): what does Ann like?");
}
