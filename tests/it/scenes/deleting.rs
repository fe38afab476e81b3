//! Deleting a question ends its turn and deletes its answer; it does not matter which person deleted it.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::RewindSupport;
use talaria::ids::TurnId;
use talaria::store::Tx;
use talaria_platform::{EventId, PlatformErrorKind, RateLimit};
use tokio::time::Instant;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Gate, What};

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_deleted_question_is_taken_back_and_forgotten() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says([&*"word ".repeat(60)]);
    let asked = room.says("@ann", "my secret is tea").await;
    room.settled().await;
    room.says("@ann", "hello").await;
    room.settled().await;

    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  my secret is tea
    bot   (deleted)
    bot   (deleted)
    @ann  hello
    bot   ok
    ");
    room.says("@ann", "what do you know?").await;
    room.settled().await;
    let heard = gateway.agent_itself().heard();
    let history: Vec<_> = heard[2].history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(history, ["hello", "ok"]);
    assert_ne!(heard[2].session, heard[1].session, "the agent is told another history");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_grows_ends_with_its_question() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    let asked = room.says("@ann", "my secret is tea").await;
    agent.is_hanging().await;
    room.settled().await;

    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  my secret is tea
    bot…  (deleted)
    ");
    assert!(agent.was_told_to_stop());
    room.says("@ann", "hello").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard()[1].history, []);
}

#[tokio::test(start_paused = true)]
async fn whoever_the_network_lets_delete_a_question_may() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    let mut event = room.event("@mod", talaria_platform::RoomEventKind::Deleted { of: asked });
    event.author.bot = true;
    room.does(event).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   (deleted)
    ");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_tried_until_it_is_done_also_after_a_crash() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    for _ in 0..3 {
        gateway.chat().deletion_fails(PlatformErrorKind::Retry { after: None });
    }
    room.deletes("@ann", &asked).await;
    gateway.kill().await;
    gateway.restart().await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  one
    bot   (deleted)
    ");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_what_an_earlier_process_was_answering_holds() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    let asked = room.says("@ann", "my secret is tea").await;
    agent.is_hanging().await;
    room.settled().await;
    gateway.kill().await;
    let room = gateway.room();
    room.takes_back("@ann", &asked);
    gateway.restart().await;

    let shown = gateway.room().settled().await;
    assert!(shown.ends_with("(deleted)\n"), "{shown}");
    assert!(gateway.room().ours().is_empty(), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn an_edited_question_is_deleted_with_the_one_message_that_answers_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    let agent = gateway.agent().then_hangs();
    room.edits("@ann", &asked, "two").await;
    agent.is_hanging().await;
    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   (deleted)
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_moderator_takes_away_while_it_grows_ends() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.settled().await;
    room.loses_our_first_message();
    room.deletes("@mod", &"m0".into()).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot…  (deleted)
    ");
    assert!(agent.was_told_to_stop());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_forget_is_owned_up_to() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Impossible, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   (deleted)
    note  The answer is taken back here, but this agent cannot forget what it was asked. /new begins a new conversation.
    ");
}

