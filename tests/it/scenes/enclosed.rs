//! Files that an agent puts into its answer become messages of their own, after the text.

use std::time::Duration;

use insta::assert_snapshot;
use talaria_platform::PlatformErrorKind;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Fault;

/// Eight bytes that begin like a PNG picture.
const CHART: &str = "![the chart](data:image/png;base64,iVBORw0KGgo=)";

#[tokio::test(start_paused = true)]
async fn a_picture_comes_after_the_text_and_its_base64_is_never_seen() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says_slowly(
        Duration::from_secs(2),
        [
            "Here is the chart you wanted: ",
            "![the chart](data:ima",
            "ge/png;base64,iVBORw0",
            "KGgo=)",
            " Nice?",
        ],
    );
    room.says("@ann", "draw").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  draw
    bot   Here is the chart you wanted: 📎 the chart.png Nice?
    bot   [the chart.png, image/png, 8 bytes]
    ");
    let history = room.history_of_first();
    assert!(
        history.len() > 1 && history.iter().all(|text| !text.contains("base64") && !text.contains("iVBO"))
    );

    room.says("@ann", "and now?").await;
    room.settled().await;
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].history[1].content, "Here is the chart you wanted: 📎 the chart.png Nice?");
}

#[tokio::test(start_paused = true)]
async fn files_survive_a_crash_and_come_once_each_in_order() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let text = format!("{CHART} and [notes.md](data:;base64,aGVsbG8=)");
    gateway.agent().says([&*text]);
    gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Retry { after: None }));
    room.says("@ann", "draw").await;
    room.shows("the chart").await;
    gateway.kill().await;
    gateway.restart().await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  draw
    bot   📎 the chart.png and 📎 notes.md
    bot   [the chart.png, image/png, 8 bytes]
    bot   [notes.md, text/plain, 5 bytes]
    ");
}

#[tokio::test(start_paused = true)]
async fn where_no_files_are_taken_the_answer_says_so() {
    let gateway = TestGateway::with(Setup { media: false, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().says([CHART, "\nMEDIA:/a/secret.pdf"]);
    room.says("@ann", "draw").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  draw
    bot   📎 the chart.png
          📎 secret.pdf
          (the chart.png was not sent: this chat takes no files.)
          (secret.pdf was not sent: it lies on the agent's machine.)
    ");
}

#[tokio::test(start_paused = true)]
async fn files_go_with_their_question() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says([CHART]);
    let asked = room.says("@ann", "draw").await;
    room.settled().await;
    room.edits("@ann", &asked, "do not draw").await;
    room.settled().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  draw
    bot   ok
    bot   (deleted)
    ");
    gateway.agent().says([CHART]);
    let asked = room.says("@ann", "draw").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;
    assert!(room.settled().await.ends_with("@ann  draw\nbot   (deleted)\nbot   (deleted)\n"));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_files_is_spoken_of_in_one_line() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says([&*"[](data:;base64,) ".repeat(1000)]);
    room.says("@ann", "draw").await;

    let shown = room.settled().await;
    let notes: Vec<_> = shown.lines().filter(|line| line.contains("not sent")).map(str::trim).collect();
    assert_eq!(notes.len(), 11, "{notes:?}");
    assert_eq!(notes[10], "(and 990 more were not sent: one answer may bring only a few files.)");
}
