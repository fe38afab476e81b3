//! Agents and servers that would drive the terminal, lie or flood.

use serde_json::{Value, json};

use super::scene::{AskScene, terminal};
use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Upstream};

/// Clears the screen, moves the cursor, sets the title, and turns the text around.
const HOSTILE: &str = "red\u{1b}[2J\u{1b}[1A\u{1b}]0;owned\u{7}\u{9b}31m\r\u{202e}end";

/// A server whose only run has these events. Each has an id.
async fn server_with(events: &[Value]) -> Upstream {
    let upstream = Upstream::plain().await;
    upstream.answers_at("/v1/runs", [Answer::status(202, r#"{"run_id":"run_1","session_id":"s"}"#)]);
    let events: String =
        (1..).zip(events).map(|(id, event)| format!("id: {id}\ndata: {event}\n\n")).collect();
    upstream.answers_at("/events", [Answer::events(events)]);
    upstream.answers_at("/approval", [Answer::status(200, "{}")]);
    upstream
}

#[tokio::test]
async fn a_terminal_shows_what_it_would_obey_and_a_program_gets_every_byte() {
    let scene = AskScene::start().await;
    scene.upstream.answers(Answer::says([HOSTILE])).answers(Answer::says([HOSTILE]));
    let terminal = scene.at_a_terminal("talaria ask hi");
    let (code, screen) = terminal.ended().await;
    assert_eq!((code, screen.as_str()), (0, "red␛[2J␛[1A␛]0;owned␇⟨U+009B⟩31m␍⟨U+202E⟩end\r\n"));
    scene.asks(["hi"]).await.showed(&format!("{HOSTILE}\n"));
}

#[tokio::test]
async fn nothing_that_a_server_says_is_obeyed() {
    let events = [
        json!({ "event": "reasoning.available", "text": HOSTILE }),
        json!({ "event": "tool.started", "tool": HOSTILE, "preview": HOSTILE, "tool_call_id": "1" }),
        json!({ "event": "tool.completed", "tool": HOSTILE, "error": true, "tool_call_id": "1" }),
        json!({ "event": "run.notice", "message": HOSTILE }),
        json!({ "event": "approval.request", "approval_id": "a", "title": HOSTILE, "detail": HOSTILE, "cwd": HOSTILE,
                "reason": HOSTILE, "gap": HOSTILE }),
        json!({ "event": "message.delta", "delta": HOSTILE }),
        json!({ "event": "run.failed", "error": HOSTILE, "code": HOSTILE, "remarks": [HOSTILE] }),
    ];
    let upstream = server_with(&events).await;
    let home = Talaria::new();
    for option in ["", "--json"] {
        let script = format!("talaria ask --deny {option} --url {} hi", upstream.url());
        let (code, screen) = terminal(home.home(), &script).ended().await;
        assert_eq!(code, 1, "{screen}");
        let obeyed = |c: &char| c.is_control() && !matches!(c, '\r' | '\n') || *c == '\u{202e}';
        assert_eq!(screen.chars().find(obeyed), None, "{screen:?}");
        // The terminal itself writes one before each line end, and nobody else does.
        assert!(!screen.replace("\r\n", "").contains('\r'), "{screen:?}");
    }
    let ended = home.does(["ask", "--deny", "--json", "--url", &upstream.url(), "hi"]).await;
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(document["answer"], HOSTILE, "a program gets every byte");
}

#[tokio::test]
async fn what_is_typed_ahead_allows_nothing() {
    let asked =
        json!({ "event": "approval.request", "approval_id": "a", "title": "run", "detail": "rm -r x" });
    let upstream = server_with(&[asked]).await;
    let home = Talaria::new();
    // The shell is busy until the test has typed.
    let script = format!("read begin; talaria ask --url {} hi", upstream.url());
    let mut terminal = terminal(home.home(), &script);
    terminal.presses("begin\nyes\nyes\n");
    terminal.shows("or no.\r\n> ").await;
    assert!(upstream.requests_to("/approval").is_empty());
    terminal.types("no");
    upstream.has_requests("/approval", 1).await;
    assert_eq!(upstream.requests_to("/approval")[0].json(), json!({ "approval_id": "a", "choice": "deny" }));
}

#[tokio::test]
async fn options_and_own_words_answer_a_question() {
    let options = json!([{ "id": "x1", "label": "Blue", "kind": "answer" }, { "id": "x2", "label": "Red", "kind": "answer" }]);
    let asked = |id: &str, text: bool| json!({ "event": "approval.request", "approval_id": id, "title": "colour", "detail": "Which?", "options": options, "text": text });
    let upstream = server_with(&[asked("a", false), asked("b", true)]).await;
    let home = Talaria::new();
    let mut terminal = terminal(home.home(), &format!("talaria ask --url {} hi", upstream.url()));
    terminal.shows("Write a number; Ctrl-D refuses to answer.\r\n> ").await;
    terminal.types("2");
    upstream.has_requests("/approval", 1).await;
    terminal.shows("in your own words; Ctrl-D refuses to answer.\r\n> ").await;
    terminal.types("green, please");
    upstream.has_requests("/approval", 2).await;
    let sent: Vec<_> = upstream.requests_to("/approval").iter().map(|request| request.json()).collect();
    assert_eq!(
        sent,
        [
            json!({ "approval_id": "a", "choice": "answer", "option": "x2" }),
            json!({ "approval_id": "b", "choice": "answer", "text": "green, please" }),
        ]
    );
}

#[tokio::test]
async fn an_endless_event_ends_with_a_sentence() {
    let upstream = server_with(&[]).await;
    let flood = Answer::stream().sends("data: ").repeats("x".repeat(64 * 1024), 32).hangs();
    upstream.answers_at("/events", [flood]);
    upstream.answers_at("/stop", [Answer::status(200, "{}")]);
    let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "hi"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    ended.said("error: a server-sent event is longer than 1048576 bytes");
    upstream.has_requests("/v1/runs/run_1/stop", 1).await;
}

#[tokio::test]
async fn a_long_answer_at_the_end_of_a_run_is_taken_whole() {
    let long = "line\n".repeat(600_000);
    let upstream = server_with(&[
        json!({ "event": "message.delta", "delta": "Draft" }),
        json!({ "event": "run.completed", "output": long }),
    ])
    .await;
    let ended = Talaria::new().does(["ask", "--url", &upstream.url(), "hi"]).await;
    ended.showed(&format!("Draft\n{long}"));
    ended.said("· The agent has replaced its answer; the whole new one follows.\n");
}