#[tokio::test(start_paused = true)]
async fn the_agent_that_was_asked_decides_and_not_the_one_that_answers_now() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Impossible, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.says("@ann", "/agent local").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;

    let shown = room.settled().await;
    assert!(shown.contains("this agent cannot forget what it was asked"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_taken_back_a_deletion_only_stops() {
    let gateway = TestGateway::with(Setup { delete: false, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    let asked = room.says("@ann", "two").await;
    agent.is_hanging().await;
    room.settled().await;
    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    @ann  two
    bot   Let me think about that for a while
          (stopped)
    ");
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_deleted_question_stays_on_record() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "my secret is tea").await;
    room.settled().await;
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    let running = room.says("@ann", "and milk").await;
    agent.is_hanging().await;
    room.settled().await;

    room.deletes("@ann", &asked).await;
    room.deletes("@ann", &running).await;
    room.settled().await;

    for event in [asked, running] {
        let id = TurnId::new(&"test".into(), &"!home".into(), &event, 0);
        let kept = gateway.store().read(move |tx: &Tx<'_>| Ok((tx.turn(&id)?, tx.finished(&id)?))).await;
        let (Some(turn), Some((_, end))) = kept.unwrap() else { panic!("{event}") };
        assert_eq!((turn.prompt.as_str(), end.text.as_str()), ("", ""), "{event}");
        assert!(turn.prepared.is_none(), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_not_be_taken_back_says_that_it_is_void() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "my secret is tea").await;
    room.settled().await;
    gateway.chat().deletion_fails(PlatformErrorKind::Rejected);
    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  my secret is tea
    note  (taken back)
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_comes_anew_if_its_message_was_taken_away_just_before_its_end() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think about that for a while"]).then_hangs();
    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.settled().await;
    for _ in 0..8 {
        gateway.chat().next_edit(Fault::Answers(PlatformErrorKind::Retry { after: None }));
    }
    agent.goes_on();
    gateway.chat().is_quiet(Duration::from_secs(4)).await;
    // This network still accepts edits of the deleted message, which nobody sees.
    room.deletes("@mod", &"m0".into()).await;
    room.settled().await;

    assert_eq!(room.ours().len(), 2, "{}", room.now());
    assert_eq!(gateway.chat().requests().last().map(|request| request.what.clone()), Some(What::Send));
}

/// A network like Matrix keeps each edit as an event of its own, which stays readable after the message is gone.
#[tokio::test(start_paused = true)]
async fn the_edits_of_a_deleted_answer_are_taken_back_too() {
    let mut gateway = TestGateway::start().await;
    gateway.agent().says(["one ", "two ", "three "]).then_hangs();
    let asked = gateway.room().says("@ann", "count").await;
    gateway.room().settled().await;
    gateway.room().deletes("@ann", &asked).await;
    gateway.room().settled().await;
    assert_eq!(gateway.chat().edits_left_behind(), 0);

    // Failures in between, and a restart, only make it take longer.
    gateway.agent().says(["one ", "two ", "three "]);
    let asked = gateway.room().says("@ann", "count again").await;
    gateway.room().settled().await;
    gateway.chat().deletion_fails(PlatformErrorKind::Retry { after: None });
    gateway.room().deletes("@ann", &asked).await;
    gateway.restart().await;
    gateway.room().settled().await;
    assert_eq!(gateway.chat().edits_left_behind(), 0);
    assert_eq!(gateway.room().ours(), Vec::<String>::new());
}

/// Synapse's default limit for an account: ten messages at once, then one in five seconds, redactions among them.
const SYNAPSE: RateLimit = RateLimit { per_second: 0.2, burst: 10.0 };

/// Asks for an answer that grows for so long that it gets many edits; the message and every edit are readable.
async fn asks_for_an_answer_with_many_edits(gateway: &TestGateway) -> EventId {
    let words: Vec<_> = (0..30).map(|number| format!("word {number} ")).collect();
    gateway.agent().says_slowly(Duration::from_secs(20), words.iter().map(String::as_str));
    let asked = gateway.room().says("@ann", "count").await;
    gateway.room().shows("word 29").await;
    gateway.room().settled().await;
    let edits = gateway.room().history_of_first().len() - 1;
    assert!(edits >= 20, "{edits} edits");
    asked
}

/// The network counts each redaction of an edit like a message.
#[tokio::test(start_paused = true)]
async fn whoever_asks_while_the_edits_of_a_deleted_answer_go_does_not_wait_for_them() {
    let setup = Setup { rate: Some(SYNAPSE), limit: Some(SYNAPSE), ..Setup::default() };
    let mut gateway = TestGateway::with(setup).await;
    let asked = asks_for_an_answer_with_many_edits(&gateway).await;
    gateway.room().deletes("@ann", &asked).await;
    gateway.room().shows("(deleted)").await;
    let all = gateway.chat().edits_left_behind();
    // Many redactions are done by now, and many are left.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = gateway.chat().edits_left_behind();
    assert!((1..all).contains(&left), "{left} of {all}");

    let began = Instant::now();
    for number in 0..8 {
        gateway.direct_room(&format!("!room{number}")).says("@ann", "hello").await;
    }
    gateway.room().says("@ann", "hello").await;
    for number in 0..8 {
        gateway.direct_room(&format!("!room{number}")).shows("bot   ok").await;
    }
    gateway.room().shows("bot   ok").await;
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(2), "nine answers took {waited:?}");

    // The remaining redactions are made in the end, even after a restart.
    gateway.restart().await;
    gateway.room().settled().await;
    assert_eq!(gateway.chat().edits_left_behind(), 0);
}

/// An account that is never idle gets there too.
#[tokio::test(start_paused = true)]
async fn the_edits_of_a_deleted_answer_go_also_on_a_busy_account() {
    let setup = Setup { rate: Some(SYNAPSE), limit: Some(SYNAPSE), ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    let asked = asks_for_an_answer_with_many_edits(&gateway).await;
    gateway.room().deletes("@ann", &asked).await;
    // Growing answers take everything that the network allows, so its bucket is never full.
    let words: Vec<_> = (0..40).map(|number| format!("word {number} ")).collect();
    for number in 0..70 {
        let other = gateway.direct_room(&format!("!room{}", number % 3));
        gateway.agent().says_slowly(Duration::from_secs(2), words.iter().map(String::as_str));
        other.says("@ann", &format!("question {number}")).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(gateway.chat().edits_left_behind(), 0);
}

/// A room may fail for ever, without a notice. It must not keep the others waiting.
#[tokio::test(start_paused = true)]
async fn edits_that_can_never_be_taken_back_do_not_keep_those_of_another_room() {
    let gateway = TestGateway::start().await;
    let [broken, other] = ["!broken", "!other"].map(|name| gateway.direct_room(name));
    let mut asked = Vec::new();
    for room in [&broken, &other] {
        gateway.agent().says_slowly(Duration::from_secs(20), ["one ", "two ", "three "]);
        asked.push(room.says("@ann", "count").await);
        room.settled().await;
    }
    broken.deletes("@ann", &asked[0]).await;
    broken.shows("(deleted)").await;
    gateway.chat().deletions_always_fail_in(&broken);
    let stuck = gateway.chat().edits_left_behind();
    other.deletes("@ann", &asked[1]).await;
    other.shows("(deleted)").await;
    let both = gateway.chat().edits_left_behind();
    assert!(stuck > 0 && both > stuck, "{stuck} of {both}");

    other.settled().await;
    assert_eq!(gateway.chat().edits_left_behind(), stuck);
    let status = gateway.operator().status().await;
    assert_eq!(status["platforms"][0]["cleanups"], 1, "{status}");
}

/// An edit whose response never came may arrive after the message is gone.
#[tokio::test(start_paused = true)]
async fn an_edit_that_was_under_way_when_its_answer_was_deleted_goes_too() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["one "]).waits(Duration::from_secs(5)).says(["two "]).then_hangs();
    let late = Gate::default();
    gateway.chat().next_edit(Fault::Late(late.clone()));
    let asked = room.says("@ann", "count").await;
    agent.is_hanging().await;
    gateway.chat().is_quiet(Duration::from_secs(2)).await;
    room.deletes("@ann", &asked).await;
    room.shows("(deleted)").await;
    gateway.chat().is_quiet(Duration::from_secs(10)).await;
    late.open();

    room.settled().await;
    assert_eq!(gateway.chat().edits_left_behind(), 0);
    assert_eq!(room.ours(), Vec::<String>::new());
}
