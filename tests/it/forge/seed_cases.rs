//! The 16 cases of `seeds/002…` (smoke tests of `/sessions` and `/run`), each under its own name against a real server on a
//! real socket. Those about pure helpers are beside them; see `seed_002`.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::config::ForgeConfig;
use talaria::ids::SessionId;

use super::scene::ForgeScene;
use crate::acp::scripted_agent::{Act, Script};
use crate::support::served::json;

/// A server whose `claude` is a scripted ACP agent.
async fn start() -> ForgeScene {
    ForgeScene::acp(Script::default()).await.0
}

#[tokio::test]
async fn create_session_requires_auth() {
    let scene = start().await;
    let request = scene.served.bare(Method::POST, "/sessions").body(json!({ "agent": "claude" }).to_string());
    assert_eq!(request.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn create_session_returns_id() {
    let scene = start().await;
    let made = scene.post("/sessions", &json!({ "agent": "claude" })).await;
    assert_eq!(made.status(), 200);
    let made = json(made).await;
    assert_eq!(made["ok"], true);
    let id = made["session_id"].as_str().unwrap();
    assert!(id.len() >= 16);
    assert_eq!(made["agent"], "claude");
    let stored = SessionId(format!("forge/{id}"));
    let row = scene.served.gateway.store().read(move |tx| tx.forge_session(&stored)).await.unwrap();
    assert_eq!(row.unwrap().app, "forge");
}

#[tokio::test]
async fn create_session_with_meta() {
    let scene = start().await;
    let made = scene.post("/sessions", &json!({ "agent": "claude", "meta": { "purpose": "smoke" } })).await;
    assert_eq!(made.status(), 200);
    let id = json(made).await["session_id"].as_str().unwrap().to_owned();
    let shown = json(scene.get(&format!("/sessions/{id}")).await).await;
    assert_eq!(shown["meta"], json!({ "purpose": "smoke" }));
}

#[tokio::test]
async fn turn_round_trip() {
    let (scene, _acp) = ForgeScene::acp(Script::default().turn("say hello", [Act::says(&["hello"])])).await;
    let id = scene.begin().await;
    let answer = scene.turn(&id, "say hello").await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!((&answer["ok"], &answer["session_id"]), (&json!(true), &json!(id)));
    assert_eq!((&answer["stop_reason"], &answer["turn_index"]), (&json!("end_turn"), &json!(1)));
    let events = answer["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "{events:?}");
    // Real agents nest the update.
    let told = events.iter().find(|event| event["method"] == "session/update").unwrap();
    assert_eq!(told["params"]["update"]["content"]["text"], "hello");
    assert_eq!((&told["type"], &told["content"]), (&json!("text"), &json!("hello")), "for newer clients");
    assert_eq!(events[1]["result"]["stopReason"], "end_turn");

    let shown = scene.get(&format!("/sessions/{id}")).await;
    assert_eq!(shown.status(), 200);
    let shown = json(shown).await;
    assert_eq!((&shown["turn_count"], &shown["live"]), (&json!(1), &json!(true)));
    assert!(!shown["last_turn_at"].is_null());
}

#[tokio::test]
async fn a_line_in_the_form_of_the_seed_is_passed_on() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let chunk = json!({
        "jsonrpc": "2.0", "method": "session/update",
        "params": { "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "hello" } },
    });
    let end = json!({ "jsonrpc": "2.0", "id": "req-1", "result": { "stopReason": "end_turn" } });
    scene
        .says()
        .lines([chunk.to_string().as_str(), end.to_string().as_str()])
        .says(["hello"])
        .facts(json!({ "stop_reason": "end_turn" }));
    let answer = scene.turn(&id, "say hello").await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!((&answer["ok"], &answer["session_id"]), (&json!(true), &json!(id)));
    assert_eq!((&answer["stop_reason"], &answer["turn_index"]), (&json!("end_turn"), &json!(1)));
    let events = answer["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    let told = events.iter().find(|event| event["method"] == "session/update").unwrap();
    assert_eq!(told["params"]["content"]["text"], "hello");
    assert_eq!((&told["type"], &told["content"]), (&json!("text"), &json!("hello")), "for newer clients");
    assert_eq!(events[1], end);

    let shown = scene.get(&format!("/sessions/{id}")).await;
    assert_eq!(shown.status(), 200);
    let shown = json(shown).await;
    assert_eq!(shown["turn_count"], 1);
    assert!(!shown["last_turn_at"].is_null());
}

#[tokio::test]
async fn session_isolation_404() {
    let scene = start().await;
    let id = scene.begin().await;
    for (method, path, body) in [
        (Method::GET, format!("/sessions/{id}"), Value::Null),
        (Method::POST, format!("/sessions/{id}/turn"), json!({ "prompt": "hi" })),
        (Method::DELETE, format!("/sessions/{id}"), Value::Null),
    ] {
        let mut request = scene.request(&scene.other, method, &path);
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        assert_eq!(request.send().await.unwrap().status(), 404, "{path}");
    }
}

#[tokio::test]
async fn close_session_idempotent() {
    let scene = start().await;
    let path = format!("/sessions/{}", scene.begin().await);
    let first = scene.delete(&path).await;
    assert_eq!(first.status(), 200);
    assert_eq!(json(first).await, json!({ "ok": true }));
    let second = scene.delete(&path).await;
    assert_eq!(second.status(), 200);
    assert_eq!(json(second).await, json!({ "ok": true, "already_closed": true }));
}

#[tokio::test]
async fn turn_after_close_returns_410() {
    let scene = start().await;
    let id = scene.begin().await;
    scene.delete(&format!("/sessions/{id}")).await;
    assert_eq!(scene.turn(&id, "hi").await.status(), 410);
}

#[tokio::test]
async fn list_sessions_filters_by_app_name() {
    let scene = start().await;
    let mut own = [scene.begin().await, scene.begin().await];
    let theirs = scene.begin_as(&scene.other).await;
    let listed = scene.get("/sessions").await;
    assert_eq!(listed.status(), 200);
    let listed = json(listed).await;
    assert_eq!(listed["count"], 2);
    let ids = listed["sessions"].as_array().unwrap().iter();
    let mut ids: Vec<_> = ids.map(|session| session["session_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    own.sort_unstable();
    assert_eq!(ids, own);
    assert!(!ids.contains(&theirs.as_str()));
    let listed = json(scene.request(&scene.other, Method::GET, "/sessions").send().await.unwrap()).await;
    assert_eq!((&listed["count"], &listed["sessions"][0]["session_id"]), (&json!(1), &json!(theirs)));
}

#[tokio::test]
async fn ttl_sweep_closes_stale() {
    let scene = start().await;
    let id = scene.begin().await;
    let swept = scene.sweep_after(3_600 + 60).await;
    assert_eq!(swept, json!({ "soft_closed": 1, "hard_deleted": 0 }));
    let shown = json(scene.get(&format!("/sessions/{id}")).await).await;
    assert!(!shown["closed_at"].is_null());
    assert_eq!(scene.audit(&id).await, ["create", "sweep_close"]);
}

#[tokio::test]
async fn ttl_sweep_hard_deletes_old_closed() {
    let scene = start().await;
    let id = scene.begin().await;
    scene.delete(&format!("/sessions/{id}")).await;
    let swept = scene.sweep_after(86_400 + 60).await;
    assert_eq!(swept["hard_deleted"], 1);
    assert_eq!(scene.get(&format!("/sessions/{id}")).await.status(), 404);
    assert_eq!(scene.audit(&id).await, ["create", "close", "hard_delete"], "the audit stays");
}

#[tokio::test]
async fn pool_full_returns_503() {
    let config = ForgeConfig { max_live_sessions: 2, ..ForgeConfig::default() };
    let (scene, _acp) = ForgeScene::acp_with(config, Script::default()).await;
    let ids = [scene.begin().await, scene.begin_as(&scene.other).await];
    let third = scene.post("/sessions", &json!({ "agent": "claude" })).await;
    assert_eq!(third.status(), 503);
    assert!(third.headers().contains_key("retry-after"));
    // A closed one makes room.
    scene.delete(&format!("/sessions/{}", ids[0])).await;
    scene.begin().await;
}

#[tokio::test]
async fn run_endpoint_unchanged() {
    let script = Script::default().turn("Reply", [Act::says(&["{\"hello\":", "\"world\"}"])]);
    let (scene, _acp) = ForgeScene::acp(script).await;
    let body = json!({ "prompt": "Reply with JSON: {\"hello\":\"world\"}", "model": "sonnet" });
    let answer = scene.post("/run", &body).await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["duration_ms", "ok", "result", "stop_reason"], "nothing else");
    assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &json!({ "hello": "world" })));
    assert_eq!(answer["stop_reason"], "end_turn");
    assert!(answer["duration_ms"].is_u64());
}

#[tokio::test]
async fn run_endpoint_unchanged_error_shape() {
    let (scene, _acp) = ForgeScene::acp(Script::default().turn("x", [Act::exits(1, "boom")])).await;
    let answer = scene.post("/run", &json!({ "prompt": "x" })).await;
    assert_eq!(answer.status(), 502);
    let answer = json(answer).await;
    for key in ["ok", "error", "stderr", "duration_ms", "stop_reason"] {
        assert!(answer.get(key).is_some(), "{key} in {answer}");
    }
    assert_eq!(answer["ok"], false);
    assert!(answer["stderr"].as_str().unwrap().contains("boom"), "{answer}");
    assert!(answer["error"].is_string() && answer["stop_reason"] == "error", "{answer}");
}

#[tokio::test]
async fn the_stop_reason_is_taken_from_the_response_to_the_prompt() {
    let script = Script::default().turn("hi", [Act::says(&["Hi"]), Act::stops("max_turn_requests")]);
    let (scene, _acp) = ForgeScene::acp(script).await;
    let id = scene.begin().await;
    let answer = json(scene.turn(&id, "hi").await).await;
    let last = answer["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["result"]["stopReason"], "max_turn_requests");
    assert_eq!(answer["stop_reason"], "max_turn_requests");
}

#[tokio::test]
async fn lines_that_are_garbage_are_skipped() {
    let acts = [Act::writes("not json\n"), Act::says(&["a"]), Act::writes("\n  \n[1\n"), Act::says(&["b"])];
    let (scene, _acp) = ForgeScene::acp(Script::default().turn("hi", acts)).await;
    let id = scene.begin().await;
    let answer = json(scene.turn(&id, "hi").await).await;
    let events = answer["events"].as_array().unwrap();
    let text: Vec<_> = events.iter().filter_map(|event| event["content"].as_str()).collect();
    assert_eq!((text, events.len()), (vec!["a", "b"], 3), "{events:?}");
}

#[tokio::test]
async fn a_prompt_without_files_is_passed_unchanged() {
    let (scene, acp) = ForgeScene::acp(Script::default().turn("hello", [Act::says(&["a"])])).await;
    let id = scene.begin().await;
    scene.turn(&id, " hello\n").await;
    let prompts = acp.received("session/prompt");
    assert_eq!(prompts[0]["prompt"], json!([{ "type": "text", "text": " hello\n" }]));
}
