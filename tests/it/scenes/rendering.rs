//! How an answer looks while it grows and when it is done.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{StepState, TurnEnd};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::What;

#[tokio::test(start_paused = true)]
async fn thoughts_are_neither_shown_nor_remembered() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().thinks("a secret").says_slowly(
        Duration::from_secs(2),
        ["<thi", "nk>a secret plan", " goes on</thi", "nk>\nThe answer."],
    );

    room.says("@ann", "tell me").await;
    assert_snapshot!(room.settled().await, @r"
    @ann  tell me
    bot   The answer.
    ");

    let ever = room.history_of_first().join("\n");
    assert!(!ever.contains("secret") && !ever.contains("think"), "{ever}");
    room.says("@ann", "and then?").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard()[1].history[1].content, "The answer.");
}

#[tokio::test(start_paused = true)]
async fn an_open_code_fence_is_closed_in_every_snapshot() {
    let gateway = TestGateway::start().await;
    let pieces = ["Do this:\n```sh\n", "cd /tmp\n", "ls -l\n", "rm -r it\n", "```\nThat is ", "all."];
    gateway.agent().says_slowly(Duration::from_secs(3), pieces);

    gateway.room().says("@ann", "how?").await;
    gateway.room().settled().await;

    let revisions = gateway.room().history_of_first();
    assert!(revisions.len() >= 5, "{revisions:?}");
    for revision in &revisions {
        assert_eq!(revision.matches("```").count(), 2, "{revision}");
    }
    assert_eq!(revisions.last().unwrap(), pieces.concat().trim_end());
}

#[tokio::test(start_paused = true)]
async fn a_step_is_one_line_while_it_runs_and_gone_at_the_end() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway
        .agent()
        .says(["Let me look it up."])
        .step("1", "web_search", StepState::Running)
        .then_hangs()
        .step("1", "web_search", StepState::Done)
        .step("2", "read", StepState::Running)
        .then_hangs()
        .step("2", "read", StepState::Failed)
        .says([" Found it."]);

    room.says("@ann", "find it").await;
    agent.is_hanging().await;
    assert_snapshot!(room.settled().await, @r"
    @ann  find it
    bot…  Let me look it up.
          ⚙️ web_search…
    ");

    agent.goes_on();
    assert_snapshot!(room.settled().await, @r"
    @ann  find it
    bot…  Let me look it up.
          ⚙️ read…
    ");

    agent.goes_on();
    assert_snapshot!(room.settled().await, @r"
    @ann  find it
    bot   Let me look it up. Found it.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_the_agent_is_shown_until_it_is_taken_away() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway
        .agent()
        .notes(Some("The model is loading."))
        .then_hangs()
        .notes(None)
        .says(["Here I am, fully loaded."])
        .then_hangs();

    room.says("@ann", "hello?").await;
    agent.is_hanging().await;
    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    bot…  The model is loading.
    ");
    agent.goes_on();
    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    bot…  Here I am, fully loaded.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_split_in_order_without_breaking_code() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    let room = gateway.room();
    let code: String = (0..60).map(|n| format!("print({n})\n")).collect();
    let answer = format!("First some words.\n\n```python\n{code}```\n\nLast words.");
    let pieces: Vec<_> = answer.split_inclusive('\n').collect();
    gateway.agent().says_slowly(Duration::from_secs(1), pieces);

    room.says("@ann", "write it").await;
    room.settled().await;

    let parts = room.ours();
    assert!(parts.len() > 2, "{parts:#?}");
    for part in &parts {
        assert!(part.len() <= 200, "{part}");
        assert_eq!(part.matches("```").count() % 2, 0, "{part}");
    }
    let numbers: Vec<_> =
        parts.iter().flat_map(|part| part.lines()).filter(|l| l.starts_with("print")).collect();
    assert_eq!(numbers, code.lines().collect::<Vec<_>>());
    assert!(parts[0].starts_with("First some words."), "{parts:#?}");
    assert!(parts.last().unwrap().ends_with("Last words."), "{parts:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_said_to_be_one() {
    let gateway = TestGateway::start().await;
    gateway.agent().says(["", " \n"]);

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    bot   (No response from remote agent)
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_reached_its_limit_says_so() {
    let gateway = TestGateway::start().await;
    gateway.agent().says(["And so on and so"]).then_ends(TurnEnd::Limit);

    gateway.room().says("@ann", "go on").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  go on
    bot   And so on and so
          (cut short: the length limit was reached)
    ");
}

#[tokio::test(start_paused = true)]
async fn people_see_that_somebody_types_until_the_answer_is_there() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "hello").await;
    agent.is_hanging().await;
    room.settled().await;
    assert!(gateway.chat().is_typing(&room));
    agent.goes_on();
    room.settled().await;
    assert!(!gateway.chat().is_typing(&room));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_at_once_costs_no_typing_signal() {
    let gateway = TestGateway::start().await;
    gateway.agent().says(["At once"]);

    gateway.room().says("@ann", "hello").await;
    gateway.room().settled().await;

    assert!(!gateway.chat().has_typing_signals(&gateway.room()));
}

#[tokio::test(start_paused = true)]
async fn people_see_that_somebody_types_while_an_answer_stands_still() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent().says(["Let me think about this"]).then_hangs();

    gateway.room().says("@ann", "hello").await;
    gateway.room().shows("Let me think").await;
    assert!(!gateway.chat().is_typing(&gateway.room()), "the text is enough at first");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(gateway.chat().is_typing(&gateway.room()));

    agent.goes_on();
    gateway.room().settled().await;
    assert!(!gateway.chat().is_typing(&gateway.room()));
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_in_several_messages_rings_once() {
    let gateway = TestGateway::with(Setup { max_text: 200, ..Setup::default() }).await;
    gateway.agent().says([&*"word ".repeat(120)]);
    gateway.room().says("@ann", "tell me everything").await;
    gateway.room().settled().await;
    let requests = gateway.chat().requests();
    let rings: Vec<_> =
        requests.iter().filter(|request| request.what == What::Send).map(|sent| !sent.body.silent).collect();
    assert!(rings.len() > 2, "{rings:?}");
    assert_eq!(rings.iter().filter(|rings| **rings).count(), 1);
    assert_eq!(rings.first(), Some(&true));
}
