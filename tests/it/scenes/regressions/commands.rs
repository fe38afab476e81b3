//! Commands that did something else than asked, and senders that are not people.

use insta::assert_snapshot;

use crate::support::gateway::{Setup, TestGateway};

#[tokio::test(start_paused = true)]
async fn an_author_whom_the_keys_contradict_is_nobody() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    for text in ["send me the keys", "/help", "/nonsense"] {
        room.a_forger_says("@ann", text).await;
    }
    room.says("@ann", "hello").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  send me the keys
    @ann  /help
    @ann  /nonsense
    @ann  hello
    bot   ok
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn undo_of_a_turn_without_text_is_another_history_for_the_upstream() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    gateway.restart().await;
    room.settled().await;
    room.says("@ann", "/undo").await;
    room.settled().await;
    room.says("@ann", "something else").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    note  (interrupted — /retry runs it again)
    @ann  /undo
    note  The last question and its answer are taken back.
    @ann  something else
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].session, format!("{}.1", heard[0].session), "it may remember the story");
}

#[tokio::test(start_paused = true)]
async fn undo_takes_back_what_ran_and_not_what_only_waited() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says(["Hello."]);
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs();

    room.says("@ann", "hello").await;
    room.settled().await;
    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    room.says("@ann", "and another one").await;
    room.says("@ann", "/stop").await;
    room.settled().await;
    room.says("@ann", "/undo").await;
    room.settled().await;
    room.says("@ann", "where were we?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    let prompts: Vec<_> = heard.iter().map(|turn| turn.prompt.as_str()).collect();
    assert_eq!(prompts, ["hello", "tell me a story", "where were we?"]);
    let remembered: Vec<_> = heard[2].history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(remembered, ["hello", "Hello."]);
}

#[tokio::test(start_paused = true)]
async fn the_words_behind_new_are_asked_in_the_new_conversation() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says(["Hello."]);
    gateway.agent().says(["A language."]);

    room.says("@ann", "hello").await;
    room.settled().await;
    room.says("@ann", "/new What is Rust?").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello
    bot   Hello.
    @ann  /new What is Rust?
    bot   A language.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!((heard[1].prompt.as_str(), heard[1].history.len()), ("What is Rust?", 0));
    assert_ne!(heard[1].session, heard[0].session);
}

#[tokio::test(start_paused = true)]
async fn a_wish_behind_retry_or_undo_is_not_half_fulfilled() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    for text in ["hello", "/retry but shorter", "/undo the last two", "go on"] {
        room.says("@ann", text).await;
        room.settled().await;
    }

    assert_snapshot!(room.now(), @r"
    @ann  hello
    bot   ok
    @ann  /retry but shorter
    note  This command takes no words after it, so nothing was done. Send it alone, or ask in your own words.
    @ann  /undo the last two
    note  This command takes no words after it, so nothing was done. Send it alone, or ask in your own words.
    @ann  go on
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.len(), 2);
    assert_eq!((heard[1].history.len(), &heard[1].session), (2, &heard[0].session), "nothing was taken back");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_never_ends_is_answered_in_one_line() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    let room = gateway.room();

    room.says("@ann", &format!("/{}", "x".repeat(5000))).await;
    room.settled().await;

    assert_snapshot!(room.ours().join("\n---\n"), @"There is no command /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; /help lists what there is. To send it to the agent, put a space before it.");
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_too_long_for_the_room_comes_in_parts() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    let room = gateway.room();

    room.says("@ann", "/help").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  /help
    note  Write to talk to the agent. Commands:
          - `/help` shows this list
          - `/new` stops the running answer and begins a new conversation; text after it is the first question
    note  - `/agent` lists the agents; with a name after it, begins a new conversation with that agent: `/agent NAME`, `/agent default`
    note  - `/model` lists the models of the agent; with a name after it, chooses one for this conversation: `/model NAME`, `/model default`
          - `/stop` stops the running answer and every message that waits
    note  - `/retry` asks the last question again
          - `/undo` takes the last question and its answer back
          - `/status` shows what is running and what waits
          - `/sessions` lists the conversations of this place
    note  - `/resume` goes back to an earlier conversation, by its number in /sessions
          - `/title` names this conversation
          - `/whoami` shows who you are here and what you may do
    note  - `/usage` shows how many questions and tokens were used
          - `/memory` lists the agent's notes about you, in a shared room about the room; `/memory forget NUMBER` and `/memory add TEXT` change them
    note  - `/skills` lists the skills of the agent; with a name after it, shows one: `/skills NAME`
          - `/approve` allows what the agent asks for: `/approve [code] [once | session | always]`
    note  - `/deny` refuses what the agent asks for: `/deny [code]`
          - `/answer` answers a question of the agent: `/answer [code]`, then the number of an option or your own words
    note  - `/approvals` lists what is allowed here without asking again; `/approvals revoke ID` takes it back
    ");
}
