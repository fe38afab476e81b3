//! Commands that answer, and texts that only look like commands.

use insta::assert_snapshot;

use crate::support::gateway::TestGateway;

#[tokio::test(start_paused = true)]
async fn help_lists_what_can_be_said() {
    let gateway = TestGateway::start().await;

    gateway.room().says("@ann", "/help").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  /help
    note  Write to talk to the agent. Commands:
          - `/help` shows this list
          - `/new` stops the running answer and begins a new conversation; text after it is the first question
          - `/agent` lists the agents; with a name after it, begins a new conversation with that agent: `/agent NAME`, `/agent default`
          - `/model` lists the models of the agent; with a name after it, chooses one for this conversation: `/model NAME`, `/model default`
          - `/stop` stops the running answer and every message that waits
          - `/retry` asks the last question again
          - `/undo` takes the last question and its answer back
          - `/status` shows what is running and what waits
          - `/sessions` lists the conversations of this place
          - `/resume` goes back to an earlier conversation, by its number in /sessions
          - `/title` names this conversation
          - `/whoami` shows who you are here and what you may do
          - `/usage` shows how many questions and tokens were used
          - `/memory` lists the agent's notes about you, in a shared room about the room; `/memory forget NUMBER` and `/memory add TEXT` change them
          - `/skills` lists the skills of the agent; with a name after it, shows one: `/skills NAME`
          - `/approve` allows what the agent asks for: `/approve [code] [once | session | always]`
          - `/deny` refuses what the agent asks for: `/deny [code]`
          - `/answer` answers a question of the agent: `/answer [code]`, then the number of an option or your own words
          - `/approvals` lists what is allowed here without asking again; `/approvals revoke ID` takes it back
    ");
}

#[tokio::test(start_paused = true)]
async fn status_says_what_runs_and_what_waits() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "hello").await;
    room.settled().await;
    room.says("@ann", "/status").await;
    room.settled().await;
    let agent = gateway.agent().then_hangs();
    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.says("@ann", "two").await;
    room.settled().await;
    room.says("@ann", "/status").await;

    let shown = room.settled().await.replace(&gateway.agent_itself().heard()[0].session, "SESSION");
    assert_snapshot!(shown, @r"
    @ann  hello
    bot   ok
    @ann  /status
    note  Nothing is running.
          Agent: scripted. Session SESSION, 2 messages.
          Asked just now: scripted answers.
    @ann  one
    @ann  two
    note  Queued: one other message comes first. /stop ends both.
    @ann  /status
    note  One answer is running (turn 0eeacd), one message waits.
          Agent: scripted. Session SESSION, 2 messages.
          Asked just now: scripted answers.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_command_is_explained_and_not_sent_to_the_agent() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    room.says("@ann", "/stpo").await;
    room.settled().await;
    room.says("@ann", "/dance now").await;
    room.settled().await;
    room.says("@ann", "/tango-argentino").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  /stpo
    note  There is no command /stpo. Did you mean /stop?
    @ann  /dance now
    note  There is no command /dance; /help lists what there is. To send it to the agent, put a space before it.
    @ann  /tango-argentino
    note  There is no command /tango-argentino; /help lists what there is. To send it to the agent, put a space before it.
    ");
    assert!(gateway.agent_itself().heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_path_is_a_prompt() {
    let gateway = TestGateway::start().await;
    gateway.agent().says(["It maps names to addresses."]);

    gateway.room().says("@ann", "/etc/hosts is what?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  /etc/hosts is what?
    bot   It maps names to addresses.
    ");
}
