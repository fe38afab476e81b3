//! No answer, a stop, the end of the process: each of them denies.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AskChoice, DenyReason};

use super::{FIVE_MINUTES, gateway, masked, outcomes, people, settled};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::scripted::ask;

#[tokio::test(start_paused = true)]
async fn nobody_answers_within_five_minutes() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build").says(["Then not."]);

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.shows("nobody answered within 5 minutes: `run a command`").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.settled().await;

    assert!(room.now().contains("Nothing with the code"), "{}", room.now());
    let answers = gateway.agent_itself().answers();
    assert_eq!(answers[0].choice, AskChoice::Deny(DenyReason::Timeout));
    assert_eq!(answers[0].at - answers[0].asked.at, FIVE_MINUTES);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (timeout)"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_denies_what_is_asked() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway
        .agent()
        .says(["Let me clean up."])
        .waits(Duration::from_secs(2))
        .asks("run a command", "rm -r build")
        .then_hangs();

    room.says("@ann", "clean up").await;
    room.is_asked("run a command").await;
    room.shows("Let me clean up").await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(settled(&room).await, @"
    @ann  clean up
    bot   Let me clean up.
          (stopped)
    ask   The agent asks for permission: `run a command`
          ```
          rm -r build
          ```
          `/approve CODE` allows it once, `/deny CODE` refuses it. Add `session` to be asked this only once in this conversation.
    @ann  /stop
    note  Denied, because it was stopped: `run a command`
    ");
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (stopped)"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_back_an_approval_that_came_a_moment_before() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build").then_hangs();

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.chat.is_quiet(Duration::from_secs(1)).await;
    // Both come in one batch.
    room.posts("@ann", &format!("/approve {} session", asked.code), Vec::new());
    room.posts("@bob", "/stop", Vec::new());
    room.settled().await;

    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (stopped)"]);
    assert!(room.now().contains("Denied, because it was stopped"), "{}", room.now());
    // No grant is left for the next time.
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "again").await;
    room.chat.until("it is asked again", || room.asked().get(1).map(drop)).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_nothing_can_be_approved_even_if_the_agent_does_not_end() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all([ask("one", "rm one")]).then_hangs();

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("one").await;
    room.posts("@bob", "/stop", Vec::new());
    room.posts("@ann", &format!("/approve {}", asked.code), Vec::new());
    room.settled().await;

    assert!(room.now().contains("Nothing with the code"), "{}", room.now());
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_process_denies_and_says_so() {
    let mut gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    gateway.drain().await;
    assert!(room.now().contains("Denied, because the gateway restarted: `run a command`"), "{}", room.now());
    room.posts("@ann", &format!("/approve {}", asked.code), Vec::new());
    gateway.restart().await;
    room.settled().await;

    assert!(room.now().contains("Nothing with the code"), "{}", room.now());
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (restart)"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_goes_on_in_the_next_process_asks_again() {
    let mut gateway = TestGateway::with(Setup { resumable: true, rules: people(), ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");
    gateway.agent().asks("run a command", "rm -r build").says(["Done."]);

    room.says("@ann", "clean up").await;
    let first = room.is_asked("run a command").await;
    gateway.restart().await;
    room.chat.until("it is asked again", || room.asked().get(1).map(drop)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    room.says("@ann", &format!("/approve {}", first.code)).await;
    room.shows("Nothing with the code").await;
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    room.says("@ann", "/approve").await;
    room.settled().await;

    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
    let outcomes = outcomes(&gateway).await;
    assert_eq!(outcomes, ["ask no by (gateway) (restart)", "ask once yes by @ann:test (approved)"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_left_open_is_denied_before_anybody_can_answer() {
    let mut gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    gateway.kill().await;
    assert!(!room.now().contains("Denied"), "{}", room.now());
    room.posts("@ann", &format!("/approve {}", asked.code), Vec::new());
    gateway.restart().await;

    room.settled().await;
    let mut said = room.ours().split_off(1);
    said.sort();
    let unknown = format!("Nothing with the code {} is waiting for an answer here.", asked.code);
    let denied = "Denied, because the gateway restarted: `run a command`";
    assert_eq!(said, ["(interrupted — /retry runs it again)", denied, &unknown]);
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (restart)"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_no_longer_waits_is_not_allowed_anything() {
    let gateway = gateway().await;
    let room = gateway.room();
    let agent =
        gateway.agent().asks_briefly(Duration::from_secs(30), "run a command", "rm -r build").then_hangs();

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    agent.is_hanging().await;
    room.shows("Denied, because the agent no longer waits for it: `run a command`").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    agent.goes_on();
    room.settled().await;

    assert!(masked(&room).contains("Nothing with the code CODE"), "{}", room.now());
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (gone)"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_takes_what_their_turn_asks_along() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.leaves("@ann").await;
    room.says("@bob", &format!("/approve {}", asked.code)).await;
    room.settled().await;

    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (stopped)"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_cannot_keep_is_denied_and_nobody_can_allow_it_afterwards() {
    let gateway = gateway().await;
    let room = gateway.room();
    let agent =
        gateway.agent().asks_briefly(Duration::from_secs(30), "run a command", "rm -r build").then_hangs();
    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.chat.is_quiet(Duration::from_secs(5)).await;

    // Another program locks the database for longer than we wait.
    let other = rusqlite::Connection::open(gateway.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    agent.is_hanging().await;
    let denied = || gateway.store().write(|_| Ok(()));
    assert!(denied().await.is_err(), "the store cannot keep anything");
    assert_eq!(outcomes(&gateway).await, [""; 0]);
    other.execute_batch("ROLLBACK").unwrap();

    room.shows("Denied, because the agent no longer waits for it").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.shows("Nothing with the code").await;
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (gone)"]);
}
