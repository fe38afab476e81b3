//! No app is told of a command such as `/retry`: only rooms have commands.

use serde_json::{Value, json};
use talaria::agent::AgentErrorKind;
use talaria::i18n::TextKey;

use crate::support::served::{Served, json as read};

/// Every way to ask: path and body.
fn ways() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    vec![
        ("/v1/chat/completions", json!({ "messages": messages })),
        ("/v1/chat/completions", json!({ "messages": messages, "stream": true })),
        ("/v1/responses", json!({ "input": "hi" })),
        ("/v1/responses", json!({ "input": "hi", "stream": true })),
        ("/api/sessions/s/chat", json!({ "message": "hi" })),
        ("/api/sessions/s/chat/stream", json!({ "message": "hi" })),
    ]
}

/// With and without text, and with an unknown outcome. In a room each of these texts offers `/retry` or `/new`.
#[tokio::test]
async fn a_failed_turn_names_no_command_whichever_way_it_was_asked() {
    let served = Served::start().await;
    assert_eq!(served.post("/api/sessions", &json!({ "id": "s" })).await.status(), 201);
    let failures = [
        (AgentErrorKind::CutShort, TextKey::BrokeReported),
        (AgentErrorKind::CutShort, TextKey::BrokeTooLong),
        (AgentErrorKind::Unknown { after: None }, TextKey::BrokeBusy),
    ];
    let assert_unmentioned = |told: &str, of: &str| {
        assert!(told.contains("fail") || told.contains("error"), "{of}: {told}");
        assert!(!told.contains("/retry") && !told.contains("/new"), "{of}: {told}");
    };
    for (kind, words) in failures {
        for said in [&["Half"][..], &[]] {
            for (path, body) in ways() {
                served.agent().says(said.iter().copied()).then_fails(kind, words);
                let answer = served.post(path, &body).await.text().await.unwrap();
                assert_unmentioned(&answer, &format!("{path} {body} {words:?}"));
            }
            served.agent().says(said.iter().copied()).then_fails(kind, words);
            let run = read(served.post("/v1/runs", &json!({ "input": "hi" })).await).await;
            let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
            let events = served.get(&format!("{path}/events")).await.text().await.unwrap();
            assert_unmentioned(&events, &format!("{path}/events {words:?}"));
            let shown = served.get(&path).await.text().await.unwrap();
            assert_unmentioned(&shown, &format!("{path} {words:?}"));
        }
    }
}
