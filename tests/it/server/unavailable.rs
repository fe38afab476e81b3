//! The agent is away or busy: a client that reads the answer in one piece and cannot ask for it again gets an error
//! at once; any other client waits.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Response;
use serde_json::{Value, json};
use talaria::agent::AgentErrorKind;

use super::paused::Scene;
use crate::support::stream::{Stream, text_of};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const SESSION: &str = "/api/sessions/s/chat";

/// No server listens at the agent's address.
const AWAY: AgentErrorKind = AgentErrorKind::NothingRan { after: None };

fn busy(seconds: u64, rate_limited: bool) -> AgentErrorKind {
    AgentErrorKind::Busy { after: Some(Duration::from_secs(seconds)), rate_limited }
}

/// A body for each of the endpoints that answer in one piece.
fn body(path: &str) -> Value {
    match path {
        CHAT => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
        RESPONSES => json!({ "input": "hi" }),
        _ => json!({ "message": "hi" }),
    }
}

async fn scene() -> Scene {
    let scene = Scene::start().await;
    assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
    scene
}

async fn read(answer: Response<Body>) -> Value {
    serde_json::from_slice(&to_bytes(answer.into_body(), usize::MAX).await.unwrap()).unwrap()
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_whole_answer_is_told_at_once() {
    let scene = scene().await;
    for path in [CHAT, RESPONSES, SESSION] {
        for (kind, status, code, after) in [
            (AWAY, 503, "agent_unavailable", "5"),
            (busy(7, true), 429, "rate_limit_exceeded", "7"),
            (busy(86_400, false), 503, "agent_unavailable", "300"),
        ] {
            scene.gateway.agent().then_fails(kind, "⚠️ Nobody is there.");
            let runs = scene.gateway.agent_itself().heard().len();
            let answer = scene.post(path, &[], &body(path)).await;
            assert_eq!(answer.status(), status, "{path} {kind:?}");
            assert_eq!(scene.gateway.agent_itself().heard().len(), runs + 1, "{path}: it was tried once");
            assert_eq!(header(&answer, "retry-after"), Some(after), "{path}");
            // Nothing ran, so a client that repeats the request by itself does no harm.
            assert_eq!(header(&answer, "x-should-retry"), None, "{path}");
            let error = read(answer).await["error"].take();
            assert_eq!((&error["code"], &error["param"]), (&json!(code), &Value::Null), "{path}");
            assert!(error["message"].as_str().unwrap().contains("Nobody is there"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_what_was_not_run() {
    let scene = scene().await;
    scene.gateway.agent().then_fails(AWAY, "away");
    assert_eq!(scene.post(SESSION, &[], &body(SESSION)).await.status(), 503);
    let messages = read(scene.get("/api/sessions/s/messages").await).await;
    assert_eq!(messages["data"], json!([]));
    let session = read(scene.get("/api/sessions/s").await).await["session"].take();
    assert_eq!((&session["message_count"], &session["api_call_count"]), (&json!(0), &json!(0)));
    // Its place in the queue is free, and the next turn does not see it.
    scene.gateway.agent().says(["Hello"]);
    let answer = read(scene.post(SESSION, &[], &json!({ "message": "again" })).await).await;
    assert_eq!(answer["message"]["content"], "Hello");
    let messages = read(scene.get("/api/sessions/s/messages").await).await;
    let said: Vec<_> = messages["data"].as_array().unwrap().iter().map(|said| &said["content"]).collect();
    assert_eq!(said, ["again", "Hello"]);
    assert_eq!(scene.gateway.store().read(|tx| tx.open_app_turns()).await.unwrap().len(), 0);
}

/// The next response continues from the same one as if the failed one had never been asked.
#[tokio::test(start_paused = true)]
async fn a_response_that_was_not_run_is_not_gone_on_from() {
    let scene = scene().await;
    scene.gateway.agent().says(["one"]);
    let first = read(scene.post(RESPONSES, &[], &json!({ "input": "1" })).await).await;
    let next = json!({ "input": "2", "previous_response_id": first["id"] });
    scene.gateway.agent().then_fails(AWAY, "away");
    assert_eq!(scene.post(RESPONSES, &[], &next).await.status(), 503);
    scene.gateway.agent().says(["two"]);
    let second = read(scene.post(RESPONSES, &[], &next).await).await;
    assert_eq!(second["output"][0]["content"][0]["text"], "two");
    let history = scene.gateway.agent_itself().heard().last().unwrap().history.clone();
    let said: Vec<_> = history.iter().map(|said| said.content.as_str()).collect();
    assert_eq!(said, ["1", "one"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_a_stream_or_has_a_key_waits() {
    let scene = scene().await;
    for path in [CHAT, RESPONSES, SESSION] {
        scene.gateway.agent().then_fails(AWAY, "away");
        scene.gateway.agent().says(["Hello"]);
        assert_eq!(scene.post(path, &[("idempotency-key", path)], &body(path)).await.status(), 200, "{path}");

        scene.gateway.agent().then_fails(AWAY, "away");
        scene.gateway.agent().says(["Hello"]);
        let path = if path == SESSION { "/api/sessions/s/chat/stream" } else { path };
        let mut body = body(path);
        body["stream"] = json!(true);
        let answer = scene.post(path, &[], &body).await;
        let events = Stream::of(answer.into_body().into_data_stream()).rest().await;
        assert_eq!(text_of(&events), "Hello", "{path}");
    }
    // In the background: the client does not wait.
    scene.gateway.agent().then_fails(AWAY, "away");
    scene.gateway.agent().says(["Hello"]);
    let answer = scene.post(RESPONSES, &[], &json!({ "input": "hi", "background": true })).await;
    let id = read(answer).await["id"].as_str().unwrap().to_owned();
    let answer = scene.get(&format!("{RESPONSES}/{id}?stream=true")).await;
    let events = Stream::of(answer.into_body().into_data_stream()).rest().await;
    assert_eq!(events.last().unwrap().kind(), "response.completed");
}
