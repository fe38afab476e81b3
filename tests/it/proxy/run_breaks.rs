//! A run goes on when its reader leaves: after any break its true state is read, and it is never begun twice.

use std::time::Instant;

use serde_json::{Value, json};
use talaria_platform::MediaKind;

use super::scripted_runs::{
    self as scripted, agent, begun, capabilities, completed, event, gateway, has_completed, health,
    runs_begun, session, shown, state, text, tool_completed, tool_started, upstream, user, with_events,
    with_tool,
};
use crate::support::room::file;
use crate::support::upstream::{Answer, Gate, Upstream};

/// Mark of an answer that is not there.
const LOST: &str = "(cut short: the connection was lost — /retry runs it again)";

fn cut() -> Answer {
    Answer::stream().sends(text("It ")).closes()
}

#[tokio::test]
async fn a_cut_wire_ends_in_the_whole_answer() {
    let upstream = with_events(cut()).await;
    upstream.answers_at("/v1/runs/run_1", [state("running", json!({})), has_completed("It is 42.")]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "how much?").await;
    room.shows("bot   It is 42.").await;
    assert_eq!((runs_begun(&upstream), room.ours().len()), (1, 1));
    assert_eq!(upstream.requests_to("/stop").len(), 0);
}

/// The state of a run has only its last message.
#[tokio::test]
async fn what_was_said_before_a_tool_call_is_not_lost_by_a_break() {
    let kept = session(&[&[user("how much?")], &with_tool("Let me look.", "It is 42.")[..]].concat());
    let whole = shown("bot   Let me look.\n\nIt is 42.");
    for lost in [false, true] {
        let steps = [text("Let me look. "), tool_started("terminal"), tool_completed("terminal", false)];
        let upstream = with_events(Answer::stream().sends(steps.concat()).closes()).await;
        upstream
            .answers_at("/v1/runs/run_1", [if lost { Answer::unknown() } else { has_completed("It is 42.") }])
            .answers_at("/messages", [Answer::status(502, ""), kept.clone()]);
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows(&whole).await;
    }
    // A delta did not come.
    let steps = [text("Let me look. "), tool_started("terminal"), text("\n\nIt 42."), completed("It is 42.")];
    let upstream = with_events(Answer::events(steps.concat())).await;
    upstream.answers_at("/messages", [kept]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows(&whole).await;
}

#[tokio::test]
async fn a_crash_and_a_restart_end_in_the_whole_answer() {
    for crash in [false, true] {
        let gate = Gate::new();
        let upstream = with_events(Answer::stream().sends(text("It ")).waits(&gate).hangs()).await;
        upstream.answers_at("/v1/runs/run_1", [has_completed("It is 42.")]);
        let mut gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows("It").await;
        if crash {
            gateway.kill().await;
        }
        gateway.restart().await;
        let room = gateway.room();
        room.shows("bot   It is 42.").await;
        assert_eq!((runs_begun(&upstream), room.ours().len()), (1, 1), "crash: {crash}");
        assert_eq!(upstream.requests_to("/stop").len(), 0, "the run must go on");
    }
}

#[tokio::test]
async fn the_events_that_nobody_has_read_are_read_by_the_next_process() {
    let gate = Gate::new();
    let upstream = upstream().await;
    let all = [text("It "), text("is 42."), completed("It is 42.")].concat();
    upstream
        .answers_at("/events", [Answer::bytes("").waits(&gate), Answer::events(all)])
        .answers_at("/v1/runs/run_1", [state("running", json!({}))]);
    let mut gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gate.is_reached().await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().shows("bot   It is 42.").await;
    assert_eq!(runs_begun(&upstream), 1);
}

#[tokio::test]
async fn a_run_that_failed_while_nobody_read_says_so() {
    for (end, words) in [
        (state("failed", json!({ "error": "HTTP 400: canary" })), "the agent reported an error"),
        (state("cancelled", json!({})), "it was stopped at the agent server"),
    ] {
        let upstream = with_events(cut()).await;
        upstream.answers_at("/v1/runs/run_1", [end]);
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows(&shown(&format!("bot   It\n\n(cut short: {words}; /retry asks again)"))).await;
    }
}

#[tokio::test]
async fn stop_ends_a_run_that_is_only_waited_for() {
    let upstream = with_events(cut()).await;
    upstream.answers_at("/v1/runs/run_1", [state("running", json!({}))]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "how much?").await;
    room.shows("Waiting for the answer to be ready there.").await;
    room.says("@ann", "/stop").await;
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
    room.shows("(stopped)").await;
}

/// The answer to the request was lost: nobody knows the id of the run, or whether there is one.
#[tokio::test]
async fn a_run_without_a_known_id_is_looked_for_in_the_session_and_never_begun_again() {
    for lost in [
        Answer::bytes("").resets(),
        Answer::bytes("HTTP/1.1 202 Accepted\r\ncontent-length: 50\r\n\r\n{\"run_").closes(),
        Answer::status(202, "{}"),
        Answer::status(202, r#"{"run_id":"../../stop"}"#),
        Answer::status(502, ""),
    ] {
        let upstream = upstream().await;
        upstream.answers_at("/v1/runs", [lost]).answers_at(
            "/messages",
            [session(&[user("how much?")]), session(&[user("how much?"), agent("It is 42.", "stop")])],
        );
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows("bot   It is 42.").await;
        let looks = upstream.requests_to("/messages");
        let path = format!("/api/sessions/{}/messages", sent(&upstream)["session_id"].as_str().unwrap());
        assert_eq!((runs_begun(&upstream), looks[0].path.as_str()), (1, path.as_str()));
    }
}

/// The same question was answered before `/retry`, in a session that the server knows by another name.
#[tokio::test]
async fn a_lost_run_of_a_retried_question_is_looked_for_in_its_own_session() {
    let upstream = with_events(Answer::events(completed("Heads."))).await;
    upstream
        .answers_at("/v1/runs", [begun(scripted::RUN), Answer::bytes("").resets()])
        .answers_at("/messages", [session(&[user("Toss a coin"), agent("Tails.", "stop")])]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "Toss a coin").await;
    gateway.room().shows("bot   Heads.").await;
    gateway.room().says("@ann", "/retry").await;
    gateway.room().shows("bot   Tails.").await;
    assert_eq!(runs_begun(&upstream), 2);
}

/// hermes-agent keeps the words of a message and a mark for each picture.
#[tokio::test]
async fn a_lost_run_with_a_picture_is_looked_for_too() {
    let upstream = upstream().await;
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").resets()])
        .answers_at("/messages", [session(&[user("what is it?\n[screenshot]"), agent("A cat.", "stop")])]);
    let gateway = gateway(&upstream).await;
    gateway.chat().keeps("cat", b"\x89PNG\r\n\x1a\nand so on");
    let room = gateway.room();
    room.brings("@ann", "what is it?", vec![file("cat", MediaKind::Image, "cat.png")]).await;
    room.shows("bot   A cat.").await;
    assert_eq!(runs_begun(&upstream), 1);
}

/// The request never arrived, for example because the process died before it was sent.
#[tokio::test]
async fn a_run_that_never_began_frees_the_room_within_seconds() {
    let upstream = upstream().await;
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").resets()])
        .answers_at("/messages", [session(&[])])
        .answers_at("/health/detailed", [health(1), health(0)]);
    let gateway = gateway(&upstream).await;
    let asked = Instant::now();
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("It may have run all the same; /retry runs it again.").await;
    assert!(asked.elapsed().as_secs() < 10, "{:?}", asked.elapsed());
    assert!(upstream.requests_to("/health/detailed").len() >= 3, "an idle server is looked at twice");
}

/// Somebody mends the key while the run goes on.
#[tokio::test]
async fn a_server_that_does_not_know_our_key_for_a_while_is_asked_again() {
    for code in [401, 403] {
        let upstream = with_events(cut()).await;
        upstream.answers_at("/v1/runs/run_1", [Answer::status(code, ""), has_completed("It is 42.")]);
        let gateway = gateway(&upstream).await;
        gateway.room().says("@ann", "how much?").await;
        gateway.room().shows("bot   It is 42.").await;
    }
}

fn sent(upstream: &Upstream) -> Value {
    upstream.requests_to("/v1/runs")[0].json()
}

#[tokio::test]
async fn a_crash_before_the_id_came_is_looked_for_in_the_session_too() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").waits(&gate).hangs()])
        .answers_at("/messages", [session(&[user("how much?"), agent("It is 42.", "stop")])]);
    let mut gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gate.is_reached().await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().shows("bot   It is 42.").await;
    assert_eq!(runs_begun(&upstream), 1);
}

/// SIGTERM comes between the request and its answer.
#[tokio::test]
async fn the_end_of_the_process_waits_a_moment_for_the_id_of_a_run_that_begins() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").waits(&gate).then(begun(scripted::RUN))])
        .answers_at("/v1/runs/run_1", [has_completed("It is 42.")]);
    let mut gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gate.is_reached().await;
    tokio::join!(gateway.drain(), async { gate.open() });
    gateway.restart().await;
    gateway.room().shows("bot   It is 42.").await;
    assert_eq!(runs_begun(&upstream), 1);
}

