//! The agent is told why an ask was denied.

use std::time::Duration;

use talaria::agent::{AskChoice, DenyReason};

use super::{FIVE_MINUTES, gateway};
use crate::support::gateway::TestGateway;
use crate::support::room::Room;
use crate::support::scripted::{Script, ask, or_text};

/// The denials that the agent got, in order.
fn reasons(gateway: &TestGateway) -> Vec<DenyReason> {
    let answers = gateway.agent_itself().answers().into_iter();
    answers
        .map(|answer| match answer.choice {
            AskChoice::Deny(reason) => reason,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// An agent that makes an approval and a question at once, which the room shows.
async fn asked() -> (TestGateway, Room, Script) {
    let gateway = gateway().await;
    let room = gateway.room();
    let script = gateway.agent().asks_all([ask("one", "rm one"), or_text(ask("two", "Which?"))]);
    room.says("@ann", "go on").await;
    room.is_asked("one").await;
    room.is_asked("two").await;
    room.chat.is_quiet(Duration::from_secs(1)).await;
    (gateway, room, script)
}

#[tokio::test(start_paused = true)]
async fn a_person_said_no() {
    let (gateway, room, _script) = asked().await;
    for asked in room.asked() {
        room.says("@ann", &format!("/deny {}", asked.code)).await;
    }
    room.settled().await;
    assert_eq!(reasons(&gateway), [DenyReason::Person; 2]);
}

#[tokio::test(start_paused = true)]
async fn nobody_answered() {
    let (gateway, room, _script) = asked().await;
    tokio::time::sleep(FIVE_MINUTES).await;
    room.settled().await;
    assert_eq!(reasons(&gateway), [DenyReason::Timeout; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_turn_was_stopped() {
    let (gateway, room, _script) = asked().await;
    room.says("@ann", "/stop").await;
    room.settled().await;
    assert_eq!(reasons(&gateway), [DenyReason::Stopped; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_process_ended() {
    let (mut gateway, _room, _script) = asked().await;
    gateway.drain().await;
    assert_eq!(reasons(&gateway), [DenyReason::Restart; 2]);
}

#[tokio::test(start_paused = true)]
async fn it_could_not_be_shown() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("one", &"x".repeat(1_000_000)).asks_all([or_text(ask("two", " "))]);
    room.says("@ann", "go on").await;
    room.settled().await;
    assert_eq!(reasons(&gateway), [DenyReason::TooLong; 2]);
}

#[tokio::test(start_paused = true)]
async fn it_asks_too_much() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all((0..10).map(|number| or_text(ask(&number.to_string(), "Which?"))));
    room.says("@ann", "go on").await;
    room.shows("asks for more than anybody could answer").await;
    tokio::time::sleep(FIVE_MINUTES).await;
    room.settled().await;
    let reasons = reasons(&gateway);
    let count = |reason| reasons.iter().filter(|other| **other == reason).count();
    assert_eq!((count(DenyReason::TooMany), count(DenyReason::Timeout)), (2, 8));
}

#[tokio::test(start_paused = true)]
async fn the_answer_could_not_be_stored() {
    let gateway = gateway().await;
    let room = gateway.room();
    let script = gateway.agent().then_hangs().asks("one", "rm one");
    room.says("@ann", "go on").await;
    script.is_hanging().await;
    room.chat.is_quiet(Duration::from_secs(5)).await;
    // Another program locks the database for longer than we wait.
    let other = rusqlite::Connection::open(gateway.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    script.goes_on();
    while gateway.agent_itself().answers().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(reasons(&gateway), [DenyReason::Failed]);
}
