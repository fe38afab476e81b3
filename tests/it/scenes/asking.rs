//! Its author can change a question that still waits; a deleted question is not asked.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::AgentErrorKind;

use crate::support::gateway::TestGateway;

/// Nothing ran, so it is tried again.
const BUSY: AgentErrorKind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) };

#[tokio::test(start_paused = true)]
async fn an_edited_question_that_waits_is_asked_as_edited() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    let asked = room.says("@ann", "tow").await;
    room.edits("@ann", &asked, "two").await;
    room.edits("@eve", &asked, "something else").await;
    agent.goes_on();
    room.settled().await;

    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_question_that_waits_is_not_asked() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["The first answer"]).then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.settled().await;
    let asked = room.says("@ann", "two").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   The first answer
    @ann  two
    note  Queued: one other message comes first. /stop ends both.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_somebody_else_deleted_is_not_asked_either() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    let asked = room.says("@ann", "two").await;
    room.deletes("@eve", &asked).await;
    agent.goes_on();
    room.settled().await;

    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

/// The prompts that the agent got, in order.
fn asked_of(gateway: &TestGateway) -> Vec<String> {
    gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect()
}

#[tokio::test(start_paused = true)]
async fn an_edit_behind_new_changes_the_words_behind_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "hello").await;
    room.settled().await;
    gateway.agent_itself().cannot_prepare(BUSY, "The agent is busy.");
    let asked = room.says("@ann", "/new what is lips?").await;
    room.shows("Trying again").await;

    room.edits("@ann", &asked, "/new what is Lisp?").await;
    room.settled().await;
    assert_eq!(asked_of(&gateway), ["hello", "what is Lisp?"]);

    // The edit may leave the command out: the command has had its effect.
    gateway.agent_itself().cannot_prepare(BUSY, "The agent is busy.");
    let asked = room.says("@ann", "/new what is lips?").await;
    room.shows("Trying again").await;
    room.edits("@ann", &asked, "what is Scheme?").await;
    room.settled().await;
    assert_eq!(asked_of(&gateway), ["hello", "what is Lisp?", "what is Scheme?"]);
}

#[tokio::test(start_paused = true)]
async fn an_edited_retry_asks_the_same_question_all_the_same() {
    for edited in ["/retry please", "/stop", "something else"] {
        let gateway = TestGateway::start().await;
        let room = gateway.room();
        room.says("@ann", "what is Lisp?").await;
        room.settled().await;
        gateway.agent_itself().cannot_prepare(BUSY, "The agent is busy.");
        let sent = room.says("@ann", "/retry").await;
        room.shows("Trying again").await;

        room.edits("@ann", &sent, edited).await;

        let shown = room.settled().await;
        insta::allow_duplicates! {
            assert_snapshot!(shown, @"
            @ann  what is Lisp?
            bot   ok
            @ann  /retry
            bot   ok
            note  That edit changes nothing: a command counts as it was first sent. Please send a new message.
            ");
        }
        assert_eq!(asked_of(&gateway), ["what is Lisp?", "what is Lisp?"], "{edited}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_cannot_be_edited_into_a_command() {
    for edited in ["/stop", "/new", "/new two", "/retry", "/stpo"] {
        let gateway = TestGateway::start().await;
        let room = gateway.room();
        let agent = gateway.agent().says(["The first answer"]).then_hangs();
        room.says("@ann", "one").await;
        agent.is_hanging().await;
        room.settled().await;
        let asked = room.says("@ann", "tow").await;
        room.settled().await;

        room.edits("@ann", &asked, edited).await;
        // The notice comes once, however often the person tries.
        room.edits("@ann", &asked, edited).await;
        room.settled().await;
        agent.goes_on();

        let shown = room.settled().await;
        insta::allow_duplicates! {
            assert_snapshot!(shown, @"
            @ann  one
            bot   The first answer
            @ann  tow
            note  Queued: one other message comes first. /stop ends both.
            note  That edit changes nothing: a command counts as it was first sent. Please send a new message.
            bot   ok
            ");
        }
        assert_eq!(asked_of(&gateway), ["one", "tow"], "{edited}");
    }
}
