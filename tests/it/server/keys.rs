//! Authentication: the owner's key, and the throttle for wrong keys.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::raw::Raw;
use crate::support::served::{KEY, Served, json, settings};

/// Requests the models with this key; returns the status and `Retry-After`.
async fn knocks(served: &Served, key: &str) -> (u16, Option<u64>) {
    let answer = served.bare(Method::GET, "/v1/models").bearer_auth(key).send().await.unwrap();
    let after = answer.headers().get("retry-after").map(|after| after.to_str().unwrap().parse().unwrap());
    (answer.status().as_u16(), after)
}

#[tokio::test]
async fn the_eleventh_wrong_key_is_not_even_looked_at() {
    let served = Served::start().await;
    for number in 0..10 {
        assert_eq!(knocks(&served, &format!("not the key {number}")).await, (401, None));
    }
    let (status, after) = knocks(&served, "not the key at all").await;
    assert_eq!(status, 429);
    assert!((55..=60).contains(&after.unwrap()), "{after:?}");
    // Other parts of the request do not matter.
    let more = served.bare(Method::GET, "/v1/models?key=x").header("cookie", "a=b").header("x-api-key", KEY);
    let more = more.bearer_auth("not the key either").send().await.unwrap();
    assert_eq!(more.status(), 429);
    assert_eq!(json(more).await["error"]["code"], "rate_limit_exceeded");
    // Nobody else is throttled: not the owner, not a client without a key, not another wrong key.
    assert_eq!(knocks(&served, KEY).await, (200, None));
    assert_eq!(served.bare(Method::GET, "/v1/models").send().await.unwrap().status(), 401);
    assert_eq!(served.bare(Method::GET, "/health").send().await.unwrap().status(), 200);
    assert_eq!(knocks(&served, "something else").await, (401, None));
}

#[tokio::test]
async fn the_same_wrong_key_again_and_again_is_held_up_by_itself() {
    let served = Served::start().await;
    // This wrong key begins like the right one, as an old key may.
    let old = format!("{}, which is no longer right", &KEY[..12]);
    for _ in 0..10 {
        assert_eq!(knocks(&served, &old).await.0, 401);
    }
    assert_eq!(knocks(&served, &old).await.0, 429);
    assert_eq!(knocks(&served, KEY).await.0, 200);
}

#[tokio::test]
async fn the_right_key_is_never_counted() {
    let served = Served::start().await;
    for _ in 0..50 {
        assert_eq!(knocks(&served, KEY).await, (200, None));
    }
}

#[tokio::test]
async fn a_wrong_method_is_said_before_anybody_is_asked_for_a_key() {
    let served = Served::start().await;
    for number in 0..20 {
        let key = format!("not the key {number}");
        let answer = served.bare(Method::DELETE, "/v1/models").bearer_auth(key).send().await.unwrap();
        assert_eq!(answer.status(), 405);
        assert_eq!(answer.headers()["allow"], "GET,HEAD");
        assert_eq!(json(answer).await["error"]["code"], "method_not_allowed");
    }
    assert_eq!(knocks(&served, "not the key 99").await.0, 401, "nothing of it counted");
    for route in talaria::server::routes() {
        let path = route.path.replace(['{', '}'], "");
        // No path accepts this method.
        let answer = served.bare(Method::PUT, &path).send().await.unwrap();
        assert_eq!(answer.status(), 405, "{path}");
        assert!(answer.headers().contains_key("allow"), "{path}");
    }
}

#[tokio::test]
async fn an_unknown_address_is_unknown_to_everybody() {
    let served = Served::start().await;
    for path in
        ["/", "/v1", "/v1/", "/v1/models/", "/v2/models", "/api", "/.env", "/v1/models/x/y", "//v1/models"]
    {
        for request in [served.bare(Method::GET, path), served.request(Method::GET, path)] {
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 404, "{path}");
            assert_eq!(json(answer).await["error"]["code"], "not_found", "{path}");
        }
    }
}

