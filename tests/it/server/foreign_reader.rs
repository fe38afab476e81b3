//! Streams of the server are read by a parser that is not ours: `eventsource-stream`.

use eventsource_stream::{Event, Eventsource as _};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use super::paused::Scene;

/// Text with everything that could break the framing.
const TRICKY: [&str; 4] =
    ["one\n\ndata: two\r\n", "event: x\r", ": no comment\u{feff}", "\u{2028}ü🦀\nid: 7"];

/// All events of a streamed answer of an agent that says [`TRICKY`].
async fn events(scene: &Scene, path: &str, body: &Value) -> Vec<Event> {
    scene.gateway.agent().says(TRICKY);
    let answer = scene.post(path, &[], body).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer.into_body().into_data_stream().eventsource().try_collect().await.unwrap()
}

/// The text of the deltas that stand at this place of each event.
fn text(events: &[Event], delta: &str) -> String {
    let parsed = events.iter().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok());
    parsed.filter_map(|data| data.pointer(delta)?.as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_stream_is_read_whole_by_another_parser() {
    let scene = Scene::start().await;
    let said = TRICKY.concat();
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    let read = events(&scene, "/v1/chat/completions", &chat).await;
    assert_eq!(text(&read, "/choices/0/delta/content"), said);
    assert_eq!(read.last().unwrap().data, "[DONE]");

    let read = events(&scene, "/v1/responses", &json!({ "input": "hi", "stream": true })).await;
    let deltas: Vec<_> =
        read.iter().filter(|event| event.event == "response.output_text.delta").cloned().collect();
    assert_eq!(text(&deltas, "/delta"), said);
    assert_eq!(read.last().unwrap().event, "response.completed");

    assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
    let read = events(&scene, "/api/sessions/s/chat/stream", &json!({ "message": "hi" })).await;
    let deltas: Vec<_> = read.iter().filter(|event| event.event == "assistant.delta").cloned().collect();
    assert_eq!(text(&deltas, "/delta"), said);
    // Every place from which a broken stream can be resumed reaches the client as an id.
    assert!(read.iter().all(|event| !event.id.is_empty()), "{read:?}");
}
