//! Answers that were dropped, doubled or delayed on their way into the room.

use insta::assert_snapshot;
use talaria_platform::{BodyKind, PlatformErrorKind, RateLimit, ShowMode};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Fault;

#[tokio::test(start_paused = true)]
async fn a_final_that_cannot_be_an_edit_comes_anew() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs().says([" there was a gateway."]);

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    // One more partial edit may come before the final one; neither is possible.
    for _ in 0..2 {
        gateway.chat().next_edit(Fault::Answers(PlatformErrorKind::Unsupported));
    }
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot…  Once upon a time
    bot   Once upon a time there was a gateway.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_final_that_the_network_refuses_is_not_passed_over_in_silence() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Rejected));

    room.says("@ann", "speak").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    note  A part of the answer could not be shown here (turn 9617b1).
    ");
}

#[tokio::test(start_paused = true)]
async fn white_space_at_the_end_does_not_make_a_terminal_print_twice() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Append, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["That is all. \n\n"]).then_hangs();

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.settled().await;
    agent.goes_on();
    room.settled().await;

    // A terminal prints a text anew that does not begin with the printed text.
    let revisions = room.history_of_first();
    let [grown, last] = revisions.as_slice() else { panic!("{revisions:?}") };
    assert!(last.starts_with(grown.as_str()), "{revisions:?}");
    assert_eq!(room.ours(), ["That is all."]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_wait_behind_the_notices_of_its_room() {
    let slow = Some(RateLimit { per_second: 0.2, burst: 2.0 });
    let gateway = TestGateway::with(Setup { rate: slow, limit: slow, ..Setup::default() }).await;
    let room = gateway.room();
    let first = gateway.agent().then_hangs().says(["The first answer."]);

    room.says("@ann", "prompt 0").await;
    first.is_hanging().await;
    for number in 1..10 {
        room.says("@ann", &format!("prompt {number}")).await;
    }
    first.goes_on();
    room.shows("The first answer.").await;

    let ours = room.ours();
    let notices = ours.iter().filter(|text| text.starts_with("Queued: ")).count();
    assert!(notices <= 1, "{ours:?}");

    room.settled().await;
    let said = |kind| gateway.chat().requests().iter().filter(|request| request.body.kind == kind).count();
    assert_eq!(
        (said(BodyKind::Answer), said(BodyKind::Notice)),
        (10, 2),
        "and nothing is lost: one notice, and one change of it"
    );
}
