//! `/stop` ends the running and the waiting turns at once, and keeps the text so far.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::RewindSupport;
use talaria::rules::AccountRules;
use talaria_platform::UserId;
use tokio::time::Instant;

use crate::support::gateway::{Setup, TestGateway};

#[tokio::test(start_paused = true)]
async fn stop_ends_the_turn_and_keeps_the_text() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().says(["Let me ", "think"]).then_hangs();

    gateway.room().says("@ann", "plan my week").await;
    agent.is_hanging().await;
    gateway.room().shows("Let me think").await;
    gateway.room().says("@ann", "/stop").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /stop
    ");
    assert!(!gateway.chat().is_typing(&gateway.room()));
}

/// As after a restart while the upstream's address drops every packet.
async fn whose_agent_never_says_what_it_can_do() -> TestGateway {
    let people = [UserId::from("@ann:test")].into();
    let rules = AccountRules::listed(AccessLists { people, ..AccessLists::default() });
    TestGateway::with(Setup { rewind: RewindSupport::Unknown, rules, ..Setup::default() }).await
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_changes_does_not_hold_a_stop_up() {
    let gateway = whose_agent_never_says_what_it_can_do().await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    let (room, all) = (gateway.room(), gateway.shared_room());
    let question = room.says("@ann", "plan my week").await;
    agent.is_hanging().await;

    let since = Instant::now();
    for _ in 0..3 {
        let theirs = all.says("@eve", "/undo").await;
        all.edits("@eve", &theirs, "hello there").await;
        all.deletes("@eve", &theirs).await;
        room.edits("@eve", &question, "plan mine").await;
    }
    room.says("@ann", "/stop").await;
    agent.is_told_to_stop().await;

    assert!(since.elapsed() < Duration::from_secs(1), "it took {:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_say_what_it_can_do_is_waited_for_once() {
    let gateway = whose_agent_never_says_what_it_can_do().await;
    let room = gateway.room();
    let question = room.says("@ann", "one").await;
    room.settled().await;

    let since = Instant::now();
    room.edits("@ann", &question, "two").await;
    for _ in 0..3 {
        room.says("@ann", "/undo").await;
    }

    assert!(since.elapsed() < Duration::from_secs(4), "it took {:?}", since.elapsed());
}

/// Another room's question takes all the memory for questions of rooms.
#[tokio::test(start_paused = true)]
async fn what_waits_for_memory_is_stopped_without_waiting() {
    let gateway = TestGateway::start().await;
    let gate = gateway.agent_itself().prepares_slowly();
    let other = gateway.direct_room("other");
    other.says("@bob", &"x".repeat(10_000_000)).await;

    gateway.room().says("@ann", "plan my week").await;
    gateway.room().says("@ann", "/stop").await;

    gateway.room().shows("note").await;
    assert_snapshot!(gateway.room().now(), @r"
    @ann  plan my week
    @ann  /stop
    note  Not run: it was stopped before its turn came.
    ");
    gate.open();
    gateway.room().says("@ann", "and now?").await;
    gateway.room().shows("bot   ok").await;
    assert_eq!(gateway.agent_itself().heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_stop_is_remembered() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();

    gateway.room().says("@ann", "plan my week").await;
    agent.is_hanging().await;
    gateway.room().says("@ann", "/stop").await;
    gateway.room().settled().await;
    gateway.room().says("@ann", "and now?").await;
    gateway.room().settled().await;

    let history: Vec<_> =
        gateway.agent_itself().heard()[1].history.iter().map(|m| m.content.clone()).collect();
    assert_eq!(history, ["plan my week", "Let me think"]);
}

#[tokio::test(start_paused = true)]
async fn stop_acts_at_once_while_the_upstream_is_silent() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().then_hangs();

    gateway.room().says("@ann", "plan my week").await;
    agent.is_hanging().await;
    let asked = Instant::now();
    gateway.room().says("@ann", "/stop").await;
    gateway.room().shows("(stopped)").await;

    assert!(asked.elapsed() < Duration::from_secs(1), "it took {:?}", asked.elapsed());
    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  plan my week
    @ann  /stop
    note  (stopped)
    ");
}

#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_long_for_an_agent_that_does_not_listen() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().then_ignores_everything();

    gateway.room().says("@ann", "plan my week").await;
    agent.is_hanging().await;
    let asked = Instant::now();
    gateway.room().says("@ann", "/stop").await;
    gateway.room().shows("(stopped)").await;

    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn stop_with_nothing_running_says_so() {
    let gateway = TestGateway::start().await;

    gateway.room().says("@ann", "/stop").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  /stop
    note  Nothing is running.
    ");
}

#[tokio::test(start_paused = true)]
async fn stop_also_ends_what_waits_and_each_is_told() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    let room = gateway.room();

    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "and my month").await;
    room.shows("Queued: one other message comes first.").await;
    room.says("@ann", "and my year").await;
    room.settled().await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  and my month
    note  Queued: 2 messages come before the last one. They are answered in order; /stop ends all of them.
    @ann  and my year
    @ann  /stop
    note  Not run: it was stopped before its turn came.
    note  Not run: it was stopped before its turn came.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}
