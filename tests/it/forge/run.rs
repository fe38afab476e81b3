//! `POST /run`: one turn, and nothing of it stays.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::AgentErrorKind;
use talaria::config::ForgeConfig;

use super::scene::{ForgeScene, error};
use crate::codex::scripted_peer::Scenario;
use crate::support::served::json;

#[tokio::test]
async fn a_result_is_json_where_it_is_json_and_text_where_it_is_not() {
    let scene = ForgeScene::start().await;
    for (said, result) in [
        ("```json\n[1, 2]\n```", json!([1, 2])),
        ("Hello", json!("Hello")),
        ("Here: {\"a\":1}", json!("Here: {\"a\":1}")),
    ] {
        scene.says().says([said]);
        let answer = json(scene.post("/run", &json!({ "prompt": "x" })).await).await;
        assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &result), "{said}");
    }
}

#[tokio::test]
async fn a_timeout_is_a_failure_here() {
    let scene = ForgeScene::start().await;
    scene.says().says(["half"]).then_hangs();
    let answer = scene.post("/run", &json!({ "prompt": "x", "timeout_secs": 1 })).await;
    assert_eq!(answer.status(), 502);
    let answer = json(answer).await;
    assert_eq!((&answer["ok"], &answer["stop_reason"]), (&json!(false), &json!("timeout")));
    assert!(answer["error"].is_string() && answer["stderr"] == "");
}

#[tokio::test]
async fn an_agent_that_is_away_is_a_failure_with_a_time() {
    let scene = ForgeScene::start().await;
    let kind = AgentErrorKind::Busy { after: None, rate_limited: false };
    scene.says().then_fails(kind, "All processes are in use.");
    let answer = scene.post("/run", &json!({ "prompt": "x" })).await;
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let answer = json(answer).await;
    assert_eq!(answer["ok"], false);
    assert!(answer["error"].is_string() && answer["stop_reason"].is_string(), "{answer}");
}

#[tokio::test]
async fn nothing_stays_of_a_run() {
    let scene = ForgeScene::start().await;
    scene.says().reports(json!({ "pid": 1 })).says(["ok"]);
    let told = scene.agent.is_told();
    assert_eq!(scene.post("/run", &json!({ "prompt": "x" })).await.status(), 200);
    let folder = scene.agent.heard()[0].folder.clone().unwrap();
    // Its process ends, and then its folder goes.
    told.opened().await;
    scene.served.until(async || !folder.exists()).await;
    assert_eq!(json(scene.get("/sessions?include_closed=true").await).await["count"], 0);
    assert_eq!(json(scene.get("/healthz").await).await["open_sessions"], 0);
}

#[tokio::test]
async fn a_run_whose_client_leaves_is_stopped_and_cleaned_up() {
    let scene = ForgeScene::start().await;
    let script = scene.says().says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, "/run").body(json!({ "prompt": "x" }).to_string());
    let running = tokio::spawn(request.send());
    script.is_hanging().await;
    running.abort();
    script.is_told_to_stop().await;
    scene.served.until(async || scene.folders().is_empty()).await;
}

#[tokio::test]
async fn a_system_text_follows_the_operators_or_replaces_it_where_the_token_allows_that() {
    let setup = crate::support::gateway::Setup { context: "operator".to_owned(), ..Default::default() };
    let admin_token = Some(super::scene::ADMIN.to_owned().into());
    let scene = ForgeScene::of(ForgeConfig { admin_token, ..ForgeConfig::default() }, setup).await;
    let body = |mode: Value| json!({ "prompt": "x", "system": "mine", "system_mode": mode });
    scene.post("/run", &json!({ "prompt": "x", "system": "mine" })).await;
    assert_eq!(scene.agent.heard()[0].context, "operator\n\nmine");
    assert_eq!(error(scene.post("/run", &body(json!("replace"))).await, 403).await, "system_not_allowed");
    error(scene.post("/run", &body(json!("prepend"))).await, 400).await;

    let made = scene.request(super::scene::ADMIN, Method::POST, "/admin/tokens");
    let made =
        made.body(json!({ "name": "trusted", "system_replace": true }).to_string()).send().await.unwrap();
    let token = json(made).await["token"].as_str().unwrap().to_owned();
    let request = scene.request(&token, Method::POST, "/run").body(body(json!("replace")).to_string());
    assert_eq!(request.send().await.unwrap().status(), 200);
    assert_eq!(scene.agent.heard()[1].context, "mine");
}

