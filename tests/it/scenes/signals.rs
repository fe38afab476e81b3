//! Read receipts, and reactions on a question where the operator wants them.

use talaria::access::AccessLists;
use talaria::agent::AgentErrorKind;
use talaria::rules::AccountRules;
use talaria_platform::{MessageId, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Shown;

fn marked(event: &talaria_platform::EventId, mark: &str) -> Shown {
    Shown::Mark(MessageId::new(event.as_str()), mark.to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_up_is_marked_as_read_and_nothing_more_without_the_setting() {
    let gateway = TestGateway::start().await;
    let asked = gateway.room().says("@ann", "hello").await;
    gateway.room().settled().await;
    assert_eq!(gateway.chat().signals(), [Shown::Read(asked)]);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_learns_nothing_by_a_receipt() {
    let people = [UserId::from("@ann:test")].into();
    let rules = AccountRules::listed(AccessLists { people, ..AccessLists::default() });
    let gateway = TestGateway::with(Setup { rules, reactions: true, ..Setup::default() }).await;
    gateway.room().says("@eve", "hello").await;
    gateway.room().says("@eve", "/help").await;
    gateway.room().settled().await;
    assert_eq!(gateway.chat().signals(), []);
}

#[tokio::test(start_paused = true)]
async fn marks_say_how_a_question_goes() {
    let gateway = TestGateway::with(Setup { reactions: true, ..Setup::default() }).await;
    let room = gateway.room();
    let one = room.says("@ann", "one").await;
    room.settled().await;
    gateway.agent().then_fails(AgentErrorKind::Refused, "No.");
    let two = room.says("@ann", "two").await;
    room.settled().await;
    assert_eq!(
        gateway.chat().signals(),
        [
            Shown::Read(one.clone()),
            marked(&one, "👀"),
            marked(&one, "✅"),
            Shown::Read(two.clone()),
            marked(&two, "👀"),
            marked(&two, "❌"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_again_keeps_its_marks() {
    let gateway = TestGateway::with(Setup { reactions: true, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().then_fails(AgentErrorKind::Refused, "No.");
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.says("@ann", "/retry").await;
    room.settled().await;
    let signals = gateway.chat().signals();
    let marks: Vec<_> = signals.iter().filter(|signal| matches!(signal, Shown::Mark(..))).collect();
    assert_eq!(marks, [&marked(&asked, "👀"), &marked(&asked, "❌")]);
}
