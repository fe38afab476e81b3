//! The isolation matrix of this surface: every path and method × its own app, another app, no key, a revoked key, a key from
//! the wrong address. A foreign session answers byte for byte like one that does not exist.

use std::collections::BTreeMap;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::scene::{ADMIN, ForgeScene};
use crate::support::served::{KEY, json};

/// Paths with a session, with their methods and bodies.
const WITH_SESSION: &[(&str, &str, &str)] = &[
    ("GET", "/sessions/ID", ""),
    ("DELETE", "/sessions/ID", ""),
    ("POST", "/sessions/ID/turn", r#"{"prompt":"hi"}"#),
    ("POST", "/sessions/ID/turn", r#"{"prompt":""}"#),
    ("POST", "/sessions/ID/turn", "not json"),
    ("POST", "/sessions/ID/cancel", ""),
    ("GET", "/sessions/ID/audit", ""),
    ("GET", "/sessions/ID/", ""),
    ("POST", "/sessions/ID/turn/", r#"{"prompt":"hi"}"#),
    // Methods that there are not.
    ("PUT", "/sessions/ID", "{}"),
    ("PATCH", "/sessions/ID", "{}"),
    ("GET", "/sessions/ID/turn", ""),
    ("GET", "/sessions/ID/nothing", ""),
];

/// All other paths.
const OTHERS: &[(&str, &str, &str)] = &[
    ("GET", "/sessions", ""),
    ("GET", "/sessions?include_closed=true", ""),
    ("POST", "/sessions", r#"{"agent":"claude"}"#),
    ("POST", "/run", r#"{"prompt":"hi"}"#),
    ("POST", "/files", ""),
];

/// A response without the time of day.
async fn seen(response: Response) -> (u16, BTreeMap<String, String>, String) {
    let status = response.status().as_u16();
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    (status, headers, response.text().await.unwrap())
}

async fn ask(
    scene: &ForgeScene,
    key: Option<&str>,
    (method, path, body): (&str, &str, &str),
    id: &str,
) -> (u16, BTreeMap<String, String>, String) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = scene.served.bare(method, &path.replace("ID", id));
    if !body.is_empty() {
        request = request.body(body.to_owned());
    }
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    seen(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_foreign_session_is_like_one_that_never_was_on_every_path_and_method() {
    let scene = ForgeScene::start().await;
    // One that is open, one with a running turn, one that is closed, one that was deleted.
    let deleted = scene.begin().await;
    scene.delete(&format!("/sessions/{deleted}")).await;
    scene.sweep_after(86_500).await;
    let (open, busy, closed) = (scene.begin().await, scene.begin().await, scene.begin().await);
    scene.delete(&format!("/sessions/{closed}")).await;
    let script = scene.says().when("busy").says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{busy}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "busy" }).to_string()).send());
    script.is_hanging().await;
    for question in WITH_SESSION {
        for key in [scene.other.as_str(), KEY] {
            // Also in forms that could lead to another app's name.
            for before in ["", "forge%2F", "..%2Fforge%2F"] {
                let absent = format!("{before}fs_{}", "0".repeat(32));
                let absent = ask(&scene, Some(key), *question, &absent).await;
                assert!((400..500).contains(&absent.0) && absent.0 != 403, "{question:?}: {absent:?}");
                for id in [&open, &busy, &closed, &deleted] {
                    let id = format!("{before}{id}");
                    assert_eq!(
                        ask(&scene, Some(key), *question, &id).await,
                        absent,
                        "{question:?} with {id}"
                    );
                }
            }
        }
    }
    // Everything is as it was.
    script.goes_on();
    assert_eq!(json(running.await.unwrap().unwrap()).await["stop_reason"], "end_turn");
    assert_eq!(scene.agent.heard().len(), 1);
    assert_eq!(json(scene.turn(&open, "x").await).await["turn_index"], 1);
}

#[tokio::test]
async fn without_a_key_that_holds_nobody_learns_anything() {
    let scene = ForgeScene::with_admin().await;
    let id = scene.begin().await;
    for (number, question) in WITH_SESSION.iter().chain(OTHERS).enumerate() {
        if question.1.ends_with("nothing")
            || ["PUT", "PATCH"].contains(&question.0)
            || question.1 == "/sessions/ID/turn" && question.0 == "GET"
        {
            // No such address or method: that is said to everybody.
            continue;
        }
        let revoked = scene.served.app(&format!("gone-{number}")).await;
        scene.served.revoke(&format!("gone-{number}")).await;
        // Keys of its own for each question: a wrong key that comes too often is not checked any more.
        let far = json!({ "name": format!("far-{number}"), "ip_cidrs": ["10.0.0.0/8"] });
        let far =
            scene.request(ADMIN, Method::POST, "/admin/tokens").body(far.to_string()).send().await.unwrap();
        let far = json(far).await["token"].as_str().unwrap().to_owned();
        let nobody = ask(&scene, None, *question, &id).await;
        assert_eq!(nobody.0, 401, "{question:?}");
        assert_eq!(ask(&scene, None, *question, "absent").await, nobody);
        let wrong = ask(&scene, Some(&format!("{number} is no key")), *question, &id).await;
        assert_eq!(wrong.0, 401, "{question:?}");
        for key in [revoked.as_str(), far.as_str()] {
            for id in [id.as_str(), "absent"] {
                assert_eq!(ask(&scene, Some(key), *question, id).await, wrong, "{question:?} with {key}");
            }
        }
    }
    assert!(scene.agent.heard().is_empty());
}

#[tokio::test]
async fn ones_own_session_answers_and_a_list_names_nobody_elses() {
    let scene = ForgeScene::start().await;
    for question in WITH_SESSION.iter().filter(|(_, _, body)| *body != "not json" && !body.contains("\"\"")) {
        let id = scene.begin().await;
        let own = ask(&scene, Some(&scene.app), *question, &id).await;
        let is_there = !question.1.ends_with("nothing")
            && !["PUT", "PATCH"].contains(&question.0)
            && *question != ("GET", "/sessions/ID/turn", "");
        assert_eq!(own.0 == 200, is_there, "{question:?}: {own:?}");
        for key in [scene.other.as_str(), KEY] {
            for path in ["/sessions", "/sessions?include_closed=1", "/api/sessions"] {
                let listed =
                    scene.request(key, Method::GET, path).send().await.unwrap().text().await.unwrap();
                assert!(!listed.contains(&id), "{path}: {listed}");
            }
        }
    }
}

#[tokio::test]
async fn what_an_app_says_of_itself_changes_nothing() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let body: Value = json!({ "prompt": "x", "app": "forge", "app_name": "forge", "owner": true });
    let request = scene.request(&scene.other, Method::POST, &format!("/sessions/{id}/turn?app=forge"));
    let claims = request.header("x-app", "forge").header("x-hermes-session-id", &id).body(body.to_string());
    assert_eq!(claims.send().await.unwrap().status(), 404);
}
