//! Limits per app; and a revoked token stops working, whatever ran with it.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::support::served::{Served, json};

fn asks(served: &Served, token: &str, session: &str, text: &str, stream: bool) -> RequestBuilder {
    let body = json!({ "messages": [{ "role": "user", "content": text }], "stream": stream });
    served
        .bare(Method::POST, "/v1/chat/completions")
        .bearer_auth(token)
        .header("x-hermes-session-id", session.to_owned())
        .body(body.to_string())
}

#[tokio::test]
async fn what_is_read_and_what_waits_ends_with_the_token() {
    let served = Served::start().await;
    let (token, other) = (served.app("forge").await, served.app("phone").await);
    let streamed = served.agent().when("stream").says(["Hel"]).then_hangs();
    let waited = served.agent().when("whole").says(["Hel"]).then_hangs();
    let beside = served.agent().when("beside").says(["Hel"]).then_hangs().says(["lo"]);

    let mut stream = asks(&served, &token, "a", "stream", true).send().await.unwrap();
    let whole = tokio::spawn(asks(&served, &token, "b", "whole", false).send());
    let theirs = tokio::spawn(asks(&served, &other, "a", "beside", false).send());
    streamed.is_hanging().await;
    waited.is_hanging().await;
    beside.is_hanging().await;
    // Waits behind the running one.
    let behind =
        tokio::spawn(asks(&served, &token, "a", "never", false).header("idempotency-key", "k").send());
    served.has_turns("forge", 3).await;

    served.revoke("forge").await;
    let mut seen = String::new();
    let broke = loop {
        match stream.chunk().await {
            Ok(Some(chunk)) => seen += std::str::from_utf8(&chunk).unwrap(),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broke, "a stream that is cut does not look like one that ended: {seen}");
    assert!(!seen.contains("finish_reason\":\"stop") && !seen.contains("[DONE]"), "{seen}");
    for refused in [whole, behind] {
        let refused = refused.await.unwrap().unwrap();
        assert_eq!(refused.status(), 401);
        assert_eq!(json(refused).await["error"]["code"], "invalid_api_key");
    }
    served.has_turns("forge", 0).await;
    assert!(streamed.was_told_to_stop() && waited.was_told_to_stop());
    let heard = served.gateway.agent_itself().heard();
    assert!(!heard.iter().any(|heard| heard.prompt == "never"), "what waited must not run");
    assert_eq!(asks(&served, &token, "c", "again", false).send().await.unwrap().status(), 401);

    // The other app is not affected.
    beside.goes_on();
    let theirs = theirs.await.unwrap().unwrap();
    assert_eq!(json(theirs).await["choices"][0]["message"]["content"], "Hello");
}

#[tokio::test]
async fn a_token_that_is_replaced_ends_what_the_old_one_reads() {
    let served = Served::start().await;
    let old = served.app("forge").await;
    let script = served.agent().says(["Hel"]).then_hangs();
    let mut stream = asks(&served, &old, "a", "hi", true).send().await.unwrap();
    script.is_hanging().await;
    let new = served.app("forge").await;
    assert_ne!(old, new);
    while let Ok(chunk) = stream.chunk().await {
        assert!(chunk.is_some(), "it must not end well");
    }
    assert_eq!(asks(&served, &old, "b", "hi", false).send().await.unwrap().status(), 401);
    assert_eq!(asks(&served, &new, "b", "hi", false).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_app_has_only_so_many_requests_open() {
    let settings = talaria::server::ServerSettings { runs: (10, 1), ..crate::support::served::settings() };
    let served = Served::with(Default::default(), settings).await;
    let (token, other) = (served.app("forge").await, served.app("phone").await);
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    // One turn, and as many readers of it as allowed.
    let reads = |token: &str| asks(&served, token, "a", "hi", true).header("idempotency-key", "k");
    let mut readers = Vec::new();
    for _ in 0..4 {
        let reader = reads(&token).send().await.unwrap();
        assert_eq!(reader.status(), 200);
        readers.push(reader);
    }
    script.is_hanging().await;
    let refused = reads(&token).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(asks(&served, &other, "a", "me too", false).send().await.unwrap().status(), 200);
    assert_eq!(served.get("/v1/models").await.status(), 200, "and so may the owner");
    script.goes_on();
    for reader in readers {
        assert!(reader.text().await.unwrap().ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(reads(&token).send().await.unwrap().status(), 200, "whoever has read makes room");
}

#[tokio::test]
async fn an_app_has_only_so_many_turns_at_once_and_all_together_too() {
    let settings = talaria::server::ServerSettings { runs: (2, 1), ..crate::support::served::settings() };
    let served = Served::with(Default::default(), settings).await;
    let (one, two) = (served.app("forge").await, served.app("phone").await);
    let first = served.agent().when("first").says(["Hel"]).then_hangs();
    let second = served.agent().when("second").says(["Hel"]).then_hangs();
    let running = tokio::spawn(asks(&served, &one, "a", "first", false).send());
    first.is_hanging().await;
    let refused = async |token: &str| {
        let refused = asks(&served, token, "b", "more", false).send().await.unwrap();
        assert_eq!(refused.status(), 429);
        assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(json(refused).await["error"]["type"], "rate_limit_error");
    };
    refused(&one).await;
    let beside = tokio::spawn(asks(&served, &two, "a", "second", false).send());
    second.is_hanging().await;
    // The owner has no limit of their own, but there is one for all.
    refused(crate::support::served::KEY).await;
    first.goes_on();
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    assert_eq!(asks(&served, &one, "b", "more", false).send().await.unwrap().status(), 200);
    second.goes_on();
    assert_eq!(beside.await.unwrap().unwrap().status(), 200);
}
