//! Permissions that an agent asks for in a turn follow the policy of the app.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AskChoice, DenyReason, OptionKind};

use super::scene::ForgeScene;
use crate::support::scripted::{ask, choice, option};
use crate::support::served::json;
use crate::support::stream::Stream;

/// A scene, and the token of an app with this policy.
async fn scene_with(permissions: Value) -> (ForgeScene, String) {
    let scene = ForgeScene::with_admin().await;
    let token = scene.makes_token(&json!({ "name": "policed", "permissions": permissions })).await;
    (scene, token)
}

async fn run(scene: &ForgeScene, token: &str) -> Value {
    let request = scene.request(token, Method::POST, "/run").body(json!({ "prompt": "x" }).to_string());
    json(request.send().await.unwrap()).await
}

#[tokio::test]
async fn nothing_is_permitted_unless_the_token_says_so() {
    let scene = ForgeScene::start().await;
    scene.says().asks("Run a command", "ls").says(["ok"]);
    let app = scene.app.clone();
    assert_eq!(run(&scene, &app).await["ok"], true, "the agent goes on without it");
    let [answer] = scene.agent.answers().try_into().unwrap();
    assert_eq!(answer.choice, AskChoice::Deny(DenyReason::Policy));
    assert!(scene.agent.ran().is_empty());
}

#[tokio::test]
async fn a_list_permits_what_it_names_once() {
    let (scene, token) = scene_with(json!(["cargo test*", "ls"])).await;
    let options = [
        option("a", "Always", OptionKind::AllowAlways),
        option("o", "Once", OptionKind::AllowOnce),
        option("r", "No", OptionKind::RejectOnce),
    ];
    let unclear = [option("x", "Yes", OptionKind::AllowOnce), option("y", "Sure", OptionKind::AllowOnce)];
    for (asked, allowed) in [
        (ask("Run", "ls"), true),
        (ask("Run", "cargo test --all"), true),
        (ask("Run", "cargo test; rm -rf ~"), false),
        (ask("ls", "rm x"), false),
        (choice("Run", "ls", options), true),
        (choice("Run", "ls", unclear), false),
    ] {
        scene.says().asks_all([asked.clone()]).says(["ok"]);
        run(&scene, &token).await;
        let answer = scene.agent.answers().pop().unwrap();
        let is_allowed = match &answer.choice {
            AskChoice::Allow(scope) => scope.name() == "once",
            AskChoice::Option(id) => id == "o",
            AskChoice::Deny(_) | AskChoice::Text(_) => false,
        };
        assert_eq!(is_allowed, allowed, "{asked:?}: {:?}", answer.choice);
    }
}

#[tokio::test]
async fn an_app_that_wants_to_be_asked_answers_in_its_stream() {
    let (scene, token) = scene_with(json!("ask")).await;
    let id = scene.begin_as(&token).await;
    for (choice, runs) in [("once", true), ("deny", false)] {
        scene.says().asks("Run a command", "ls").says(["done"]);
        let request = scene.request(&token, Method::POST, &format!("/sessions/{id}/turn"));
        let request =
            request.header("accept", "text/event-stream").body(json!({ "prompt": "x" }).to_string());
        let mut stream = Stream::of(request.send().await.unwrap());
        let asked = loop {
            let event = stream.try_next().await.unwrap().unwrap().json();
            if event["type"] == "permission_request" {
                break event;
            }
        };
        assert_eq!(asked["detail"], "ls");
        let path = format!("/v1/runs/{}/approval", asked["run_id"].as_str().unwrap());
        let answer = scene.request(&token, Method::POST, &path).body(json!({ "choice": choice }).to_string());
        assert_eq!(answer.send().await.unwrap().status(), 200);
        let mut kinds = Vec::new();
        while let Some(event) = stream.try_next().await.unwrap() {
            kinds.push(event.json()["type"].as_str().unwrap_or_default().to_owned());
        }
        assert!(kinds.contains(&"permission_answer".to_owned()), "{kinds:?}");
        assert_eq!(scene.agent.ran().len(), usize::from(runs || choice == "deny"));
    }
    assert_eq!(scene.agent.ran(), ["ls"]);
}

#[tokio::test]
async fn the_policy_holds_for_this_surface_alone() {
    let scene = ForgeScene::start().await;
    scene.says().asks("Run a command", "ls").says(["ok"]);
    let started = json(scene.post("/v1/runs", &json!({ "input": "x", "model": "claude" })).await).await;
    let path = format!("/v1/runs/{}", started["run_id"].as_str().unwrap());
    scene.served.until(async || json(scene.get(&path).await).await["status"] == "waiting_for_approval").await;
}
