//! The person who sends /retry asks for that run, even if another person wrote the question.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::{AgentErrorKind, TokenUsage};
use talaria::rules::AccountRules;
use talaria::store::{TurnOverview, Tx};
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;
use crate::support::scripted::Script;

/// Nothing ran, so it is tried again.
const BUSY: AgentErrorKind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) };

/// Rules that allow only these people, everywhere.
fn only(people: &[&str]) -> AccountRules {
    let people = people.iter().map(|id| UserId::from(*id)).collect();
    AccountRules::listed(AccessLists { people, ..AccessLists::default() })
}

/// Ann and Bob share a room, and Ann has asked something there.
async fn after_anns_question() -> (TestGateway, Room) {
    let rules = only(&["@ann:test", "@bob:test"]);
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = gateway.shared_room();
    room.says("@ann", "what is Lisp?").await;
    room.settled().await;
    (gateway, room)
}

/// Bob asks Ann's question again, and the answer hangs.
async fn bobs_retry_hangs(gateway: &TestGateway, room: &Room) -> Script {
    let again = gateway.agent().says(["A language"]).then_hangs();
    room.says("@bob", "/retry").await;
    again.is_hanging().await;
    room.settled().await;
    again
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_the_request_of_whoever_sent_it_with_the_words_of_whoever_wrote_them() {
    let (gateway, room) = after_anns_question().await;
    let again = gateway.agent().uses(30, 7).then_hangs();
    room.says("@bob", "/retry").await;
    again.is_hanging().await;

    let open: Vec<TurnOverview> = gateway.store().read(|tx: &Tx<'_>| tx.turns_under_way()).await.unwrap();
    assert_eq!(open.iter().map(|turn| turn.author.as_str()).collect::<Vec<_>>(), ["@bob:test"]);
    again.goes_on();
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].prompt, "\"ann\" (@ann:test): what is Lisp?");
    assert_eq!(heard[1].origin.user_id.as_deref(), Some("@bob:test"));
    assert_eq!(heard[1].origin.user_name.as_deref(), Some("bob"));
    assert!(heard[1].context.ends_with("\nPerson: \"bob\" (@bob:test)"), "{}", heard[1].context);
    let used = |who: &'static str| {
        gateway.store().read(move |tx: &Tx<'_>| tx.used_by_person(&"test".into(), &who.into(), 3600))
    };
    assert_eq!(used("@bob:test").await.unwrap().tokens, TokenUsage { input: 30, output: 7 });
    assert_eq!(used("@ann:test").await.unwrap().turns, 1, "only what she asked for herself");
}

#[tokio::test(start_paused = true)]
async fn the_words_stay_anns_however_often_and_by_whom_they_are_asked_again() {
    let (gateway, room) = after_anns_question().await;
    for who in ["@bob", "@bob", "@ann"] {
        room.says(who, "/retry").await;
        room.settled().await;
    }
    room.says("@bob", "go on").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    let asked = "\"ann\" (@ann:test): what is Lisp?";
    assert!(heard[..4].iter().all(|heard| heard.prompt == asked), "{heard:?}");
    assert_eq!(heard[4].history[0].content, asked);
    assert_eq!(heard[3].origin.user_id.as_deref(), Some("@ann:test"));
}

#[tokio::test(start_paused = true)]
async fn a_retry_ends_when_whoever_sent_it_leaves() {
    let (gateway, room) = after_anns_question().await;
    let _again = bobs_retry_hangs(&gateway, &room).await;

    room.leaves("@bob").await;

    assert_snapshot!(room.settled().await, @"
    @ann  what is Lisp?
    bot   ok
    @bob  /retry
    bot   A language
          (stopped)
    ");
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_on_when_only_whoever_wrote_the_words_leaves() {
    let (gateway, room) = after_anns_question().await;
    let again = bobs_retry_hangs(&gateway, &room).await;

    room.leaves("@ann").await;
    again.goes_on();

    assert_snapshot!(room.settled().await, @"
    @ann  what is Lisp?
    bot   ok
    @bob  /retry
    bot   A language
    ");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_does_not_run_for_somebody_who_lost_the_right() {
    let (mut gateway, room) = after_anns_question().await;
    gateway.agent().then_fails(BUSY, "The agent is busy.");
    room.says("@bob", "/retry").await;
    room.shows("Trying again").await;

    gateway.reload(only(&["@ann:test"]));
    gateway.restart().await;
    room.settled().await;

    assert_eq!(gateway.agent_itself().heard().len(), 2, "the question, and the try that failed");
}

#[tokio::test(start_paused = true)]
async fn the_words_of_somebody_who_may_no_longer_ask_are_not_asked_again_and_nothing_is_lost() {
    for leaves in [true, false] {
        let (gateway, room) = after_anns_question().await;
        match leaves {
            true => room.leaves("@ann").await,
            false => gateway.reload(only(&["@bob:test"])),
        }
        room.says("@bob", "/retry").await;

        let shown = room.settled().await;
        insta::allow_duplicates! {
            assert_snapshot!(shown, @"
            @ann  what is Lisp?
            bot   ok
            @bob  /retry
            note  The person who asked that may no longer ask here, so nothing was done. Ask it in your own words.
            ");
        }
        room.says("@bob", "go on").await;
        room.settled().await;
        let heard = gateway.agent_itself().heard();
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[1].history.len(), 2, "question and answer are still remembered");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_sent_a_retry_can_delete_it_while_it_waits() {
    let (gateway, room) = after_anns_question().await;
    gateway.agent().then_fails(BUSY, "The agent is busy.");
    let sent = room.says("@bob", "/retry").await;
    room.shows("Trying again").await;

    room.deletes("@bob", &sent).await;

    let shown = room.settled().await;
    assert!(shown.ends_with("(deleted)\n"), "{shown}");
}
