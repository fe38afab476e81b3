//! Sessions: how they begin, are listed, closed, swept and deleted with their folders.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::ids::SessionId;
use talaria::store::{ForgeEventKind, NewForgeSession};

use super::scene::{ForgeScene, claude, error};
use crate::support::served::{KEY, json};

#[tokio::test]
async fn a_session_says_what_it_is() {
    let scene = ForgeScene::start().await;
    let made = json(scene.post("/sessions", &json!({ "model": "sonnet" })).await).await;
    assert_eq!((&made["agent"], &made["model"]), (&json!("claude"), &json!("sonnet")), "claude is usual");
    assert!(made["created_at"].is_i64());
    let id = made["session_id"].as_str().unwrap();
    let mut shown = json(scene.get(&format!("/sessions/{id}")).await).await;
    shown["created_at"] = json!(0);
    let expected = json!({
        "ok": true, "session_id": id, "agent": "claude", "model": "sonnet", "meta": null, "turn_count": 0,
        "last_turn_at": null, "created_at": 0, "closed_at": null, "live": false,
    });
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn an_unknown_agent_is_refused_with_the_names_of_the_known_ones() {
    let scene = ForgeScene::start().await;
    let refused = scene.post("/sessions", &json!({ "agent": "gpt" })).await;
    assert_eq!(refused.status(), 400);
    let refused = json(refused).await;
    assert_eq!(refused["error"], "unknown_agent");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("claude") && detail.contains("proxy"), "{detail}");
    for agent in ["a b", "../x", &"x".repeat(65)] {
        error(scene.post("/sessions", &json!({ "agent": agent })).await, 400).await;
    }
    error(scene.post("/sessions", &json!({ "meta": "text" })).await, 400).await;
    error(scene.post("/sessions", &json!({ "meta": { "x": "y".repeat(20_000) } })).await, 400).await;
}

#[tokio::test]
async fn an_agent_that_cannot_work_in_a_folder_is_refused_before_anything_is_made() {
    let scene = ForgeScene::without_folder().await;
    for (path, body) in
        [("/sessions", json!({ "agent": "claude" })), ("/run", json!({ "agent": "claude", "prompt": "x" }))]
    {
        assert_eq!(error(scene.post(path, &body).await, 400).await, "agent_without_folder", "{path}");
    }
    assert!(scene.agent.heard().is_empty() && scene.folders().is_empty());
    assert_eq!(json(scene.get("/sessions").await).await["count"], 0);
}

#[tokio::test]
async fn closed_sessions_are_listed_only_if_that_is_asked() {
    let scene = ForgeScene::start().await;
    let (open, closed) = (scene.begin().await, scene.begin().await);
    scene.delete(&format!("/sessions/{closed}")).await;
    for (query, count) in
        [("", 1), ("?include_closed=false", 1), ("?include_closed=true", 2), ("?include_closed=1", 2)]
    {
        let listed = json(scene.get(&format!("/sessions{query}")).await).await;
        assert_eq!(listed["count"], count, "{query}");
        assert_eq!(listed["sessions"].as_array().unwrap().len(), count, "{query}");
        let ids = listed["sessions"].to_string();
        assert!(ids.contains(&open) && ids.contains(&closed) == (count == 2));
    }
}

#[tokio::test]
async fn a_close_stops_what_runs() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).reports(json!({ "pid": 1 })).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    let told = scene.agent.is_told();
    assert_eq!(scene.delete(&format!("/sessions/{id}")).await.status(), 200);
    let answer = json(running.await.unwrap().unwrap()).await;
    assert_eq!(answer["stop_reason"], "cancelled");
    // The agent frees what it holds for the session.
    told.opened().await;
    assert_eq!(scene.agent.ended().len(), 1);
    assert_eq!(scene.audit(&id).await, ["create", "turn", "close"]);
}

#[tokio::test]
async fn the_sweeper_leaves_a_session_alone_that_works_and_ends_it_when_it_is_idle() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    assert_eq!(scene.sweep_after(100_000).await, json!({ "soft_closed": 0, "hard_deleted": 0 }));
    script.goes_on();
    running.await.unwrap().unwrap();
    scene.served.gateway.idle().await;
    assert_eq!(scene.folders().len(), 1);
    // Closed first, and deleted only when it was closed for long enough.
    assert_eq!(scene.sweep_after(3_700).await, json!({ "soft_closed": 1, "hard_deleted": 0 }));
    assert_eq!(scene.folders().len(), 1, "its folder stays until it is deleted");
    assert_eq!(scene.sweep_after(90_200).await, json!({ "soft_closed": 0, "hard_deleted": 1 }));
    assert_eq!(scene.folders(), Vec::<String>::new());
    assert_eq!(scene.audit(&id).await, ["create", "turn", "sweep_close", "hard_delete"]);
    for path in [format!("/sessions/{id}"), format!("/api/sessions/{id}")] {
        assert_eq!(scene.get(&path).await.status(), 404);
    }
    let month = 90_200 + 30 * 86_400;
    scene.sweep_after(month).await;
    error(scene.get(&format!("/sessions/{id}/audit")).await, 404).await;
}

