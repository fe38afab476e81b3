//! Conversations that end by themselves, where an operator wants that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use insta::assert_snapshot;
use talaria::rules::{AccountRules, SessionReset, SessionRules};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn gateway(reset: SessionReset) -> TestGateway {
    let setup = Setup::default();
    let session = SessionRules { reset, ..SessionRules::default() };
    TestGateway::with(Setup { rules: AccountRules { session, ..setup.rules.clone() }, ..setup }).await
}

async fn says(room: &Room, text: &str) {
    room.says("@ann", text).await;
    room.settled().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_long_pause_a_new_conversation_begins_and_the_old_one_is_kept() {
    let gateway = gateway(SessionReset::Idle { after: HOUR }).await;
    let room = gateway.room();

    says(&room, "I am Ann").await;
    tokio::time::sleep(HOUR * 2 / 3).await;
    says(&room, "still here").await;
    tokio::time::sleep(HOUR * 2 / 3).await;
    says(&room, "and here").await;
    tokio::time::sleep(HOUR).await;
    says(&room, "who am I?").await;
    says(&room, "/resume 1").await;
    says(&room, "and now?").await;

    let shown = room.now();
    let (before, after) = (shown.find("(last used").unwrap(), shown.find(" UTC, ").unwrap());
    assert_snapshot!(shown.replace(&shown[before..after], "(TIME"), @"
    @ann  I am Ann
    bot   ok
    @ann  still here
    bot   ok
    @ann  and here
    bot   ok
    @ann  who am I?
    note  A new conversation begins here by itself. /resume 1 goes back to the one before.
    bot   ok
    @ann  /resume 1
    note  Back in “I am Ann” (TIME UTC, messages: 6). Just go on.
    @ann  and now?
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[2].session, heard[0].session, "the pauses were short");
    assert!(heard[3].history.is_empty());
    // A conversation that was resumed does not end at once because it is old.
    assert_eq!(heard[4].session, heard[0].session);
    assert_eq!(heard[4].history.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_ends_at_a_time_of_the_day() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // An hour and a half from now, whatever the time is.
    let at = Duration::from_secs((now + 5400) % (24 * 60 * 60));
    let gateway = gateway(SessionReset::Daily { at }).await;
    let room = gateway.room();

    says(&room, "one").await;
    tokio::time::sleep(HOUR).await;
    says(&room, "two").await;
    tokio::time::sleep(HOUR).await;
    says(&room, "three").await;
    tokio::time::sleep(HOUR).await;
    says(&room, "four").await;

    assert_snapshot!(room.now(), @"
    @ann  one
    bot   ok
    @ann  two
    bot   ok
    @ann  three
    note  A new conversation begins here by itself. /resume 1 goes back to the one before.
    bot   ok
    @ann  four
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session);
    assert_ne!(heard[2].session, heard[1].session);
    assert_eq!(heard[3].session, heard[2].session, "once a day");
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_while_an_answer_runs() {
    let gateway = gateway(SessionReset::Idle { after: HOUR }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think"]).then_hangs();

    room.says("@ann", "something long").await;
    agent.is_hanging().await;
    tokio::time::sleep(2 * HOUR).await;
    says(&room, "are you there?").await;
    agent.goes_on();
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session);
    assert!(!room.now().contains("begins here by itself"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_never_began_does_not_end() {
    let gateway = gateway(SessionReset::Idle { after: HOUR }).await;
    let room = gateway.room();

    says(&room, "/new").await;
    tokio::time::sleep(2 * HOUR).await;
    says(&room, "hello").await;

    assert_snapshot!(room.now(), @"
    @ann  /new
    note  A new conversation begins here.
    @ann  hello
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_a_conversation_lasts() {
    let gateway = gateway(SessionReset::None).await;
    let room = gateway.room();

    says(&room, "one").await;
    tokio::time::sleep(24 * 30 * HOUR).await;
    says(&room, "two").await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session);
}
