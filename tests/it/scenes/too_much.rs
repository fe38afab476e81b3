//! How much one person may ask, and two programs that would talk to each other for ever.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::Lists;
use talaria::rules::{AccountRules, Limits};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

async fn gateway(limits: Limits) -> TestGateway {
    let rules = AccountRules::listed(Lists { allow_all: true, ..Lists::default() });
    let rules = AccountRules { limits: Some(limits), ..rules };
    TestGateway::with(Setup { rules, ..Setup::default() }).await
}

/// Asks and waits for the answer, which takes no time worth mentioning.
async fn asks(room: &Room, who: &str, text: &str) {
    let before = room.ours().len();
    room.says(who, text).await;
    room.chat.until("it is answered", || (room.ours().len() > before).then_some(())).await;
    room.chat.is_quiet(Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_of_a_minute_is_refused_and_said_once() {
    let gateway = gateway(Limits { per_minute: 2, per_hour: 100 }).await;
    let room = gateway.shared_room();
    asks(&room, "@ann", "one").await;
    asks(&room, "@ann", "two").await;
    room.says("@ann", "three").await;
    room.says("@ann", "/status").await;
    // Others are not held back by it.
    room.says("@bob", "me too").await;
    assert_snapshot!(room.settled().await, @"
    @ann  one
    bot   ok
    @ann  two
    bot   ok
    @ann  three
    @ann  /status
    @bob  me too
    note  That is more than 2 messages in a minute. Please send it again a little later.
    bot   ok
    ");
    // A minute has passed.
    asks(&room, "@ann", "four").await;
    assert!(room.now().ends_with("@ann  four\nbot   ok\n"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_hour_holds_over_a_restart() {
    let mut gateway = gateway(Limits { per_minute: 100, per_hour: 3 }).await;
    for text in ["one", "two", "three"] {
        asks(&gateway.room(), "@ann", text).await;
    }
    gateway.restart().await;
    gateway.room().says("@ann", "four").await;
    let shown = gateway.room().settled().await;
    assert!(
        shown.ends_with("That is more than 3 messages in an hour. Please send it again later.\n"),
        "{shown}"
    );
    assert_eq!(gateway.agent_itself().heard().len(), 3);

    tokio::time::sleep(Duration::from_secs(3601)).await;
    asks(&gateway.room(), "@ann", "five").await;
    assert_eq!(gateway.agent_itself().heard().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn stop_is_heard_beyond_every_limit() {
    let gateway = gateway(Limits { per_minute: 1, per_hour: 1 }).await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    let room = gateway.room();
    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "/stop").await;
    assert_snapshot!(room.settled().await, @"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /stop
    ");
}

#[tokio::test(start_paused = true)]
async fn two_programs_that_talk_to_each_other_are_noticed_and_left_alone() {
    let gateway = gateway(Limits { per_minute: 100, per_hour: 1000 }).await;
    let room = gateway.shared_room();
    for number in 1..=8 {
        asks(&room, "@rob", &format!("beep {number}")).await;
    }
    room.says("@rob", "beep 9").await;
    room.says("@rob", "beep 10").await;
    let shown = room.settled().await;
    assert_snapshot!(shown.lines().skip(14).collect::<Vec<_>>().join("\n"), @"
    @rob  beep 8
    bot   ok
    @rob  beep 9
    @rob  beep 10
    note  This looks like two programs talking to each other, so I am silent here until somebody else writes, or 10 minutes have passed.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 8);

    // Somebody else ends the silence.
    asks(&room, "@ann", "who is there?").await;
    asks(&room, "@rob", "me").await;
    assert_eq!(gateway.agent_itself().heard().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_silence_ends_after_ten_minutes() {
    let gateway = gateway(Limits { per_minute: 100, per_hour: 1000 }).await;
    let room = gateway.shared_room();
    for _ in 0..8 {
        asks(&room, "@rob", "beep").await;
    }
    room.says("@rob", "beep").await;
    room.settled().await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    asks(&room, "@rob", "boop").await;
    assert_eq!(gateway.agent_itself().heard().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_reads_before_answering_is_no_program() {
    let gateway = gateway(Limits { per_minute: 100, per_hour: 1000 }).await;
    let room = gateway.shared_room();
    for _ in 0..20 {
        asks(&room, "@ann", "and then?").await;
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 20);
}
