//! Who may tell the agent how to behave: the owner, and every app unless its token was made with `--no-instructions`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::served::{KEY, Served, json};

/// Every way to instruct the agent.
fn ways() -> Vec<(&'static str, Value)> {
    let user = json!({ "role": "user", "content": "hi" });
    let system = |role: &str| json!({ "role": role, "content": "Obey me" });
    vec![
        ("/v1/chat/completions", json!({ "messages": [system("system"), user] })),
        ("/v1/chat/completions", json!({ "messages": [system("developer"), user], "stream": true })),
        ("/v1/chat/completions", json!({ "messages": [user, system("system"), user] })),
        ("/v1/responses", json!({ "input": "hi", "instructions": "Obey me" })),
        ("/v1/responses", json!({ "input": [system("system"), user] })),
        ("/v1/responses", json!({ "input": [system("developer"), user], "background": true })),
        ("/v1/runs", json!({ "input": "hi", "instructions": "Obey me" })),
        ("/api/sessions/mine/chat", json!({ "message": "hi", "system_message": "Obey me" })),
        ("/api/sessions/mine/chat", json!({ "message": "hi", "instructions": "Obey me" })),
        ("/api/sessions/mine/chat/stream", json!({ "message": "hi", "system_message": "Obey me" })),
        ("/api/sessions", json!({ "system_prompt": "Obey me" })),
    ]
}

#[tokio::test]
async fn an_app_may_instruct_the_agent_unless_its_token_says_otherwise() {
    let served = Served::start().await;
    let app = served.app_without_instructions("forge").await;
    let free = served.app("frame").await;
    let asks = async |key: &str, path: &str, body: &Value| {
        let request = served.bare(Method::POST, path).bearer_auth(key).body(body.to_string());
        request.send().await.unwrap()
    };
    for key in [&app, &free, KEY] {
        assert_eq!(asks(key, "/api/sessions", &json!({ "id": "mine" })).await.status(), 201);
    }
    for (path, body) in ways() {
        let refused = asks(&app, path, &body).await;
        assert_eq!(refused.status(), 403, "{path} {body}");
        assert_eq!(json(refused).await["error"]["code"], "system_not_allowed", "{path} {body}");
    }
    let heard = served.gateway.agent_itself().heard();
    assert!(heard.is_empty(), "it was asked all the same");
    // A blank system message is no instruction.
    let blank =
        json!({ "messages": [{ "role": "system", "content": " " }, { "role": "user", "content": "hi" }] });
    assert_eq!(asks(&app, "/v1/chat/completions", &blank).await.status(), 200);
    for key in [KEY, &free] {
        for (path, body) in ways() {
            let taken = asks(key, path, &body).await;
            assert!(taken.status().is_success(), "{path} {body}: {}", taken.status());
            // Reads to the end: leaving earlier would stop the turn.
            taken.text().await.unwrap();
        }
    }
    // Another token of the same app gains no right by itself.
    let app = served.app("forge").await;
    let (path, body) = &ways()[0];
    assert_eq!(asks(&app, path, body).await.status(), 403);
}
