//! Ctrl-C, and other signals.

use rustix::process::Signal;

use super::scene::AskScene;
use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Gate, Upstream, delta};

#[tokio::test]
async fn ctrl_c_stops_the_run_at_the_server_and_prints_what_there_is() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let scene = AskScene::start().await;
        let left = Gate::new();
        scene.upstream.answers(Answer::stream().sends(delta("Let me think")).hangs_until_left(&left));
        let mut process = scene.begins(&["hi"]);
        process.shows("Let me think").await;
        process.signal(signal);
        let ended = process.ended().await;
        assert_eq!((ended.code, ended.out.as_str()), (code, "Let me think\n"), "{}", ended.err);
        ended.said("· Stopping; Ctrl-C again leaves at once.\n");
        ended.said("error: the answer is cut short: the run was stopped before its end");
        left.is_reached().await;
    }
}

#[tokio::test]
async fn ctrl_c_at_the_terminal_stops_it_too() {
    let scene = AskScene::start().await;
    let left = Gate::new();
    scene.upstream.answers(Answer::stream().sends(delta("Let me think")).hangs_until_left(&left));
    let mut terminal = scene.at_a_terminal("exec \"$TALARIA\" ask hi");
    terminal.shows("Let me think").await;
    terminal.presses("\u{3}");
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, 130, "{screen}");
    assert!(screen.contains("the answer is cut short"), "{screen}");
    left.is_reached().await;
}

#[tokio::test]
async fn a_second_ctrl_c_leaves_at_once() {
    let upstream = Upstream::plain().await;
    upstream.answers_at("/v1/runs", [Answer::status(202, r#"{"run_id":"run_1","session_id":"s"}"#)]);
    let text = "id: 1\ndata: {\"event\":\"message.delta\",\"delta\":\"Hm\"}\n\n";
    upstream.answers_at("/events", [Answer::stream().sends(text).hangs()]);
    // The server takes the stop, and the run goes on all the same.
    upstream.answers_at("/stop", [Answer::status(200, "{}")]);
    let talaria = Talaria::new();
    let mut process = talaria.starts_command(["ask", "--url", &upstream.url(), "hi"], super::scene::null());
    process.shows("Hm").await;
    process.signal(Signal::INT);
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
    process.signal(Signal::INT);
    let ended = process.ended_within(std::time::Duration::from_secs(10)).await;
    assert_eq!((ended.code, ended.out.as_str()), (130, "Hm"), "{}", ended.err);
}

#[tokio::test]
async fn a_run_that_begins_while_it_is_stopped_is_stopped() {
    let upstream = Upstream::plain().await;
    let gate = Gate::new();
    let begun = r#"{"run_id":"run_1","session_id":"s"}"#;
    let head = format!(
        "HTTP/1.1 202 Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        begun.len()
    );
    // `sends` would make chunks of it.
    upstream.answers_at("/v1/runs", [Answer::bytes(head).waits(&gate).then(Answer::bytes(begun))]);
    let end = "id: end\ndata: {\"event\":\"run.cancelled\"}\n\n";
    upstream.answers_at("/events", [Answer::events(end)]);
    let talaria = Talaria::new();
    let process = talaria.starts_command(["ask", "--url", &upstream.url(), "hi"], super::scene::null());
    gate.is_reached().await;
    process.signal(Signal::INT);
    gate.open();
    let ended = process.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (130, ""), "{}", ended.err);
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
}
