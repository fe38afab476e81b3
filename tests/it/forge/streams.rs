//! A turn as a stream.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use talaria::agent::AgentErrorKind;

use super::scene::ForgeScene;
use crate::support::stream::{Event, Stream};

async fn streams(scene: &ForgeScene, session: &str, body: Value) -> Stream {
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{session}/turn"));
    let answer: Response =
        request.header("accept", "text/event-stream").body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    Stream::of(answer)
}

async fn rest(stream: &mut Stream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.try_next().await.unwrap() {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn events_come_as_they_happen_and_the_end_comes_last() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["hel"]).then_hangs().says(["lo"]);
    let mut stream = streams(&scene, &id, json!({ "prompt": "x" })).await;
    let first = stream.try_next().await.unwrap().unwrap();
    assert_eq!(first.name.as_deref(), Some("turn"));
    assert_eq!((&first.json()["turn_index"], &first.json()["session_id"]), (&json!(1), &json!(id)));
    let text = stream.try_next().await.unwrap().unwrap();
    assert_eq!(
        (text.name.as_deref(), &text.json()["content"]),
        (None, &json!("hel")),
        "before the turn has ended"
    );
    script.is_hanging().await;
    script.goes_on();
    let events = rest(&mut stream).await;
    let (done, entries) = events.split_last().unwrap();
    assert_eq!(entries.first().unwrap().json()["content"], "lo");
    assert_eq!(entries.last().unwrap().json()["result"]["stopReason"], "end_turn");
    assert_eq!(done.name.as_deref(), Some("done"));
    assert_eq!((&done.json()["ok"], &done.json()["stop_reason"]), (&json!(true), &json!("end_turn")));
}

#[tokio::test]
async fn lines_of_the_agent_are_passed_on_and_nothing_is_made_of_them() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let line = r#"{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\nb"}}}}"#;
    scene.says().lines([line]).says(["a\nb"]);
    let events = rest(&mut streams(&scene, &id, json!({ "prompt": "x" })).await).await;
    let entries: Vec<_> = events.iter().filter(|event| event.name.is_none()).map(Event::json).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!((&entries[0]["type"], &entries[0]["content"]), (&json!("text"), &json!("a\nb")));
}

#[tokio::test]
async fn a_stream_ends_at_the_time_limit_too() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene.says().says(["half"]).then_hangs();
    let events = rest(&mut streams(&scene, &id, json!({ "prompt": "x", "timeout_secs": 1 })).await).await;
    let done = events.last().unwrap().json();
    assert_eq!((&done["ok"], &done["stop_reason"]), (&json!(true), &json!("timeout")));
}

#[tokio::test]
async fn a_reader_that_leaves_stops_the_turn() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).then_hangs();
    let mut stream = streams(&scene, &id, json!({ "prompt": "x" })).await;
    stream.try_next().await.unwrap();
    script.is_hanging().await;
    drop(stream);
    tokio::time::timeout(Duration::from_secs(30), script.is_told_to_stop()).await.unwrap();
}

#[tokio::test]
async fn a_revoked_token_cuts_its_streams_off() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).then_hangs();
    let mut stream = streams(&scene, &id, json!({ "prompt": "x" })).await;
    script.is_hanging().await;
    scene.served.revoke("forge").await;
    let broke = loop {
        match stream.try_next().await {
            Ok(Some(event)) => assert_ne!(event.name.as_deref(), Some("done")),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broke, "it does not look like an end");
    script.is_told_to_stop().await;
    assert_eq!(scene.get("/sessions").await.status(), 401);
}

#[tokio::test]
async fn a_stream_of_a_busy_agent_says_when_to_ask_again() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let kind = AgentErrorKind::Busy { after: Some(Duration::from_secs(7)), rate_limited: false };
    scene.says().then_fails(kind, "All processes are in use.");
    let events = rest(&mut streams(&scene, &id, json!({ "prompt": "x" })).await).await;
    let done = events.last().unwrap().json();
    assert!(done["ok"] == false && done["retry_after"].as_u64().is_some_and(|after| after > 0), "{done}");
}
