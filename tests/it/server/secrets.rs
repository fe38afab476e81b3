//! Keys, tokens, memory scopes and messages: none of them is in the log, whatever becomes of a request.

use std::fs::File;

use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::Talaria;
use crate::support::raw::Raw;
use crate::support::upstream::{Answer, Upstream};

const OWNER: &str = "canary-of-the-owner-5f1e0c77d2";
const WRONG: &str = "canary-of-a-guess-0b64a3e1ff";
const MEMORY: &str = "canary-of-a-memory-97c1d05e42";
const SAID: &str = "canary-of-a-question-41be88a0c6";
const ANSWERED: &str = "canary-of-an-answer-d3370f29ab";

#[tokio::test]
async fn nothing_that_is_anybodys_own_is_in_the_log() {
    let upstream = Upstream::plain().await;
    for _ in 0..20 {
        upstream.answers(Answer::says([ANSWERED]));
    }
    let talaria = Talaria::to(&upstream).var("API_SERVER_PORT", "0").var("API_SERVER_KEY", OWNER);
    let talaria = talaria.var("TALARIA_LOG", "debug").args(["serve"]);
    let mut process = talaria.starts_with(File::open("/dev/null").unwrap());
    let address = process.serves().await;
    let made = talaria.does(["token", "add", "phone", "--json"]).await.out;
    let made: Value = serde_json::from_str(&made).unwrap();
    let token = made["token"].as_str().unwrap();

    let client = Client::builder().no_proxy().build().unwrap();
    let asks = async |key: &str, path: &str, body: Value| {
        let request = client.post(format!("{address}{path}")).bearer_auth(key);
        let again = format!("{SAID}-{}", body["stream"]);
        let request = request.header("x-hermes-session-key", MEMORY).header("idempotency-key", again);
        let request = request.header("x-hermes-session-id", "visible").body(body.to_string());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let chat = |stream: bool| json!({ "model": SAID, "messages": [{ "role": "user", "content": SAID }], "stream": stream });
    for key in [OWNER, token] {
        for stream in [false, true] {
            let (status, answer) = asks(key, "/v1/chat/completions", chat(stream)).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer.contains("data: [DONE]"), stream, "{answer}");
        }
        assert_eq!(asks(key, "/v1/chat/completions", json!({ "messages": SAID })).await.0, 400);
        assert_eq!(asks(key, "/v1/chat/completions", json!([SAID])).await.0, 400);
    }
    let prompts = upstream.prompts();
    assert_eq!(prompts.len(), 4, "it was really asked, twice for each");
    let scopes: Vec<_> = prompts.iter().filter_map(|prompt| prompt.header("x-hermes-session-key")).collect();
    assert_eq!(scopes[..2], [MEMORY; 2]);
    assert!(
        scopes[2..].iter().all(|scope| scope.starts_with("phone_") && !scope.contains(MEMORY)),
        "an app names only what is its own"
    );
    // Wrong keys of every kind, until none is checked any more.
    for number in 0..12 {
        assert!(matches!(
            asks(&format!("{WRONG}{number}"), "/v1/chat/completions", chat(false)).await.0,
            401 | 429
        ));
    }
    let (shown, secret) = token.split_at(13);
    assert_eq!(
        asks(&format!("{shown}{}", secret.replace('a', "b").replace('1', "2")), "/v1/models", json!({}))
            .await
            .0,
        405
    );
    for path in [format!("/v1/models?key={OWNER}"), format!("/{SAID}"), format!("/v1/responses/{SAID}")] {
        client.get(format!("{address}{path}")).bearer_auth(WRONG).send().await.unwrap();
    }
    client
        .request(Method::PUT, format!("{address}/v1/models"))
        .bearer_auth(OWNER)
        .body(SAID)
        .send()
        .await
        .unwrap();
    // Requests that break off in the middle.
    for bytes in [
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWNER}\r\n\
                 content-length: 1000\r\n\r\n{{\"messages\":\"{SAID}"
        ),
        format!("{SAID} {OWNER}\r\n\r\n"),
        format!("GET /v1/models HTTP/1.1\r\nhost: {SAID}\r\nauthorization: Bearer {OWNER}\r\n\r\n"),
    ] {
        let mut raw = Raw::to(address.trim_start_matches("http://").parse().unwrap()).await;
        raw.sends(bytes).await;
        raw.is_done().await;
        raw.answer().await;
    }
    talaria.does(["token", "revoke", "phone"]).await;
    assert_eq!(asks(token, "/v1/chat/completions", chat(false)).await.0, 401);
    process.signal(Signal::TERM);
    let ended = process.ended().await;
    assert!(ended.err.contains("DEBUG"), "much is logged:\n{}", ended.err);
    for canary in [OWNER, WRONG, MEMORY, SAID, ANSWERED, token, secret] {
        assert!(!ended.err.contains(canary) && !ended.out.contains(canary), "{canary} is in\n{}", ended.err);
    }
    assert!(!ended.err.contains("[redacted]"), "the second net had to catch something:\n{}", ended.err);
}
