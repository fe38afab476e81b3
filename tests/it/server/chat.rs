//! `POST /v1/chat/completions`.

use serde_json::json;

use crate::support::served::{Served, json};

fn asks(text: &str, stream: bool) -> serde_json::Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }], "stream": stream })
}

#[tokio::test]
async fn an_answer_comes_whole() {
    let served = Served::start().await;
    served.agent().says(["Hel", "lo"]).uses(3, 2);
    let answer = served.post("/v1/chat/completions", &asks("hi", false)).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["x-hermes-session-id"].to_str().unwrap().starts_with("api_"));
    let answer = json(answer).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
    assert_eq!(answer["usage"]["total_tokens"], 5);
}

#[tokio::test]
async fn an_answer_comes_as_it_grows() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let mut answer = served.post("/v1/chat/completions", &asks("hi", true)).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut seen = String::new();
    while !seen.contains("Hel") {
        seen += std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    assert!(seen.contains("\"role\":\"assistant\""));
    script.goes_on();
    let rest = answer.text().await.unwrap();
    assert!(rest.contains("\"content\":\"lo\"") && rest.contains("\"finish_reason\":\"stop\""), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn whoever_has_no_key_is_turned_away() {
    let served = Served::start().await;
    let answer = served.bare(reqwest::Method::GET, "/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(json(answer).await["error"]["code"], "invalid_api_key");
    assert_eq!(served.bare(reqwest::Method::GET, "/health").send().await.unwrap().status(), 200);
}
