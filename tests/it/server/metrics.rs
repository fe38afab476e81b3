//! `GET /metrics` and `GET /health/detailed`, as a monitor sees them.

use reqwest::Method;
use serde_json::json as value;
use talaria::agent::AgentErrorKind;

use crate::support::served::{Served, json};

/// The value of one line.
fn reads(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

async fn metrics(served: &Served) -> String {
    let answer = served.get("/metrics").await;
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    answer.text().await.unwrap()
}

#[tokio::test]
async fn a_turn_is_counted_where_it_was_asked() {
    let served = Served::start().await;
    let done = r#"talaria_turns_total{surface="http",outcome="done"}"#;
    let before = metrics(&served).await;
    assert_eq!(reads(&before, done), 0.0);
    assert_eq!(reads(&before, "talaria_streams_open"), 0.0);

    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let asked = value!({ "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let answer = served.post("/v1/chat/completions", &asked).await;
    script.is_hanging().await;
    let during = metrics(&served).await;
    assert_eq!(reads(&during, "talaria_streams_open"), 1.0);
    assert_eq!(reads(&during, "talaria_readers_open"), 1.0);
    assert_eq!(reads(&during, r#"talaria_first_delta_seconds_count{surface="http"}"#), 1.0);

    script.goes_on();
    answer.text().await.unwrap();
    let after = metrics(&served).await;
    assert_eq!(reads(&after, done), 1.0);
    assert_eq!(reads(&after, r#"talaria_turns_total{surface="room",outcome="done"}"#), 0.0);
    assert_eq!(reads(&after, "talaria_streams_open"), 0.0);
    assert!(reads(&after, "talaria_store_write_seconds_count") >= 3.0);
    assert!(reads(&after, "process_resident_memory_bytes") > 1e6);
    assert!(reads(&after, "process_open_fds") > 3.0);
    assert!(after.contains(r#"talaria_build_info{version=""#) && after.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_turn_of_a_room_is_counted_as_such() {
    let served = Served::start().await;
    served.agent().says(["Hello"]);
    served.gateway.room().says("@ann", "hi").await;
    served.gateway.room().shows("Hello").await;
    served.gateway.idle().await;
    let text = metrics(&served).await;
    assert_eq!(reads(&text, r#"talaria_turns_total{surface="room",outcome="done"}"#), 1.0);
    assert!(reads(&text, r#"talaria_queue_length{queue="outbox"}"#) <= 1.0);
    assert_eq!(reads(&text, r#"talaria_queue_length{queue="cleanups"}"#), 0.0);
}

#[tokio::test]
async fn a_server_whose_agent_fails_is_not_ready() {
    let served = Served::start().await;
    let asked = value!({ "messages": [{ "role": "user", "content": "hi" }] });
    for _ in 0..3 {
        served.agent().then_fails(AgentErrorKind::Refused, "no such model");
        served.post("/v1/chat/completions", &asked).await;
    }
    let answer = served.get("/health/detailed").await;
    assert_eq!(answer.status(), 503);
    let answer = json(answer).await;
    assert_eq!(answer["status"], "not_ready");
    assert_eq!(answer["checks"]["agent"]["ok"], false);
    assert!(answer["checks"]["agent"]["why"].as_str().unwrap().contains("no such model"), "{answer}");
    assert_eq!(answer["checks"]["store"]["ok"], true);
    assert_eq!(served.get("/health").await.status(), 200, "it is there all the same");
    let text = metrics(&served).await;
    assert_eq!(reads(&text, r#"talaria_turns_total{surface="http",outcome="failed"}"#), 3.0);

    served.agent().says(["Hello"]);
    served.post("/v1/chat/completions", &asked).await;
    assert_eq!(served.get("/health/detailed").await.status(), 200);
}

#[tokio::test]
async fn a_server_whose_homeserver_is_away_is_not_ready() {
    let served = Served::start().await;
    served.until(async || served.get("/health/detailed").await.status() == 200).await;
    served.gateway.chat().is_away(true);
    let answer = served.get("/health/detailed").await;
    assert_eq!(answer.status(), 503);
    let answer = json(answer).await;
    assert_eq!(answer["platforms"]["test"]["state"], "away");
    assert_eq!(answer["checks"]["platforms"], value!({ "ok": false, "why": "no platform reads" }));
    assert_eq!(served.get("/health").await.status(), 200, "the process is there all the same");
    served.gateway.chat().is_away(false);
    assert_eq!(served.get("/health/detailed").await.status(), 200);
}

#[tokio::test]
async fn a_server_whose_agent_is_away_is_not_ready_before_anybody_asks() {
    let served = Served::start().await;
    served.gateway.agent_itself().goes_away();
    let answer = served.get("/health/detailed").await;
    assert_eq!(answer.status(), 503);
    let answer = json(answer).await;
    assert_eq!(answer["checks"]["agent"]["ok"], false);
    assert_eq!(answer["checks"]["agent"]["why"], "it is away: nobody is there");
    assert_eq!(served.get("/health").await.status(), 200, "the process is there all the same");
    served.gateway.agent_itself().comes_back();
    served.until(async || served.get("/health/detailed").await.status() == 200).await;
}

#[tokio::test]
async fn an_app_is_told_nothing_of_others() {
    let served = Served::start().await;
    let token = served.app("forge").await;
    for path in ["/metrics", "/health/detailed"] {
        let answer = served.bare(Method::GET, path).bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status(), 403);
        assert_eq!(json(answer).await["error"]["code"], "owner_only");
    }
}

#[tokio::test]
async fn details_are_for_whoever_has_the_key() {
    let served = Served::start().await;
    for path in ["/metrics", "/health/detailed"] {
        assert_eq!(served.bare(Method::GET, path).send().await.unwrap().status(), 401);
    }
    let answer = served.get("/health/detailed").await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!(answer["status"], "ok");
    assert_eq!(answer["checks"]["store"]["ok"], true);
    assert_eq!(answer["active_agents"], 0);
}
