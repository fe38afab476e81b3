//! One answer on platforms that print, and on those that show only finished messages.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AgentErrorKind, StepState};
use talaria_platform::ShowMode;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::What;

#[tokio::test(start_paused = true)]
async fn a_terminal_gets_a_text_that_only_grows() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Append, ..Setup::default() }).await;
    let room = gateway.room();
    let pieces = ["Do this:\n```sh\n", "ls -l\n", "```\n", "That is ", "all."];
    gateway
        .agent()
        .step("1", "search", StepState::Running)
        .step("1", "search", StepState::Done)
        .says_slowly(Duration::from_secs(1), pieces);

    room.says("@ann", "how?").await;
    assert_snapshot!(room.settled().await, @r"
    @ann  how?
    bot   Do this:
          ```sh
          ls -l
          ```
          That is all.
    ");

    let revisions = room.history_of_first();
    assert!(revisions.len() >= pieces.len(), "{revisions:?}");
    for pair in revisions.windows(2) {
        assert!(pair[1].starts_with(pair[0].trim_end()), "{pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_is_told_apart_from_the_answer_that_it_is_tried_again() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Append, ..Setup::default() }).await;
    let room = gateway.room();
    for _ in 0..3 {
        gateway
            .agent()
            .then_fails(AgentErrorKind::NothingRan { after: None }, "The agent cannot be reached.");
    }

    room.says("@ann", "hello?").await;
    room.settled().await;

    let ours = room.ours();
    let [notice, answer] = ours.as_slice() else { panic!("once said is enough: {ours:?}") };
    assert!(notice.starts_with("⚠️ The agent cannot be reached. Trying again until"), "{notice}");
    assert_eq!(answer, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_platform_without_edits_gets_one_message() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says_slowly(Duration::from_secs(10), ["Once upon a time ", "there was ", "a gateway."]);

    room.says("@ann", "speak").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    bot   Once upon a time there was a gateway.
    ");
    let requests = gateway.chat().requests();
    assert_eq!(requests.iter().map(|request| &request.what).collect::<Vec<_>>(), [&What::Send]);
}

#[tokio::test(start_paused = true)]
async fn a_platform_without_edits_is_told_about_a_stop_too() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Once upon a time"]).then_hangs();

    room.says("@ann", "speak").await;
    agent.is_hanging().await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  speak
    @ann  /stop
    bot   Once upon a time
          (stopped)
    ");
}
