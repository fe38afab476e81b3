//! A stream reports that the agent is away, if its clients understand that.

use std::time::Duration;

use serde_json::{Value, json};
use talaria::agent::AgentErrorKind;

use super::paused::Scene;
use crate::support::stream::{Event, Stream, text_of};

/// Nothing ran, so it is tried again in a minute.
const AWAY: AgentErrorKind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) };

/// Reads all of a turn whose agent comes back.
async fn read(scene: &Scene, path: &str, body: &Value) -> (Vec<Event>, Vec<String>) {
    scene.gateway.agent().then_fails(AWAY, "the agent\nevent: is away");
    scene.gateway.agent().says(["Hello"]);
    let answer = scene.post(path, &[], body).await;
    assert_eq!(answer.status(), 200);
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    let events = stream.rest().await;
    assert_eq!(text_of(&events), "Hello");
    (events, stream.comments.into_iter().filter(|comment| comment != "keepalive").collect())
}

#[tokio::test(start_paused = true)]
async fn clients_of_common_protocols_are_told_in_a_comment() {
    let scene = Scene::start().await;
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    for (path, body) in
        [("/v1/chat/completions", chat), ("/v1/responses", json!({ "input": "hi", "stream": true }))]
    {
        let (events, comments) = read(&scene, path, &body).await;
        assert_eq!(comments, ["waiting for the agent"], "{path}");
        assert!(events.iter().all(|event| event.kind() != "run.notice"), "{path}: {events:?}");
    }
}

/// The texts of the notices among these events.
fn notices(events: &[Event]) -> Vec<Value> {
    let notices = events.iter().filter(|event| event.kind() == "run.notice");
    notices.map(|event| event.json()["message"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_a_run_or_a_session_is_told_in_an_event() {
    let scene = Scene::start().await;
    assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
    let (events, comments) = read(&scene, "/api/sessions/s/chat/stream", &json!({ "message": "hi" })).await;
    assert_eq!(comments, [""; 0]);
    let told = notices(&events);
    let [Value::String(words), Value::Null] = told.as_slice() else { panic!("{events:?}") };
    assert!(words.starts_with("The agent event: is away. Trying again until "), "{words}");
    let order: Vec<_> = events.iter().map(|event| event.json()["seq"].as_u64().unwrap()).collect();
    assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");

    let run = events[0].json()["run_id"].as_str().unwrap().to_owned();
    let answer = scene.get(&format!("/v1/runs/{run}/events")).await;
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    let rest = stream.rest().await;
    assert_eq!(notices(&rest), told);
    // A reader who comes back gets no notice a second time.
    let seen = rest.iter().rfind(|event| event.kind() == "run.notice").unwrap();
    let answer = scene.get(&format!("/v1/runs/{run}/events?after={}", seen.id.as_ref().unwrap())).await;
    let rest = Stream::of(answer.into_body().into_data_stream()).rest().await;
    assert_eq!((notices(&rest), text_of(&rest).as_str()), (vec![], "Hello"));
}
