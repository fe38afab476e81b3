//! The room shows the agent server's requests for approval, and the answer goes back. Defect 10.

use serde_json::{Value, json};

use crate::support::relay::relay;
use crate::support::upstream::{Answer, DONE, Gate, Upstream, delta, finish};

/// The headers of every stream here.
const HEADERS: [(&str, &str); 2] = [("content-type", "text/event-stream"), ("x-hermes-run-id", "run_1")];

async fn upstream() -> Upstream {
    let features = json!({
        "idempotency": true, "resumable_runs": true, "approvals": true, "session_resources": true,
        "session_continuity_header": "X-Hermes-Session-Id",
    });
    Upstream::with_capabilities(Answer::status(200, &json!({ "features": features }).to_string())).await
}

fn stream() -> Answer {
    Answer::stream_with(&HEADERS)
}

/// An event that asks for approval, in our server's format.
fn request(id: &str, detail: &str) -> String {
    let data = json!({
        "object": "chat.completion.chunk", "choices": [], "run_id": "run_1", "approval_id": id,
        "title": "run a command", "detail": detail, "cwd": "/home/ann", "expires_at": 4_000_000_000_u64,
        "approval": { "choices": ["once", "session", "always", "deny"] },
    });
    format!("event: approval.request\nid: 1.0.0\ndata: {data}\n\n")
}

fn responded(id: &str) -> String {
    let data = json!({ "choices": [], "run_id": "run_1", "approval_id": id, "choice": "deny" });
    format!("event: approval.responded\nid: 2.0.0\ndata: {data}\n\n")
}

fn end() -> String {
    finish("stop") + DONE
}

/// The answers that the upstream got, in order: approval id and choice.
fn told(upstream: &Upstream) -> Vec<(String, String)> {
    let text = |body: &Value, name: &str| body[name].as_str().unwrap().to_owned();
    let answers = upstream.requests_to("/v1/runs/run_1/approval");
    let bodies = answers.iter().map(|answer| answer.json());
    bodies.map(|body| (text(&body, "approval_id"), text(&body, "choice"))).collect()
}

fn answers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, choice)| ((*id).to_owned(), (*choice).to_owned())).collect()
}