#[tokio::test]
async fn an_agent_is_named_or_the_configured_one_answers() {
    let scene =
        ForgeScene::with(ForgeConfig { run_agent: "nobody".to_owned(), ..ForgeConfig::default() }).await;
    assert_eq!(error(scene.post("/run", &json!({ "prompt": "x" })).await, 400).await, "unknown_agent");
    let named = json!({ "prompt": "x", "agent": "claude", "effort": "max" });
    assert_eq!(scene.post("/run", &named).await.status(), 200);
    error(scene.post("/run", &json!({ "prompt": "x", "agent": "claude", "effort": "huge" })).await, 400)
        .await;
}

#[tokio::test]
async fn an_equal_run_with_a_key_runs_once() {
    let scene = ForgeScene::start().await;
    scene.says().says(["once"]);
    for _ in 0..2 {
        let request = scene.request(&scene.app, Method::POST, "/run").header("idempotency-key", "k");
        let answer = request.body(json!({ "prompt": "x" }).to_string()).send().await.unwrap();
        assert_eq!(json(answer).await["result"], "once");
    }
    assert_eq!(scene.agent.heard().len(), 1);
}

#[tokio::test]
async fn codex_is_told_the_model_and_the_effort_or_has_its_usual_ones() {
    let (scene, codex) = ForgeScene::codex(&Scenario::default()).await;
    for (body, model, effort) in [
        (json!({ "prompt": "x", "model": "large", "effort": "xhigh" }), "large", "xhigh"),
        (json!({ "prompt": "x" }), "usual", "low"),
    ] {
        let mut body = body;
        body["agent"] = json!("claude");
        let answer = json(scene.post("/run", &body).await).await;
        assert_eq!(answer["ok"], true, "{answer}");
        let turn = codex.received("turn/start").pop().unwrap();
        assert_eq!((&turn["model"], &turn["effort"]), (&json!(model), &json!(effort)));
    }
    let session = json!({ "agent": "claude", "model": "larger" });
    let session = json(scene.post("/sessions", &session).await).await;
    let id = session["session_id"].as_str().unwrap();
    assert_eq!(scene.turn(id, "x").await.status(), 200);
    assert_eq!(codex.received("turn/start").pop().unwrap()["model"], "larger");
}

#[tokio::test]
async fn a_run_whose_client_leaves_before_it_is_stored_is_cleaned_up_too() {
    let scene = ForgeScene::start().await;
    scene.says().says(["half"]).then_hangs();
    let busy = scene.served.gateway.store_is_busy().await;
    let request = scene.request(&scene.app, Method::POST, "/run").body(json!({ "prompt": "x" }).to_string());
    let running = tokio::spawn(request.send());
    scene.served.until(async || !scene.folders().is_empty()).await;
    running.abort();
    let _ = running.await;
    // The server notices that, while the turn waits for the store.
    busy.holds_everybody_up().await;
    busy.goes_on().await;
    let turns = "SELECT count(*) FROM forge_events WHERE event = 'turn'";
    let database = rusqlite::Connection::open(scene.served.gateway.database()).unwrap();
    let is_stored = async || database.query_row(turns, [], |row| row.get::<_, u64>(0)).unwrap() == 1;
    scene.served.until(is_stored).await;
    scene.served.has_turns("forge", 0).await;
    let rows = async || scene.served.gateway.store().read(|tx| tx.forge_folders()).await.unwrap();
    scene.served.until(async || rows().await.is_empty() && scene.folders().is_empty()).await;
}
