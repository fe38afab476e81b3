//! A final text that differs from the streamed deltas is never appended to them, also long after.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::served::Served;
use crate::support::stream::{Event, Stream, text_of};

fn surfaces() -> [(&'static str, Value, &'static str); 3] {
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    [
        ("/v1/chat/completions", chat, "/hermes/text"),
        ("/api/sessions/s/chat/stream", json!({ "message": "hi" }), "/content"),
        ("/v1/responses", json!({ "input": "hi", "stream": true }), "/response/output/0/content/0/text"),
    ]
}

async fn read(served: &Served, path: &str, body: &Value, after: Option<&str>) -> Vec<Event> {
    let request = served.request(Method::POST, path).header("idempotency-key", path.replace('/', "."));
    let request = match after {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    let answer = request.body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    Stream::of(answer).rest().await
}

/// The text that the last event reports.
fn whole(events: &[Event], pointer: &str) -> String {
    let told = events.iter().rev().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok());
    told.filter_map(|data| data.pointer(pointer).cloned()).next().unwrap().as_str().unwrap().to_owned()
}

/// The ids of events after which text had come, with that text.
fn places(events: &[Event]) -> Vec<(String, String)> {
    let behind = |(at, event): (usize, &Event)| Some((event.id.clone()?, text_of(&events[..=at])));
    events
        .iter()
        .enumerate()
        .filter_map(behind)
        .filter(|(id, text)| id != "end" && !text.is_empty())
        .collect()
}

#[tokio::test]
async fn nothing_is_put_behind_what_it_does_not_belong_to() {
    let mut served = Served::start().await;
    assert_eq!(served.post("/api/sessions", &json!({ "id": "s" })).await.status(), 201);
    let mut known = Vec::new();
    for (path, body, pointer) in surfaces() {
        served.agent().says(["Let me look. "]).whole("It is forty-two, of course.");
        let first = read(&served, path, &body, None).await;
        assert_eq!(
            (text_of(&first).as_str(), whole(&first, pointer).as_str()),
            ("Let me look. ", "It is forty-two, of course.")
        );
        known.push(places(&first));
    }
    for _ in 0..2 {
        for ((path, body, pointer), places) in surfaces().iter().zip(&known) {
            assert!(!places.is_empty());
            for (id, _) in places {
                let rest = read(&served, path, body, Some(id)).await;
                assert_eq!(
                    (text_of(&rest).as_str(), whole(&rest, pointer).as_str()),
                    ("", "It is forty-two, of course."),
                    "{path} behind {id}"
                );
            }
        }
        // From now on only the store has it.
        served.restart().await;
    }
    for (path, body, pointer) in surfaces() {
        let all = read(&served, path, &body, None).await;
        assert_eq!(text_of(&all), "It is forty-two, of course.");
        // A chat completion does not repeat the text of its deltas.
        if path != "/v1/chat/completions" {
            assert_eq!(whole(&all, pointer), "It is forty-two, of course.");
        }
    }
}

#[tokio::test]
async fn what_only_grew_is_told_to_its_end() {
    let mut served = Served::start().await;
    assert_eq!(served.post("/api/sessions", &json!({ "id": "s" })).await.status(), 201);
    let mut known = Vec::new();
    for (path, body, pointer) in surfaces() {
        let script = served.agent().says(["It is "]).then_hangs().says(["for"]).whole("It is forty-two.");
        let (first, ()) = tokio::join!(read(&served, path, &body, None), async {
            script.is_hanging().await;
            script.goes_on();
        });
        assert_eq!(text_of(&first), "It is forty-two.");
        if path != "/v1/chat/completions" {
            assert_eq!(whole(&first, pointer), "It is forty-two.");
        }
        known.push(places(&first));
    }
    for _ in 0..2 {
        for ((path, body, _), places) in surfaces().iter().zip(&known) {
            for (id, text) in places {
                let rest = read(&served, path, body, Some(id)).await;
                assert_eq!(text.clone() + text_of(&rest).as_str(), "It is forty-two.", "{path} behind {id}");
            }
        }
        served.restart().await;
    }
}
