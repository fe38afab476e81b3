//! The agent's memory of a conversation, and how people change it.

use insta::assert_snapshot;
use talaria::agent::{AgentErrorKind, RewindSupport};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::scripted::Heard;

/// A turn as the agent got it: the history, then the prompt.
fn told(heard: &Heard) -> Vec<String> {
    let before = heard.history.iter().map(|message| format!("{:?}: {}", message.role, message.content));
    before.chain([format!("asked: {}", heard.prompt)]).collect()
}

/// The guide is no agent: an agent that follows it begins with an empty history.
#[tokio::test(start_paused = true)]
async fn the_words_of_the_guide_are_not_remembered() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let guide = gateway.has_only_the_guide();
    guide.script().says(["Set GATEWAY_PROXY_URL."]);
    room.says("@ann", "hello?").await;
    assert_snapshot!(room.settled().await, @"
    @ann  hello?
    bot   Set GATEWAY_PROXY_URL.
    ");
    gateway.restart().await;
    room.says("@ann", "and now?").await;
    room.settled().await;
    let heard = gateway.agent_itself().heard();
    assert_eq!(told(&heard[0]), ["asked: and now?"]);
    assert_eq!(guide.heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn history_reaches_the_agent_and_the_prompt_comes_once() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says(["Hello Ann"]);

    room.says("@ann", "I am Ann").await;
    room.settled().await;
    room.says("@ann", "who am I?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(told(&heard[0]), ["asked: I am Ann"]);
    assert_eq!(told(&heard[1]), ["User: I am Ann", "Assistant: Hello Ann", "asked: who am I?"]);
    assert_eq!(heard[0].session, heard[1].session);
}

#[tokio::test(start_paused = true)]
async fn new_begins_a_conversation_that_knows_nothing() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    room.says("@ann", "I am Ann").await;
    room.settled().await;
    room.says("@ann", "/new").await;
    room.settled().await;
    room.says("@ann", "who am I?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  I am Ann
    bot   ok
    @ann  /new
    note  A new conversation begins here.
    @ann  who am I?
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(told(&heard[1]), ["asked: who am I?"]);
    assert_ne!(heard[0].session, heard[1].session);
}

#[tokio::test(start_paused = true)]
async fn new_ends_what_runs_in_the_old_conversation() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think"]).then_hangs();

    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "/new").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /new
    note  A new conversation begins here.
    ");
}

#[tokio::test(start_paused = true)]
async fn undo_takes_the_last_question_back_and_the_upstream_gets_another_session() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    for text in ["first", "second", "/undo", "third"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  first
    bot   ok
    @ann  second
    bot   ok
    @ann  /undo
    note  The last question and its answer are taken back.
    @ann  third
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(told(&heard[2]), ["User: first", "Assistant: ok", "asked: third"]);
    assert_eq!(heard[2].session, format!("{}.1", heard[0].session));
}

#[tokio::test(start_paused = true)]
async fn undo_goes_back_as_far_as_there_is_something() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    for text in ["first", "second", "/undo", "/undo", "/undo"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    let shown = room.now();
    assert_eq!(shown.matches("are taken back").count(), 2);
    assert!(shown.ends_with("@ann  /undo\nnote  There is nothing to take back.\n"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn retry_asks_the_same_again_under_another_key_without_the_old_answer() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent();
    gateway.agent().says(["A poor answer"]);
    gateway.agent().says(["A better answer"]);

    for text in ["hello", "tell me", "/retry", "go on"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  hello
    bot   (No response from remote agent)
    @ann  tell me
    bot   A poor answer
    @ann  /retry
    bot   A better answer
    @ann  go on
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(told(&heard[2]), told(&heard[1]), "the same question on the same history");
    assert_ne!(heard[2].key, heard[1].key);
    assert_eq!(heard[2].session, format!("{}.1", heard[1].session));
    assert_eq!(told(&heard[3]), ["User: tell me", "Assistant: A better answer", "asked: go on"]);
    assert_eq!(heard[3].session, heard[2].session, "an ordinary turn changes nothing");
}

#[tokio::test(start_paused = true)]
async fn retry_and_undo_wait_for_nobody() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think"]).then_hangs();

    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "/retry").await;
    room.settled().await;
    room.says("@ann", "/undo").await;
    room.settled().await;
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  plan my week
    bot   Let me think
    @ann  /retry
    note  An answer is still running. /stop ends it; then try again.
    @ann  /undo
    note  An answer is still running. /stop ends it; then try again.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_rewind_says_so() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Impossible, ..Setup::default() }).await;
    let room = gateway.room();

    for text in ["hello", "/undo"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  hello
    bot   ok
    @ann  /undo
    note  This agent cannot change what it remembers. /new begins a new conversation.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_may_not_forget_is_not_called_undone() {
    let gateway = TestGateway::with(Setup { rewind: RewindSupport::Unknown, ..Setup::default() }).await;
    let room = gateway.room();

    for text in ["hello", "/undo", "go on"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  hello
    bot   ok
    @ann  /undo
    note  The agent cannot be asked right now to change what it remembers, so nothing was done. Try again later; /new begins a new conversation.
    @ann  go on
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, heard[0].session, "the agent has one session");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_rewind_is_asked_once_more_in_the_same_session() {
    let setup = Setup { rewind: RewindSupport::Impossible, ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    let room = gateway.room();
    let lost = AgentErrorKind::Unknown { after: None };
    gateway.agent().says(["Half of"]).then_fails(lost, "the connection was lost");
    gateway.agent().says(["All of it"]);
    gateway.agent().says(["And more"]);

    for text in ["hello", "/retry", "go on"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  hello
    bot   Half of
          (cut short: the connection was lost — /retry runs it again)
    @ann  /retry
    bot   All of it
    @ann  go on
    bot   And more
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(
        heard.iter().map(|turn| turn.prompt.as_str()).collect::<Vec<_>>(),
        ["hello", "hello", "go on"]
    );
    assert!(heard.iter().all(|turn| turn.session == heard[0].session), "the agent has one session");
    assert_ne!(heard[0].key, heard[1].key, "it is another turn");
    let said: Vec<_> = heard[2].history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(said, ["hello", "Half of", "hello", "All of it"]);
}

#[tokio::test(start_paused = true)]
async fn with_nothing_asked_there_is_nothing_to_ask_again() {
    let gateway = TestGateway::start().await;

    gateway.room().says("@ann", "/retry").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  /retry
    note  There is nothing to ask again.
    ");
}
