//! Networks that are busy, forgetful or gone: a final message arrives, once.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::gateway::ExitReason;
use talaria_platform::{PlatformErrorKind, RateLimit};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Gate, What};

fn busy_for(seconds: u64) -> Fault {
    Fault::Answers(PlatformErrorKind::Retry { after: Some(Duration::from_secs(seconds)) })
}

const LOST: Fault = Fault::Answers(PlatformErrorKind::Retry { after: None });

#[tokio::test(start_paused = true)]
async fn a_busy_network_sheds_edits_but_never_the_final() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let words: Vec<String> = (1..=12).map(|n| format!("word{n} and so on, ")).collect();
    gateway.agent().says_slowly(Duration::from_secs(1), words.iter().map(String::as_str));
    gateway.chat().next_edit(busy_for(8));

    room.says("@ann", "speak").await;
    room.settled().await;

    let requests = gateway.chat().requests();
    let (refused, next) = (&requests[1], &requests[2]);
    assert!(next.at - refused.at >= Duration::from_secs(8), "the network's word wins");
    assert!(next.body.markdown.contains("word9"), "what came meanwhile is shown at once: {next:?}");
    assert_eq!(room.ours(), [words.concat().trim_end()]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_final_is_sent_again() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was a gateway."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    for fault in [busy_for(20), LOST, Fault::LostAnswer, busy_for(20)] {
        gateway.chat().next_edit(fault);
    }
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was a gateway.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_sending_is_in_doubt_is_posted_once() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::LostAnswer);
    gateway.chat().next_send(Fault::LostAnswer);
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was a gateway."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    agent.goes_on();
    room.settled().await;
    gateway.chat().next_send(Fault::LostAnswer);
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was a gateway.
    @ann  /stop
    note  Nothing is running.
    ");
}

#[tokio::test(start_paused = true)]
async fn what_came_while_a_sending_was_in_doubt_is_shown_too() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::LostAnswer);
    gateway
        .agent()
        .says(["Once upon a time"])
        .waits(Duration::from_millis(100))
        .says([" there was a gateway"])
        .then_hangs();

    room.says("@ann", "speak").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot…  Once upon a time there was a gateway
    ");
}

#[tokio::test(start_paused = true)]
async fn after_an_edit_in_doubt_the_final_is_shown_once_more() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let straggler = Gate::default();
    let agent = gateway
        .agent()
        .says(["Once upon a time"])
        .then_hangs()
        .says([" there was"])
        .waits(Duration::from_secs(3))
        .says([" a gateway."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    gateway.chat().next_edit(Fault::Late(straggler.clone()));
    agent.goes_on();
    room.shows("bot   Once upon a time there was a gateway.").await;
    straggler.open();
    room.shows("bot…  Once upon a time there was\n").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was a gateway.
    ");
    let requests = gateway.chat().requests();
    let [.., late, last, again] = requests.as_slice() else { panic!("{requests:#?}") };
    assert!(!late.body.done && last.body.done && again.body.done);
    assert!(
        again.at - last.at >= Duration::from_secs(25),
        "after the late edit's time: {:?}",
        again.at - last.at
    );
}

#[tokio::test(start_paused = true)]
async fn showing_a_final_once_more_never_blocks_the_room() {
    // So small a bucket has no token for optional edits.
    let rate = Some(RateLimit { per_second: 0.5, burst: 1.0 });
    let gateway = TestGateway::with(Setup { rate, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.chat().next_send(LOST);
    gateway.agent().says(["Once upon a time"]).waits(Duration::from_secs(60));

    room.says("@ann", "speak").await;
    room.settled().await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time
    @ann  /stop
    note  Nothing is running.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_somebody_removed_comes_anew() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was a gateway."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    room.loses_our_first_message();
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot…  (deleted)
    bot   Once upon a time there was a gateway.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_network_that_refuses_edits_still_gets_the_final() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was"]).then_hangs();

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    gateway.chat().next_edit(Fault::Answers(PlatformErrorKind::Rejected));
    agent.goes_on();
    room.settled().await;
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was
    ");
    assert_eq!(gateway.chat().requests().len(), 3, "after a refusal only the final is tried");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_first_is_answered_first_even_if_its_end_is_late() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let late = Gate::default();
    gateway.agent().says(["First."]);
    let second = gateway.agent().says(["Second, and at length"]).then_hangs();

    gateway.chat().next_send(Fault::Waits(late.clone()));
    room.says("@ann", "one").await;
    room.says("@ann", "two").await;
    second.is_hanging().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!room.now().contains("Second"), "{}", room.now());
    late.open();
    room.settled().await;
    second.goes_on();
    room.settled().await;

    let answers: Vec<_> = room.ours().into_iter().filter(|text| !text.starts_with("Queued: ")).collect();
    assert_eq!(answers, ["First.", "Second, and at length"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_account_stops_its_platform_and_keeps_what_it_owes() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Fatal));

    room.says("@ann", "/stop").await;
    assert_eq!(gateway.finished().await, ExitReason::NoPlatformLeft);
    assert_snapshot!(room.settled().await, @"@ann  /stop");

    gateway.restart().await;
    assert_snapshot!(room.settled().await, @r"
    @ann  /stop
    note  Nothing is running.
    ");
}

#[tokio::test(start_paused = true)]
async fn one_request_at_a_time_is_made_for_a_message() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let slow = Gate::default();
    let agent = gateway
        .agent()
        .says(["Once upon a time"])
        .then_hangs()
        .says_slowly(Duration::from_secs(2), [" there was", " a gateway", " that was patient."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    gateway.chat().next_edit(Fault::Waits(slow.clone()));
    agent.goes_on();
    // The turn is over, but the edit has got no response yet.
    gateway.chat().until("the edit is under way", || gateway.chat().requests().get(1).map(drop)).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    // Activity in another room makes the outbox check its rows.
    let elsewhere = gateway.direct_room("!elsewhere");
    elsewhere.says("@bob", "/stop").await;
    elsewhere.shows("Nothing is running.").await;
    let requests = || {
        let mut requests = gateway.chat().requests();
        requests.retain(|request| request.place == room.place());
        requests
    };
    assert_eq!(requests().len(), 2, "nothing overtakes it");
    slow.open();

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was a gateway that was patient.
    ");
    let requests = requests();
    assert_eq!(requests.len(), 3, "{requests:#?}");
    assert!(matches!(requests[2].what, What::Edit(_)) && requests[2].body.done);
}
