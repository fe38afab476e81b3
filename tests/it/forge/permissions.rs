//! Permissions that an agent asks for in a turn follow the policy of the app.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{Ask, AskChoice, DenyReason, OptionKind};

use super::scene::ForgeScene;
use crate::codex::scripted_peer::{Act, Scenario};
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
        (Ask { cwd: Some("/ws".to_owned()), ..ask("Run", "ls") }, true),
        (Ask { cwd: Some("/etc".to_owned()), is_elsewhere: true, ..ask("Run", "ls") }, false),
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
async fn a_list_permits_nothing_in_a_folder_that_the_model_of_codex_names() {
    let asks = |cwd: Value| {
        let params = json!({ "kind": "command", "itemId": "c", "command": "make all", "cwd": cwd });
        Act::asks("item/commandExecution/requestApproval", params)
    };
    // The last one names the folder of the session.
    let acts = [
        asks(Value::Null),
        asks(json!("/etc")),
        asks(json!("..")),
        asks(json!({ "path": "/etc" })),
        Act::runs_if_allowed("make", "made"),
        Act::says(&["ok"]),
    ];
    let (scene, codex) = ForgeScene::codex(&Scenario::default().turn("x", acts)).await;
    let list = json!(["make*", "/bin/bash -lc 'make'"]);
    let token = scene.makes_token(&json!({ "name": "policed", "permissions": list })).await;
    let decisions = || -> Vec<Value> {
        codex.answers().iter().map(|answer| answer["result"]["decision"].clone()).collect()
    };
    let expected = ["accept", "decline", "decline", "decline", "accept"];
    assert_eq!(run(&scene, &token).await["ok"], true);
    assert_eq!(decisions(), expected);
    // The other surfaces have the same policy, and a folder of their own.
    let path = elsewhere(&scene, &token).await;
    comes_to(&scene, &token, &path, "completed").await;
    assert_eq!(decisions(), [expected, expected].concat());
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

/// Begins a turn at another surface; returns the path of its run.
async fn elsewhere(scene: &ForgeScene, token: &str) -> String {
    let request = scene.request(token, Method::POST, "/v1/runs");
    let request = request.body(json!({ "input": "x", "model": "claude" }).to_string());
    let started = json(request.send().await.unwrap()).await;
    format!("/v1/runs/{}", started["run_id"].as_str().unwrap_or_else(|| panic!("{started}")))
}

/// Waits until the run has this status.
async fn comes_to(scene: &ForgeScene, token: &str, run: &str, status: &str) {
    let ask = async || json(scene.request(token, Method::GET, run).send().await.unwrap()).await;
    scene.served.until(async || ask().await["status"] == status).await;
}

#[tokio::test]
async fn a_policy_that_was_set_holds_on_every_surface() {
    let scene = ForgeScene::with_admin().await;
    let usual = scene.makes_token(&json!({ "name": "usual" })).await;
    let listed = scene.makes_token(&json!({ "name": "listed", "permissions": ["ls"] })).await;
    for (token, action, runs) in [(&usual, "ls", false), (&listed, "rm x", false), (&listed, "ls", true)] {
        scene.says().asks("Run a command", action).says(["ok"]);
        let run = elsewhere(&scene, token).await;
        comes_to(&scene, token, &run, "completed").await;
        let answer = scene.agent.answers().pop().unwrap();
        match runs {
            true => assert!(matches!(answer.choice, AskChoice::Allow(_)), "{:?}", answer.choice),
            false => assert_eq!(answer.choice, AskChoice::Deny(DenyReason::Policy), "{action}"),
        }
    }
    assert_eq!(scene.agent.ran(), ["ls"]);
    let asked = scene.makes_token(&json!({ "name": "asked", "permissions": "ask" })).await;
    scene.says().asks("Run a command", "ls").says(["ok"]);
    let run = elsewhere(&scene, &asked).await;
    comes_to(&scene, &asked, &run, "waiting_for_approval").await;
}

#[tokio::test]
async fn without_a_policy_an_app_answers_elsewhere_and_is_denied_here() {
    let scene = ForgeScene::start().await;
    let app = scene.app.clone();
    scene.says().asks("Run a command", "ls").says(["ok"]);
    let path = elsewhere(&scene, &app).await;
    comes_to(&scene, &app, &path, "waiting_for_approval").await;
    let answer = scene.post(&format!("{path}/approval"), &json!({ "choice": "once" })).await;
    assert_eq!(answer.status(), 200);
    comes_to(&scene, &app, &path, "completed").await;
    assert_eq!(scene.agent.ran(), ["ls"]);
    scene.says().asks("Run a command", "ls").says(["ok"]);
    run(&scene, &app).await;
    assert_eq!(scene.agent.answers().pop().unwrap().choice, AskChoice::Deny(DenyReason::Policy));
}

#[tokio::test]
async fn an_app_that_reads_only_the_end_is_not_waited_for_and_told_why() {
    let (scene, token) = scene_with(json!("ask")).await;
    let id = scene.begin_as(&token).await;
    scene.says().asks("Run a command", "ls").says(["went on"]);
    let request = scene.request(&token, Method::POST, &format!("/sessions/{id}/turn"));
    let answer = json(request.body(json!({ "prompt": "x" }).to_string()).send().await.unwrap()).await;
    assert_eq!((&answer["ok"], &answer["stop_reason"]), (&json!(true), &json!("end_turn")), "{answer}");
    let told = answer["events"].as_array().unwrap().iter().find(|event| event["type"] == "permission_answer");
    let told = told.unwrap_or_else(|| panic!("{answer}"));
    assert_eq!((&told["choice"], &told["reason"]), (&json!("deny"), &json!("not streamed")));
    assert!(told["detail"].as_str().unwrap().contains("text/event-stream"), "{told}");

    scene.says().asks("Run a command", "ls").says(["went on"]);
    assert_eq!(run(&scene, &token).await["result"], "went on");
    let denied = AskChoice::Deny(DenyReason::NotStreamed);
    assert!(scene.agent.answers().iter().all(|answer| answer.choice == denied));
    assert!(scene.agent.ran().is_empty());
}
