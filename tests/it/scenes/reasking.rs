//! Editing the last question asks it again, and our existing message shows the new answer.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::{AgentErrorKind, RewindSupport};
use talaria::rules::{AccountRules, PersonLimits};
use talaria_platform::ShowMode;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Gate, What};

/// The prompts that the agent got, in order.
fn asked_of(gateway: &TestGateway) -> Vec<String> {
    gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect()
}

#[tokio::test(start_paused = true)]
async fn an_answered_question_is_asked_again_as_it_reads_now() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "hello").await;
    room.settled().await;
    gateway.agent().says(["A kind of mouth."]);
    let asked = room.says("@ann", "what is Lips?").await;
    room.settled().await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello
    bot   ok
    @ann  what is Lips?
    bot   A language.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[2].prompt, "what is Lisp?");
    assert_eq!(heard[2].history.len(), 2, "the question before it, and nothing of the first try");
    assert_ne!(heard[2].session, heard[1].session, "the agent is told another history");
    assert_ne!(heard[2].key, heard[1].key);

    room.says("@ann", "and since when?").await;
    room.settled().await;
    let history: Vec<_> =
        gateway.agent_itself().heard()[3].history.iter().map(|message| message.content.clone()).collect();
    assert_eq!(history, ["hello", "ok", "what is Lisp?", "A language."]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_being_answered_is_stopped_and_asked_again() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().says(["A kind of mouth, which"]).then_hangs();
    let asked = room.says("@ann", "what is Lips?").await;
    first.is_hanging().await;
    room.settled().await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   A language.
    ");
    assert!(first.was_told_to_stop());
    room.says("@ann", "go on").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard()[2].history.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_edits_only_the_last_counts() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().says(["one"]).then_hangs();
    let asked = room.says("@ann", "1").await;
    first.is_hanging().await;
    room.settled().await;
    for text in ["2", "3", "4"] {
        gateway.agent().when(text).says([text]).then_hangs();
        room.edits("@ann", &asked, text).await;
    }
    gateway.agent().when("5").says(["five"]);
    room.edits("@ann", &asked, "5").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  1
    bot   five
    ");
    assert_eq!(asked_of(&gateway).last().map(String::as_str), Some("5"));
    room.says("@ann", "go on").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().last().unwrap().history.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_longer_answer_is_taken_back() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says([&*"word ".repeat(100)]);
    let asked = room.says("@ann", "tell me much").await;
    room.settled().await;
    assert!(room.ours().len() > 2);

    gateway.agent().says(["Little."]);
    room.edits("@ann", &asked, "tell me little").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me much
    bot   Little.
    bot   (deleted)
    bot   (deleted)
    ");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_taken_back_what_is_left_says_that_it_is_void() {
    let gateway = TestGateway::with(Setup { max_text: 200, delete: false, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says([&*"word ".repeat(60)]);
    let asked = room.says("@ann", "tell me much").await;
    room.settled().await;

    gateway.agent().says(["Little."]);
    room.edits("@ann", &asked, "tell me little").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me much
    bot   Little.
    note  (taken back)
    ");
}

#[tokio::test(start_paused = true)]
async fn where_messages_cannot_be_edited_the_new_answer_is_another_one() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says(["A kind of mouth."]);
    let asked = room.says("@ann", "what is Lips?").await;
    room.settled().await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   (deleted)
    bot   A language.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_edit_further_back_changes_nothing_and_says_nothing() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let old = room.says("@ann", "one").await;
    room.settled().await;
    let before_new = room.says("@ann", "two").await;
    room.settled().await;
    room.edits("@ann", &old, "one!").await;
    room.settled().await;
    room.says("@ann", "/new").await;
    room.edits("@ann", &before_new, "two!").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    @ann  two
    bot   ok
    @ann  /new
    note  A new conversation begins here.
    ");
    assert_eq!(asked_of(&gateway), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_edit_behind_which_something_waits_changes_nothing() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().says(["one"]).then_hangs();
    let asked = room.says("@ann", "1").await;
    first.is_hanging().await;
    room.says("@ann", "2").await;
    room.edits("@ann", &asked, "1!").await;
    first.goes_on();
    room.settled().await;
    assert_eq!(asked_of(&gateway), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_else_and_nothing_but_other_words_asks_it_again() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.edits("@bob", &asked, "two").await;
    room.edits("@ann", &asked, "one").await;
    room.edits("@ann", &asked, " ").await;
    room.settled().await;
    assert_eq!(asked_of(&gateway).len(), 1);

    room.edits("@ann", &asked, "/stop").await;
    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    note  That edit changes nothing: a command counts as it was first sent. Please send a new message.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_forget_is_not_asked_again_and_the_room_is_told_once() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Impossible, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.edits("@ann", &asked, "two").await;
    room.edits("@ann", &asked, "three").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    note  That edit came too late: this agent cannot change what it remembers. Please send a new message.
    ");
    assert_eq!(asked_of(&gateway), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_not_forget_is_not_asked_again_and_the_room_is_told_once() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Unknown, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.edits("@ann", &asked, "two").await;
    room.edits("@ann", &asked, "three").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   ok
    note  The agent cannot be asked right now to change what it remembers, so nothing was done. Try again later; /new begins a new conversation.
    ");
    assert_eq!(asked_of(&gateway), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn asking_again_by_edits_counts_as_asking() {
    let rules = AccountRules {
        limits: Some(PersonLimits { per_minute: 3, per_hour: 100, ..PersonLimits::default() }),
        ..AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() })
    };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = gateway.room();
    let asked = room.says("@ann", "0").await;
    for text in ["1", "2", "3", "4"] {
        gateway.chat().is_quiet(Duration::from_secs(5)).await;
        room.edits("@ann", &asked, text).await;
    }
    room.settled().await;
    let ours = room.ours();
    let [answer, notice] = ours.as_slice() else { panic!("{ours:?}") };
    assert_eq!(answer, "ok");
    assert!(
        notice.starts_with("That is more than 3 messages in a minute, so this one was not taken."),
        "{notice}"
    );
    assert_eq!(asked_of(&gateway), ["0", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_retried_question_can_be_edited_by_whoever_wrote_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let asked = room.says("@ann", "what is Lips?").await;
    room.settled().await;
    gateway.agent().says(["A kind of mouth."]);
    room.says("@bob", "/retry").await;
    room.settled().await;
    room.edits("@bob", &asked, "something of Bob's").await;
    room.settled().await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   ok
    @bob  /retry
    bot   A language.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.len(), 3);
    assert_eq!(heard[2].prompt, "\"ann\" (@ann:test): what is Lisp?");
    assert_eq!(heard[2].origin.user_id.as_deref(), Some("@ann:test"));
}

#[tokio::test(start_paused = true)]
async fn an_edit_while_the_end_of_the_answer_is_on_its_way_waits_for_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let gate = Gate::default();
    gateway.chat().next_send(Fault::Waits(gate.clone()));
    gateway.agent().says(["A kind of mouth."]);
    let asked = room.says("@ann", "what is Lips?").await;
    gateway.chat().is_quiet(Duration::from_secs(5)).await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;
    gateway.chat().is_quiet(Duration::from_secs(5)).await;
    gate.open();

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   A language.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_send_of_unknown_outcome_is_not_repeated_as_another_message() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::LostAnswer);
    let first = gateway.agent().says(["A kind of mouth, which is rather a lot."]).then_hangs();
    let asked = room.says("@ann", "what is Lips?").await;
    first.is_hanging().await;
    gateway.chat().is_quiet(Duration::from_millis(900)).await;

    gateway.agent().says(["A language."]);
    room.edits("@ann", &asked, "what is Lisp?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   A language.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_edit_asks_it_once() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let first = gateway.agent().says(["A kind of mouth, which is rather a lot."]).then_hangs();
    let asked = room.says("@ann", "what is Lips?").await;
    first.is_hanging().await;
    room.settled().await;
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) }, "Busy.");
    room.edits("@ann", &asked, "what is Lisp?").await;
    gateway.kill().await;
    gateway.agent().says(["A language."]);
    gateway.restart().await;
    let room = gateway.room();

    assert_snapshot!(room.settled().await, @r"
    @ann  what is Lips?
    bot   A language.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_moderator_took_away_is_not_edited_but_comes_anew() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "one").await;
    room.settled().await;
    room.loses_our_first_message();
    room.deletes("@mod", &"m0".into()).await;
    room.edits("@ann", &asked, "two").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   (deleted)
    bot   ok
    ");
    let edits = gateway.chat().requests().into_iter().filter(|request| request.what != What::Send);
    assert_eq!(edits.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_words_behind_new_can_be_edited_again_and_again() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = room.says("@ann", "/new what is lips?").await;
    room.settled().await;
    room.edits("@ann", &asked, "/new what is Lips?").await;
    room.settled().await;
    room.edits("@ann", &asked, "/new what is Lisp?").await;
    room.settled().await;
    assert_eq!(asked_of(&gateway), ["what is lips?", "what is Lips?", "what is Lisp?"]);
}
