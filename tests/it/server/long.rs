//! Long turns: a late reader gets them piece by piece.

use axum::body::{Body, Bytes};
use axum::http::Response;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::events::{Event, events};
use super::paused::Scene;

/// Bytes that are handed to the connection at once, at most: the target, one more piece of the text, and some
/// overhead.
const AT_ONCE: usize = 256 * 1024 + 2 * 64 * 1024;

/// A text whose pieces end in the middle of characters.
fn long() -> String {
    "x".to_owned() + "😀é".repeat(50_000).as_str()
}

/// Reads the whole body and checks that no piece is larger than allowed.
async fn read(answer: Response<Body>) -> Vec<Event> {
    assert_eq!(answer.status(), 200);
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut body = answer.into_body().into_data_stream();
    while let Some(piece) = body.next().await {
        pieces.push(piece.unwrap());
    }
    let most = pieces.iter().map(Bytes::len).max().unwrap_or_default();
    assert!(most <= AT_ONCE, "{most} bytes at once");
    events(std::str::from_utf8(&pieces.concat()).unwrap())
}

fn text(events: &[Event]) -> String {
    let delta = |event: &Event| {
        let data = &event.data;
        let reasoning = event.name.contains("reasoning") || data["event"] == "reasoning.available";
        let delta = data.pointer("/choices/0/delta/content").or_else(|| data.get("delta"));
        delta.and_then(Value::as_str).filter(|_| !reasoning && data["tool_name"].is_null()).map(str::to_owned)
    };
    events.iter().filter_map(delta).collect()
}

/// Reads the run of this key on one surface.
async fn ask(scene: &Scene, path: &str, body: &Value, after: Option<&str>) -> Vec<Event> {
    let mut headers = vec![("idempotency-key", "k")];
    headers.extend(after.map(|id| ("last-event-id", id)));
    match body {
        Value::Null => read(scene.get_with(path, &headers).await).await,
        body => read(scene.post(path, &headers, body).await).await,
    }
}

/// Reads a run from its beginning and from after each of its events.
async fn is_whole_from_everywhere(scene: &Scene, path: &str, body: &Value, ends: &[&str]) {
    let whole = ask(scene, path, body, None).await;
    let wanted = long();
    assert!(text(&whole) == wanted, "{path}");
    let is_end = |event: &&Event| ends.first().is_some_and(|end| event.data.pointer(end).is_some());
    let end = whole.iter().rev().find(is_end).unwrap_or(&whole[0]);
    // Where the end does not repeat the text, no event is as long as the text.
    let longest = whole.iter().map(|event| event.data.to_string().len()).max().unwrap();
    assert!(!ends.is_empty() || longest < wanted.len(), "{path}: {longest}");
    for pointer in ends {
        assert!(end.data.pointer(pointer).unwrap().as_str() == Some(&wanted), "{path}: {pointer}");
    }
    let deltas = whole.iter().filter(|event| !text(std::slice::from_ref(event)).is_empty()).count();
    assert!(deltas > 4, "{path}: {deltas}");
    for (at, event) in whole.iter().enumerate().filter(|(_, event)| !event.id.is_empty()) {
        let rest = ask(scene, path, body, Some(&event.id)).await;
        assert!(text(&whole[..=at]) + text(&rest).as_str() == wanted, "{path}: behind {at}");
    }
}

async fn is_whole_everywhere(scene: &Scene, run: &str) {
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    is_whole_from_everywhere(scene, "/v1/chat/completions", &chat, &[]).await;
    is_whole_from_everywhere(scene, &format!("/v1/runs/{run}/events"), &Value::Null, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_read_in_pieces_while_it_is_remembered_and_from_the_store() {
    let mut scene = Scene::start().await;
    scene.gateway.agent().says([long().as_str()]);
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    let answer = scene.post("/v1/chat/completions", &[("idempotency-key", "k")], &chat).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    read(answer).await;
    is_whole_everywhere(&scene, &run).await;
    scene.restart().await;
    is_whole_everywhere(&scene, &run).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_of_a_session_is_read_in_pieces() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
    scene.gateway.agent().thinks(&long()).says([long().as_str()]);
    let (path, body) = ("/api/sessions/s/chat/stream", json!({ "message": "go" }));
    for _ in 0..2 {
        is_whole_from_everywhere(&scene, path, &body, &["/messages/0/content", "/content"]).await;
        scene.restart().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_response_is_read_in_pieces() {
    let mut scene = Scene::start().await;
    scene.gateway.agent().thinks(&long()).says([long().as_str()]);
    let (path, body) = ("/v1/responses", json!({ "input": "go", "stream": true }));
    let whole = ask(&scene, path, &body, None).await;
    let thought = whole.iter().find(|event| event.name == "response.reasoning_text.done").unwrap();
    assert!(thought.data["text"].as_str() == Some(&long()));
    let output = &whole.last().unwrap().data["response"]["output"];
    assert!(output[0]["content"][0]["text"].as_str() == Some(&long()));
    is_whole_from_everywhere(&scene, path, &body, &["/response/output/1/content/0/text"]).await;
    for (name, pointer) in [
        ("response.output_text.done", "/text"),
        ("response.content_part.done", "/part/text"),
        ("response.output_item.done", "/item/content/0/text"),
    ] {
        let told = whole.iter().rfind(|event| event.name == name).unwrap();
        assert!(told.data.pointer(pointer).unwrap().as_str() == Some(&long()), "{name}");
    }
    scene.restart().await;
    is_whole_from_everywhere(&scene, path, &body, &["/response/output/0/content/0/text"]).await;
}