#[tokio::test]
async fn a_key_has_one_place() {
    let served = Served::start().await;
    let token = KEY.replace(' ', "%20");
    for (path, header, value) in [
        (
            format!("/v1/models?key={token}&api_key={token}&token={token}&access_token={token}"),
            "accept",
            "*/*",
        ),
        (
            "/v1/models".to_owned(),
            "cookie",
            "key=a key of the owner, long enough; token=a key of the owner, long enough",
        ),
        ("/v1/models".to_owned(), "x-api-key", KEY),
        ("/v1/models".to_owned(), "authorization", KEY),
        ("/v1/models".to_owned(), "authorization", "Bearer"),
        ("/v1/models".to_owned(), "authorization", "Bearer "),
        ("/v1/models".to_owned(), "authorization", "Basic YTpi"),
        ("/v1/models".to_owned(), "proxy-authorization", "Bearer a key of the owner, long enough"),
    ] {
        let answer = served.bare(Method::GET, &path).header(header, value).send().await.unwrap();
        assert_eq!(answer.status(), 401, "{path} {header}: {value}");
        let challenge = answer.headers()["www-authenticate"].to_str().unwrap();
        assert!(challenge.starts_with("Bearer error_description=\"no key was sent"), "{challenge}");
        let error = json!({ "error": {
            "message": "Incorrect API key provided",
            "type": "invalid_request_error", "param": null, "code": "invalid_api_key",
        }});
        assert_eq!(json(answer).await, error);
    }
    for value in [format!("Bearer {KEY}"), format!("bearer   {KEY} "), format!("BEARER {KEY}")] {
        let answer =
            served.bare(Method::GET, "/v1/models").header("authorization", value).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    // Two keys: it is unknown which of them a proxy on the way has checked.
    let mut raw = Raw::to(served.address).await;
    raw.sends(format!(
        "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
                       authorization: Bearer other\r\n\r\n"
    ))
    .await;
    assert_eq!(raw.answer().await.unwrap().status, 401);
}

#[tokio::test]
async fn a_key_may_have_any_letters() {
    let key = "ein Schlüssel für mich allein";
    let settings = talaria::server::ServerSettings { key: Some(key.to_owned().into()), ..settings() };
    let served = Served::with(Setup::default(), settings).await;
    assert_eq!(knocks(&served, key).await.0, 200);
    assert_eq!(knocks(&served, "ein Schlussel für mich allein").await.0, 401);
}

#[tokio::test]
async fn a_server_without_a_key_takes_everybody_for_the_owner_but_apps() {
    let settings = talaria::server::ServerSettings { key: None, ..settings() };
    let served = Served::with(Setup::default(), settings).await;
    let token = served.app("forge").await;
    let asks = |key: Option<&str>, name: &str| {
        let request =
            served.bare(Method::POST, "/v1/chat/completions").header("x-hermes-session-id", name.to_owned());
        let request = request.body(json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string());
        match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    };
    for (key, name) in [(None, "one"), (Some("anything"), "two"), (Some(token.as_str()), "three")] {
        assert_eq!(asks(key, name).send().await.unwrap().status(), 200, "{name}");
    }
    let stored = |id: &'static str| {
        let id = talaria::ids::SessionId(id.to_owned());
        served.gateway.store().read(move |tx| tx.has_session(&id))
    };
    assert!(stored("one").await.unwrap() && stored("two").await.unwrap());
    assert!(stored("forge/three").await.unwrap() && !stored("three").await.unwrap());
    served.revoke("forge").await;
    assert_eq!(
        asks(Some(&token), "four").send().await.unwrap().status(),
        401,
        "a revoked token opens nothing"
    );
    let refused = asks(None, "five").header("x-hermes-session-key", "me").send().await.unwrap();
    assert_eq!(refused.status(), 403);
    let refused: Value = json(refused).await;
    assert!(
        refused["error"]["message"].as_str().unwrap().starts_with("X-Hermes-Session-Key requires API key")
    );
}

#[tokio::test]
async fn a_hundred_guesses_lock_out_nobody_who_has_the_key() {
    let served = Served::start().await;
    let token = served.app("forge").await;
    for number in 0..101 {
        knocks(&served, &format!("{number} guesses")).await;
    }
    assert_eq!(knocks(&served, "another guess").await.0, 429);
    // Nobody has used them here before.
    assert_eq!(knocks(&served, KEY).await.0, 200);
    for number in 0..11 {
        knocks(&served, &format!("{}{number:0>64}", &token[..13])).await;
    }
    assert_eq!(knocks(&served, &token).await.0, 200, "its id is no secret, and no way to lock it out");
}

#[tokio::test]
async fn a_key_that_may_be_guessed_is_not_looked_at_while_somebody_guesses() {
    let settings =
        talaria::server::ServerSettings { key: Some("password-1234".to_owned().into()), ..settings() };
    let served = Served::with(Setup::default(), settings).await;
    for number in 0..10 {
        assert_eq!(knocks(&served, &format!("password-{number}")).await.0, 401);
    }
    assert_eq!(knocks(&served, "password-1234").await.0, 429);
}

