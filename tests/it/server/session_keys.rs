//! Session keys over HTTP: each has notes and a budget of its own, and no app reaches those of another.

use std::collections::HashSet;

use reqwest::{Method, Response};
use serde_json::json;
use talaria::agent::NoteScope;
use talaria::rules::BudgetConfig;

use crate::support::gateway::Setup;
use crate::support::served::{KEY, Served, json, settings};

/// Asks with a token, and a session key if there is one; the answer takes this many tokens.
async fn asks(served: &Served, token: &str, key: Option<&str>, tokens: u64) -> Response {
    served.agent().when("hi").says(["so"]).uses(tokens, 0);
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let mut request = served.bare(Method::POST, "/v1/chat/completions").bearer_auth(token);
    if let Some(key) = key {
        request = request.header("x-hermes-session-key", key);
    }
    request.body(body.to_string()).send().await.unwrap()
}

#[tokio::test]
async fn each_session_key_of_each_app_has_notes_of_its_own() {
    let served = Served::start().await;
    let (forge, other) = (served.app("forge").await, served.app("other").await);
    for (token, key) in [
        (forge.as_str(), Some("ann")),
        (&forge, Some("bob")),
        (&other, Some("ann")),
        (KEY, Some("ann")),
        (&forge, None),
        (KEY, None),
    ] {
        assert_eq!(asks(&served, token, key, 1).await.status(), 200);
    }
    let heard = served.gateway.agent_itself().heard();
    let notes: Vec<_> = heard.iter().filter_map(|heard| heard.notes.clone()).collect();
    let apps: Vec<_> = notes
        .iter()
        .map(|scope| match scope {
            NoteScope::AppKey { app, .. } => app.as_str(),
            NoteScope::Person { .. } | NoteScope::Room { .. } => panic!("{scope:?}"),
        })
        .collect();
    assert_eq!(apps, ["forge", "forge", "other", ""], "without a key there are none");
    let different: HashSet<_> = notes.iter().map(NoteScope::stored_name).collect();
    assert_eq!(different.len(), 4, "{notes:?}");
    asks(&served, &forge, Some("ann"), 1).await;
    assert_eq!(served.gateway.agent_itself().heard().pop().unwrap().notes.as_ref(), notes.first());
}

#[tokio::test]
async fn a_used_up_budget_is_a_429_that_says_when_to_come_back() {
    let budget = BudgetConfig { person: Some(100), agent: None };
    let served = Served::with(Setup { budget, ..Setup::default() }, settings()).await;
    let (forge, other) = (served.app("forge").await, served.app("other").await);
    assert_eq!(asks(&served, &forge, Some("ann"), 100).await.status(), 200);
    let refused = asks(&served, &forge, Some("ann"), 0).await;
    assert_eq!(refused.status(), 429);
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((24 * 60 * 60 - 120..=24 * 60 * 60).contains(&after), "{after}");
    let error = &json(refused).await["error"];
    assert_eq!(error["code"], "rate_limit_exceeded");
    assert!(
        error["message"].as_str().unwrap().contains("Your 100 tokens for 24 hours are used up"),
        "{error}"
    );
    // Everybody else pays for themselves.
    for (token, key) in [
        (forge.as_str(), Some("bob")),
        (&forge, None),
        (&other, Some("ann")),
        (&other, None),
        (KEY, Some("ann")),
    ] {
        assert_eq!(asks(&served, token, key, 1).await.status(), 200, "{key:?}");
    }
    let left: Vec<_> =
        served.gateway.agent_itself().heard().into_iter().map(|heard| heard.tokens_left).collect();
    assert_eq!(left, [Some(100); 6]);
}

#[tokio::test]
async fn a_deleted_session_gives_no_tokens_back() {
    let budget = BudgetConfig { person: Some(100), agent: None };
    let served = Served::with(Setup { budget, ..Setup::default() }, settings()).await;
    let begun = served.post("/api/sessions", &json!({ "id": "mine" })).await;
    assert_eq!(begun.status(), 201);
    served.agent().says(["so"]).uses(100, 0);
    let answer = served.post("/api/sessions/mine/chat", &json!({ "message": "hi" })).await;
    assert_eq!(answer.status(), 200);
    let removed = served.request(Method::DELETE, "/api/sessions/mine").send().await.unwrap();
    assert_eq!(removed.status(), 200);
    assert_eq!(asks(&served, KEY, None, 0).await.status(), 429);
}
