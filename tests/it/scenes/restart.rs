//! The end of the process, and how the next one continues.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AgentKind, RewindSupport};
use tokio::time::Instant;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Gate};
use crate::support::scripted::Scripted;

#[tokio::test(start_paused = true)]
async fn the_end_keeps_the_text_of_a_plain_turn_and_says_that_it_was_interrupted() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs();

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    gateway.drain().await;
    assert_snapshot!(room.now(), @r"
    @ann  tell me a story
    bot   Once upon a time
          (interrupted — /retry runs it again)
    ");

    gateway.restart().await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 1, "it may have run, so it is not run again");
    room.says("@ann", "/retry").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard()[1].prompt, "tell me a story");
}

#[tokio::test(start_paused = true)]
async fn a_resumable_turn_goes_on_in_the_next_process() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon ", "a time "]).then_hangs();
    gateway.agent().says(["Once "]).waits(Duration::from_secs(20)).says(["upon a time there was a gateway."]);

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    gateway.drain().await;
    assert_snapshot!(room.now(), @r"
    @ann  tell me a story
    bot…  Once upon a time
          (unfinished: the gateway was stopped and goes on when it is back)
    ");

    gateway.restart().await;
    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time there was a gateway.
    ");
    let heard = gateway.agent_itself().heard();
    assert!(heard[1].resumed && heard[1].key == heard[0].key && heard[1].request == heard[0].request);
    let shorter = room.history_of_first().into_iter().find(|text| text.len() < "Once upon a time".len());
    assert_eq!(shorter, None, "people are never shown less than they could read");
}

#[tokio::test(start_paused = true)]
async fn what_waits_survives_a_restart_in_its_order() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.says("@ann", "two").await;
    room.says("@ann", "three").await;
    gateway.restart().await;
    room.settled().await;

    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two", "three"]);
    assert_eq!(room.ours().iter().filter(|text| *text == "ok").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_nobody_reads_is_answered_after_the_start() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();

    gateway.drain().await;
    room.posts("@ann", "anybody there?", Vec::new());
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  anybody there?
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_remembered_over_a_restart() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().then_ignores_everything();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.says("@ann", "two").await;
    room.says("@ann", "/stop").await;
    gateway.restart().await;
    room.settled().await;

    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one"]);
    assert!(room.now().contains("Not run: it was stopped before its turn came."), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_in_time_even_if_the_agent_does_not_listen() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_ignores_everything();

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    let asked = Instant::now();
    gateway.drain().await;

    assert!(asked.elapsed() <= Duration::from_secs(8), "it took {:?}", asked.elapsed());
    assert!(room.now().contains("(interrupted — /retry runs it again)"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_shown_before_the_end_is_shown_by_the_next_process() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was a gateway."]);

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    room.settled().await;
    gateway.chat().next_edit(Fault::Late(Gate::default()));
    agent.goes_on();
    gateway.chat().until("the final is under way", || gateway.chat().requests().get(1).map(drop)).await;
    gateway.drain().await;
    assert_snapshot!(room.now(), @r"
    @ann  tell me a story
    bot…  Once upon a time
    ");

    gateway.restart().await;
    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time there was a gateway.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_might_have_become_a_tag_is_not_lost_at_the_end() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["A tag begins with\n", "<th"]).then_hangs();

    room.says("@ann", "what is a tag?").await;
    agent.is_hanging().await;
    gateway.drain().await;

    assert_snapshot!(room.now(), @r"
    @ann  what is a tag?
    bot   A tag begins with
          <th
          (interrupted — /retry runs it again)
    ");
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_at_one_agent_is_not_given_to_another() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs();
    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    room.settled().await;
    let other = Scripted::new(AgentKind::Proxy, "another", RewindSupport::Possible, false);
    gateway.setup().agent = Some(std::sync::Arc::new(other.clone()));
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time
          (interrupted — /retry runs it again)
    ");
    assert!(other.heard().is_empty());
}