/// In a shared room the server is told who asks, so the same words of somebody else are another question there.
#[tokio::test]
async fn the_same_words_of_another_person_are_another_question() {
    let upstream = with_events(Answer::events(completed("First."))).await;
    upstream.answers_at("/v1/runs", [begun(scripted::RUN), Answer::bytes("").resets()]);
    let gateway = gateway(&upstream).await;
    let room = gateway.shared_room();
    room.says("@ann", "ok").await;
    room.shows("First.").await;
    let of_ann = sent(&upstream)["input"].as_str().unwrap().to_owned();
    let of_bob = of_ann.replace("ann", "bob").replace("Ann", "Bob");
    assert_ne!(of_ann, of_bob);
    let kept = [user(&of_ann), agent("First.", "stop"), user(&of_bob), agent("Second.", "stop")];
    upstream.answers_at("/messages", [session(&kept)]);
    room.says("@bob", "ok").await;
    room.shows("Second.").await;
    assert_eq!(runs_begun(&upstream), 2);
}

#[tokio::test]
async fn stop_while_the_answer_is_looked_for_ends_the_run() {
    let upstream = with_events(cut()).await;
    upstream
        .answers_at("/v1/runs/run_1", [Answer::status(200, "{}")])
        .answers_at("/messages", [session(&[user("how much?")])]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    upstream.has_requests("/messages", 1).await;
    gateway.room().says("@ann", "/stop").await;
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
    gateway.room().shows("(stopped)").await;
}

#[tokio::test]
async fn a_run_that_is_nowhere_is_given_up_and_can_be_asked_again() {
    let upstream = upstream().await;
    upstream
        .answers_at("/v1/runs", [Answer::bytes("").resets(), begun(scripted::RUN)])
        .answers_at("/messages", [Answer::unknown()])
        .answers_at("/events", [Answer::events([text("It is 42."), completed("It is 42.")].concat())]);
    let gateway = gateway(&upstream).await;
    let room = gateway.room();
    room.says("@ann", "how much?").await;
    room.shows("It may have run all the same; /retry runs it again.").await;
    assert_eq!(runs_begun(&upstream), 1);
    room.says("@ann", "/retry").await;
    room.shows("bot   It is 42.").await;
    assert_eq!(runs_begun(&upstream), 2);
}

/// A server that was started again knows none of its runs.
#[tokio::test]
async fn a_server_that_has_forgotten_the_run_is_asked_for_the_session() {
    let upstream = with_events(cut()).await;
    upstream
        .answers_at("/v1/runs/run_1", [Answer::unknown()])
        .answers_at("/messages", [session(&[user("how much?"), agent("It is 42.", "stop")])]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
}

#[tokio::test]
async fn a_server_that_died_with_the_run_frees_the_room_within_seconds() {
    let first = with_events(Answer::stream().sends(text("It ")).waits(&Gate::new()).hangs()).await;
    let gateway = gateway(&first).await;
    let room = gateway.room();
    room.says("@ann", "how much?").await;
    room.shows("It").await;
    let address = first.dies().await;
    room.shows("⚠️").await;
    let second = Upstream::at(address, capabilities()).await;
    second
        .answers_at("/v1/runs/run_1", [Answer::unknown()])
        .answers_at("/messages", [session(&[user("how much?")])]);
    let back = Instant::now();
    room.shows(&shown(&format!("bot   It\n\n{LOST}"))).await;
    assert!(back.elapsed().as_secs() < 10, "{:?}", back.elapsed());
    assert_eq!(runs_begun(&second), 0);
}

#[tokio::test]
async fn a_server_that_stumbles_while_it_is_asked_is_asked_again() {
    let upstream = with_events(cut()).await;
    upstream.answers_at(
        "/v1/runs/run_1",
        [
            Answer::status(502, ""),
            Answer::bytes("").resets(),
            state("running", json!({})),
            has_completed("It is 42."),
        ],
    );
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
    assert_eq!(runs_begun(&upstream), 1);
}

#[tokio::test]
async fn a_state_that_is_no_state_leads_to_the_session() {
    let upstream = with_events(cut()).await;
    upstream
        .answers_at("/v1/runs/run_1", [Answer::status(200, "<html>")])
        .answers_at("/messages", [session(&[user("how much?"), agent("It is 42.", "stop")])]);
    let gateway = gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;
}

/// One line of a stream may have a mebibyte, and the last one the whole answer.
#[tokio::test]
async fn an_event_that_is_too_long_is_a_break_and_a_long_end_is_not() {
    let long = "word ".repeat(300_000);
    let upstream = with_events(Answer::events([text("It "), text(&long)].concat())).await;
    upstream.answers_at("/v1/runs/run_1", [has_completed("It is 42.")]);
    let gateway = scripted::gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("bot   It is 42.").await;

    let end = event("run.completed", json!({ "output": format!("{long}end of it") }));
    // The name of the event stands first, as hermes-agent writes it.
    let end = end.replacen("data: {", "data: {\"event\":\"run.completed\",", 1).replacen(
        ",\"event\":\"run.completed\"",
        "",
        1,
    );
    let upstream = with_events(Answer::events(end)).await;
    let gateway = scripted::gateway(&upstream).await;
    gateway.room().says("@ann", "how much?").await;
    gateway.room().shows("end of it").await;
    assert_eq!(upstream.requests_to("/v1/runs/run_1").len(), 0);
}