#[tokio::test]
async fn an_approval_is_asked_in_the_room_and_the_stream_is_read_on_meanwhile() {
    let (upstream, asked, end_gate) = (upstream().await, Gate::new(), Gate::new());
    let answer = stream().sends(delta("Let me clean up. ") + &*request("a1", "rm -r build")).waits(&asked);
    upstream
        .answers(answer.sends(delta("Still here. ")).waits(&end_gate).sends(delta("Done.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    let question = room.is_asked("run a command").await;
    assert!(
        question.text.contains("rm -r build") && question.text.contains("/home/ann"),
        "{}",
        question.text
    );
    asked.open();
    room.shows("Still here.").await;
    assert_eq!(told(&upstream), [], "nothing was decided");
    room.says("@ann", "/approve").await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    end_gate.open();
    room.shows("Let me clean up. Still here. Done.").await;
    assert_eq!(told(&upstream), answers(&[("a1", "once")]));
}

#[tokio::test]
async fn what_is_allowed_for_longer_is_remembered_here_and_told_as_once() {
    let upstream = upstream().await;
    let (first, second) = (Gate::new(), Gate::new());
    let answer = stream().sends(request("a1", "make")).waits(&first).sends(request("a2", "make"));
    upstream.answers(answer.waits(&second).sends(delta("Made twice.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "make it").await;
    room.is_asked("run a command").await;
    room.says("@ann", "/approve session").await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    first.open();
    upstream.has_requests("/v1/runs/run_1/approval", 2).await;
    second.open();
    room.shows("Made twice.").await;
    assert_eq!(told(&upstream), answers(&[("a1", "once"), ("a2", "once")]));
    assert_eq!(room.asked().len(), 1, "the second need not be asked");
}

/// Another server may ask for an approval and say that it does not tell everything.
#[tokio::test]
async fn an_approval_with_a_gap_is_asked_with_the_warning_and_holds_once() {
    let (upstream, gate) = (upstream().await, Gate::new());
    let gap = r#""gap":"Not\n\n- all of it","#;
    let asked = request("a1", "TOKEN=*** true").replace(r#""run_id":"#, &format!(r#"{gap}"run_id":"#));
    upstream.answers(stream().sends(asked).waits(&gate).sends(delta("Done.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    let ask = room.is_asked("run a command").await;
    assert!(ask.text.contains("\n`Not␊␊- all of it`\n") && !ask.text.contains("session"), "{}", ask.text);
    room.says("@ann", &format!("/approve {} session", ask.code)).await;
    room.shows("This can be allowed only once at a time").await;
    assert_eq!(told(&upstream), [], "nothing was decided");
    room.says("@ann", &format!("/approve {}", ask.code)).await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    gate.open();
    room.shows("Done.").await;
    assert_eq!(told(&upstream), answers(&[("a1", "once")]));
}

#[tokio::test]
async fn several_questions_are_open_at_once_and_answered_in_any_order() {
    let (upstream, gate) = (upstream().await, Gate::new());
    let both = request("a1", "first thing") + &*request("a2", "second thing");
    upstream.answers(stream().sends(both).waits(&gate).sends(delta("Both done.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "do both").await;
    let (one, two) = (room.is_asked("first thing").await, room.is_asked("second thing").await);
    room.says("@ann", &format!("/approve {}", two.code)).await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    room.says("@ann", &format!("/deny {}", one.code)).await;
    upstream.has_requests("/v1/runs/run_1/approval", 2).await;
    gate.open();
    room.shows("Both done.").await;
    assert_eq!(told(&upstream), answers(&[("a2", "once"), ("a1", "deny")]));
}

#[tokio::test]
async fn a_question_that_is_answered_elsewhere_is_taken_back_here() {
    let (upstream, asked, gate) = (upstream().await, Gate::new(), Gate::new());
    let answer =
        stream().sends(request("a1", "rm -r build")).waits(&asked).sends(responded("a1")).waits(&gate);
    upstream.answers(answer.sends(delta("Then not.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "clean up").await;
    room.is_asked("run a command").await;
    asked.open();
    room.shows("Denied, because the agent no longer waits for it").await;
    room.says("@ann", "/approve").await;
    room.shows("Nothing is waiting for an answer here.").await;
    gate.open();
    room.shows("Then not.").await;
    assert_eq!(told(&upstream), []);
}

#[tokio::test]
async fn a_stream_that_is_read_again_asks_nothing_again() {
    let (upstream, asked, gate) = (upstream().await, Gate::new(), Gate::new());
    let replay = request("a1", "answered before") + &*request("a2", "still open");
    upstream
        .answers(stream().sends(replay.clone()).waits(&asked).closes())
        .answers(stream().sends(replay).waits(&gate).sends(delta("All done.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "do it").await;
    let (one, two) = (room.is_asked("answered before").await, room.is_asked("still open").await);
    room.says("@ann", &format!("/approve {}", one.code)).await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    asked.open();
    upstream.has_prompts(2).await;
    room.says("@ann", &format!("/approve {}", two.code)).await;
    upstream.has_requests("/v1/runs/run_1/approval", 2).await;
    gate.open();
    room.shows("All done.").await;
    assert_eq!(told(&upstream), answers(&[("a1", "once"), ("a2", "once")]));
    assert_eq!(room.asked().len(), 2);
}

#[tokio::test]
async fn an_answer_that_is_given_while_the_connection_is_down_arrives_when_it_is_back() {
    let (upstream, asked, gate) = (upstream().await, Gate::new(), Gate::new());
    upstream
        .answers(stream().sends(request("a1", "make")).waits(&asked).closes())
        .answers(Answer::status(502, ""))
        .answers(stream().sends(request("a1", "make")).waits(&gate).sends(delta("Made.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "make it").await;
    room.is_asked("make").await;
    asked.open();
    upstream.has_prompts(2).await;
    room.says("@ann", "/approve").await;
    upstream.has_requests("/v1/runs/run_1/approval", 1).await;
    gate.open();
    room.shows("Made.").await;
    assert_eq!((told(&upstream), room.asked().len()), (answers(&[("a1", "once")]), 1));
}

#[tokio::test]
async fn an_answer_that_comes_too_late_there_is_said_in_the_room() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream.answers_at("/approval", [Answer::status(409, r#"{"error":{"code":"approval_not_pending"}}"#)]);
    upstream.answers(
        stream().sends(request("a1", "make")).waits(&gate).sends(delta("Not made.") + &*end()).ends(),
    );
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "make it").await;
    room.is_asked("make").await;
    room.says("@ann", "/approve").await;
    room.shows("The approval did not reach the agent server, which therefore denies this: `run a command`")
        .await;
    gate.open();
    room.shows("Not made.").await;
}

#[tokio::test]
async fn a_server_that_stumbles_over_an_answer_is_told_again() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream.answers_at(
        "/approval",
        [Answer::status(503, ""), Answer::bytes("").resets(), Answer::status(200, "{}")],
    );
    upstream
        .answers(stream().sends(request("a1", "make")).waits(&gate).sends(delta("Made.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "make it").await;
    room.is_asked("make").await;
    room.says("@ann", "/approve").await;
    upstream.has_requests("/v1/runs/run_1/approval", 3).await;
    gate.open();
    room.shows("Made.").await;
    assert_eq!(told(&upstream), answers(&[("a1", "once"); 3]));
}

#[tokio::test]
async fn hostile_questions_are_neither_asked_nor_a_way_elsewhere() {
    let upstream = upstream().await;
    let odd = |data: Value| format!("event: approval.request\ndata: {data}\n\n");
    let events = [
        odd(json!([])),
        odd(json!({ "approval_id": 7, "detail": "x" })),
        // Without an action nobody can judge it; the engine denies it.
        odd(json!({ "run_id": "run_1", "approval_id": "empty" })),
        "event: approval.request\ndata: nonsense\n\n".to_owned(),
        "event: approval.responded\ndata: {\"approval_id\":\"never asked\"}\n\n".to_owned(),
        odd(json!({ "run_id": "../../v1/responses", "approval_id": "elsewhere", "detail": "" })),
    ];
    let gate = Gate::new();
    upstream.answers(stream().sends(events.concat()).waits(&gate).sends(delta("Fine.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "hi").await;
    upstream.has_requests("/v1/runs/run_1/approval", 2).await;
    gate.open();
    room.shows("Fine.").await;
    assert_eq!(room.asked().len(), 0);
    let mut told = told(&upstream);
    told.sort();
    assert_eq!(told, answers(&[("elsewhere", "deny"), ("empty", "deny")]));
}

/// An event that asks for an answer, with these options as the server wrote them.
fn question(id: &str, options: &Value, text: bool) -> String {
    let data = json!({
        "object": "chat.completion.chunk", "choices": [], "run_id": "run_1", "approval_id": id,
        "title": "Colour", "detail": "Which colour?", "options": options, "text": text,
    });
    format!("event: approval.request\nid: 1.0.0\ndata: {data}\n\n")
}

#[tokio::test]
async fn an_answer_is_told_with_the_option_or_the_words() {
    for (words, body) in [
        ("blue", json!({ "approval_id": "a1", "choice": "answer", "option": "b" })),
        ("green", json!({ "approval_id": "a1", "choice": "answer", "text": "green" })),
    ] {
        let (upstream, gate) = (upstream().await, Gate::new());
        let options = json!([{ "id": "b", "label": "blue", "kind": "answer" }]);
        let answer = stream().sends(question("a1", &options, true)).waits(&gate);
        upstream.answers(answer.sends(delta("Done.") + &*end()).ends());
        let gateway = relay(&upstream.url(), None).await;
        let room = gateway.room();
        room.says("@ann", "paint it").await;
        let asked = room.is_asked("Colour").await;
        room.says("@ann", &format!("/answer {} {words}", asked.code)).await;
        upstream.has_requests("/v1/runs/run_1/approval", 1).await;
        gate.open();
        room.shows("Done.").await;
        assert_eq!(upstream.requests_to("/v1/runs/run_1/approval")[0].json(), body);
    }
}

/// A newer server may offer what we do not know; shown without that, an answer could allow more than people read.
#[tokio::test]
async fn options_that_cannot_be_read_are_denied_here_and_there() {
    for options in [
        json!([{ "id": "b", "label": "blue", "kind": "allow_for_a_week" }]),
        json!([{ "name": "blue" }]),
        json!("blue"),
        json!((0..200).map(|n| json!({ "id": n.to_string(), "label": "x" })).collect::<Vec<_>>()),
    ] {
        let (upstream, gate) = (upstream().await, Gate::new());
        let answer = stream().sends(question("a1", &options, true)).waits(&gate);
        upstream.answers(answer.sends(delta("Then not.") + &*end()).ends());
        let gateway = relay(&upstream.url(), None).await;
        let room = gateway.room();
        room.says("@ann", "paint it").await;
        upstream.has_requests("/v1/runs/run_1/approval", 1).await;
        gate.open();
        room.shows("cannot be shown here in full and so nobody could judge it: `Colour`").await;
        assert_eq!((told(&upstream), room.asked().len()), (answers(&[("a1", "deny")]), 0), "{options}");
    }
}

#[tokio::test]
async fn an_answer_that_the_server_does_not_take_is_said_so() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream.answers_at("/approval", [Answer::status(400, r#"{"error":{"code":"unknown_option"}}"#)]);
    let options = json!([{ "id": "b", "label": "blue" }]);
    let answer = stream().sends(question("a1", &options, false)).waits(&gate);
    upstream.answers(answer.sends(delta("Then not.") + &*end()).ends());
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "paint it").await;
    let asked = room.is_asked("Colour").await;
    room.says("@ann", &format!("/answer {} 1", asked.code)).await;
    room.shows(
        "The answer did not reach the agent server, which therefore treats the question as denied: `Colour`",
    )
    .await;
    gate.open();
}