#[tokio::test]
async fn a_key_that_is_replaced_ends_what_is_read_with_it() {
    let served = Served::start().await;
    let (token, other) = (served.app("forge").await, "another key of the owner".to_owned());
    let asks = |key: &str, text: &str, stream: bool| {
        let body = json!({ "messages": [{ "role": "user", "content": text }], "stream": stream });
        served.bare(Method::POST, "/v1/chat/completions").bearer_auth(key).body(body.to_string())
    };
    let streamed = served.agent().when("stream").says(["Hel"]).then_hangs();
    let waited = served.agent().when("whole").says(["Hel"]).then_hangs();
    let beside = served.agent().when("beside").says(["Hel"]).then_hangs().says(["lo"]);
    let mut stream = asks(KEY, "stream", true).send().await.unwrap();
    let whole = tokio::spawn(asks(KEY, "whole", false).send());
    let theirs = tokio::spawn(asks(&token, "beside", false).send());
    streamed.is_hanging().await;
    waited.is_hanging().await;
    beside.is_hanging().await;

    // A client uses the new key too early.
    for _ in 0..10 {
        assert_eq!(knocks(&served, &other).await.0, 401);
    }
    assert_eq!(knocks(&served, &other).await.0, 429);
    served.gateway.server().replace_key(&other.clone().into());
    while let Ok(chunk) = stream.chunk().await {
        assert!(chunk.is_some(), "a stream that is cut does not look like one that ended");
    }
    assert_eq!(whole.await.unwrap().unwrap().status(), 401);
    assert_eq!(knocks(&served, KEY).await.0, 401);
    assert_eq!(knocks(&served, &other).await.0, 200);
    beside.goes_on();
    assert_eq!(theirs.await.unwrap().unwrap().status(), 200, "an app has noticed nothing");
}

/// The operator can see which callers were refused, and why; nobody can fill the disk with it.
#[tokio::test]
async fn whoever_is_turned_away_is_written_down_once_a_minute() {
    let served = Served::start().await;
    let token = served.app("forge").await;
    served.revoke("forge").await;
    let other = u32::from_str_radix(&token[4..12], 16).unwrap() ^ 1;
    let unknown = format!("tlr_{other:08x}_{}", &token[13..]);
    for _ in 0..3 {
        assert_eq!(served.bare(Method::GET, "/v1/models").send().await.unwrap().status(), 401);
        for key in ["not the key", "nor this one", &token, &unknown] {
            assert_eq!(knocks(&served, key).await.0, 401);
        }
    }
    let rows = served.turned_away(4).await;
    let rows: Vec<_> = rows.iter().map(|row| (row.actor.as_str(), row.rule.as_str())).collect();
    let mut rules: Vec<_> = rows.iter().map(|(_, rule)| *rule).collect();
    rules.sort_unstable();
    assert_eq!(rules, ["no key", "revoked token", "unknown key", "unknown token"]);
    assert!(rows.iter().all(|(actor, _)| *actor == "127.0.0.1"), "{rows:?}");
}

/// Not only a turn counts: an app that only reads all day must not look unused.
#[tokio::test]
async fn every_use_of_a_token_counts_as_one() {
    let served = Served::start().await;
    let token = served.app("forge").await;
    let used = || served.gateway.store().read(|tx| Ok(tx.app("forge")?.and_then(|app| app.used)));
    assert_eq!(used().await.unwrap(), None);
    assert_eq!(knocks(&served, &token).await.0, 200);
    served.until(async || used().await.unwrap().is_some()).await;
}

/// No measurement of time: this checks that keys are compared as digests of 32 bytes, in constant time and in one
/// place.
#[test]
fn keys_are_compared_in_one_way_only() {
    let source = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = std::fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]").next().unwrap().to_owned()
    };
    for (path, compared) in [
        ("src/server/owner_key.rs", 1),
        ("src/server/caller.rs", 0),
        ("src/server/app_tokens.rs", 1),
        ("src/token.rs", 0),
        ("src/store/tokens.rs", 0),
    ] {
        let source = source(path);
        assert_eq!(source.matches(".ct_eq(").count(), compared, "{path}");
        for line in source.lines().filter(|line| line.contains("==") || line.contains("!=")) {
            let secret = ["digest", "given", "expected", "secret", "bearer", " key"]
                .iter()
                .find(|word| line.contains(**word));
            assert_eq!(secret, None, "{path} compares what is secret: {line}");
        }
    }
}