#[tokio::test]
async fn a_single_sweep_goes_by_the_clock() {
    let scene = ForgeScene::start().await;
    scene.begin().await;
    let sweep =
        async || serde_json::to_value(scene.served.gateway.server().sweep_once().await.unwrap()).unwrap();
    let counts = |closed: u64, deleted: u64| json!({ "soft_closed": closed, "hard_deleted": deleted });
    let ages = |column: &str, seconds: u64| {
        let database = rusqlite::Connection::open(scene.served.gateway.database()).unwrap();
        let sql = format!("UPDATE forge_sessions SET {column} = {column} - {seconds}");
        assert_eq!(database.execute(&sql, []).unwrap(), 1);
    };
    assert_eq!(sweep().await, counts(0, 0));
    ages("created", 3_700);
    assert_eq!(sweep().await, counts(1, 0));
    assert_eq!(sweep().await, counts(0, 0));
    ages("closed", 86_500);
    assert_eq!(sweep().await, counts(0, 1));
    assert_eq!(json(scene.get("/sessions?include_closed=true").await).await["count"], 0);
}

#[tokio::test]
async fn a_session_survives_a_restart() {
    let mut scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene.turn(&id, "one").await;
    scene.served.restart().await;
    let shown = json(scene.get(&format!("/sessions/{id}")).await).await;
    assert_eq!((&shown["turn_count"], &shown["closed_at"]), (&json!(1), &Value::Null));
    assert_eq!(json(scene.turn(&id, "two").await).await["turn_index"], 2);
    assert_eq!(scene.agent.heard()[1].history.len(), 2);
}

#[tokio::test]
async fn a_slash_at_the_end_changes_nothing_and_leads_nowhere_else() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    for path in ["/sessions/", "/healthz/", &format!("/sessions/{id}/"), &format!("/sessions/{id}/audit/")] {
        let answer = scene.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert!(!answer.headers().contains_key("location"));
    }
    assert_eq!(scene.post("/sessions/", &json!({})).await.status(), 200);
    let turn = scene.post(&format!("/sessions/{id}/turn/"), &json!({ "prompt": "x" })).await;
    assert_eq!(turn.status(), 200);
    assert_eq!(scene.post("/run/", &json!({ "prompt": "x" })).await.status(), 200);
}

#[tokio::test]
async fn every_error_has_the_form_of_this_surface() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let bare = |method: Method, path: &str| scene.served.bare(method, path);
    for (request, status) in [
        (bare(Method::GET, "/sessions"), 401),
        (bare(Method::GET, "/sessions").bearer_auth("wrong"), 401),
        (bare(Method::PUT, "/sessions").bearer_auth(&scene.app), 405),
        (bare(Method::GET, "/sessions/a/b/c").bearer_auth(&scene.app), 404),
        (bare(Method::GET, "/run").bearer_auth(&scene.app), 405),
        (bare(Method::POST, "/run").bearer_auth(&scene.app).body("not json"), 400),
        (
            bare(Method::POST, "/sessions")
                .bearer_auth(&scene.app)
                .header("content-type", "text/plain")
                .body("{}"),
            415,
        ),
        (
            bare(Method::GET, "/sessions").bearer_auth(&scene.app).header("origin", "https://evil.example"),
            403,
        ),
        (bare(Method::POST, "/run").bearer_auth(&scene.app).body("x".repeat(10_000_001)), 413),
        (bare(Method::GET, "/admin/tokens").bearer_auth(KEY), 404),
        (bare(Method::GET, "/admin/nothing").bearer_auth(KEY), 404),
        (bare(Method::POST, &format!("/sessions/{id}/turn")).bearer_auth(&scene.app).body("[]"), 400),
    ] {
        error(request.send().await.unwrap(), status).await;
    }
    // Other surfaces keep theirs.
    let other = json(bare(Method::GET, "/v1/models").send().await.unwrap()).await;
    assert!(other["error"]["message"].is_string(), "{other}");
}

#[tokio::test]
async fn health_is_open_and_says_more_to_those_with_a_key() {
    let scene = ForgeScene::start().await;
    scene.begin().await;
    scene.begin_as(&scene.other).await;
    let ask = |key: Option<&str>| {
        let request = scene.served.bare(Method::GET, "/healthz");
        match key {
            Some(key) => request.bearer_auth(key).send(),
            None => request.send(),
        }
    };
    for key in [None, Some("wrong")] {
        assert_eq!(json(ask(key).await.unwrap()).await, json!({ "ok": true, "claude_present": true }));
    }
    for (key, open) in [(scene.app.as_str(), 1), (KEY, 2)] {
        let told = json(ask(Some(key)).await.unwrap()).await;
        assert_eq!((&told["open_sessions"], &told["claude_version"]), (&json!(open), &Value::Null));
        assert!(told.get("acpx_version").is_some() && told["acpx_present"].is_boolean(), "{told}");
        let names: Vec<_> = told["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
        assert_eq!(names, ["proxy", "claude"]);
    }
}

#[tokio::test]
async fn sessions_that_are_begun_and_closed_again_and_again_come_to_an_end() {
    let scene = ForgeScene::start().await;
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let filled = scene.served.gateway.store().write(move |tx| {
        for number in 0..5_000 {
            let session = SessionId(format!("forge/{number}"));
            let (app, agent) = ("forge".to_owned(), claude());
            let new = NewForgeSession { session: session.clone(), app, agent, model: None, meta: None };
            tx.create_forge_session(&new, usize::MAX / 4)?.unwrap();
            tx.close_forge_session(&session, ForgeEventKind::Close, now)?;
        }
        Ok(())
    });
    filled.await.unwrap();
    let refused = scene.post("/sessions", &json!({ "agent": "claude" })).await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(error(refused, 429).await, "too_many_sessions");
    // Another app has its own, and a day later there is room again.
    scene.begin_as(&scene.other).await;
    scene.sweep_after(90_000).await;
    scene.begin().await;
}
