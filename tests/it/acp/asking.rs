//! Requests for permission: what people are shown, what they can say, and what the agent is told.

use std::time::Duration;

use serde_json::{Value, json};
use talaria::access::AppPermissions;

use super::scene::AcpScene;
use super::scripted_agent::{Act, Script};
use crate::support::gateway::Setup;

fn removing() -> Script {
    Script::default().turn("remove", [Act::runs_if_allowed("rm notes.txt", ""), Act::says(&["I went on."])])
}

/// The result that the agent got.
fn outcome(scene: &AcpScene) -> Value {
    let answers = scene.agent.answers();
    let [answer] = answers.as_slice() else { panic!("{answers:?}") };
    answer["result"]["outcome"].clone()
}

fn selected(option: &str) -> Value {
    json!({ "outcome": "selected", "optionId": option })
}

#[tokio::test]
async fn a_command_runs_only_after_a_person_has_seen_and_allowed_it() {
    for (answer, option, ran) in
        [("/answer CODE 1", "yes", 1), ("/answer CODE no", "no", 0), ("/deny CODE", "no", 0)]
    {
        let scene = AcpScene::with(removing()).await;
        scene.room().says("@ann", "remove my notes").await;
        let asked = scene.room().is_asked("rm notes.txt").await;
        let folder = scene.session_folder().display().to_string();
        for words in
            [folder.as_str(), "run a command", "1. `Yes, proceed`", "2. `Yes, and always`", "3. `No`"]
        {
            assert!(asked.text.contains(words), "{words}: {}", asked.text);
        }
        assert_eq!(scene.agent.ran(), Vec::<String>::new());
        scene.asks(&answer.replace("CODE", &asked.code), "I went on.").await;
        assert_eq!((outcome(&scene), scene.agent.ran().len()), (selected(option), ran), "{answer}");
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_refused_permission_that_ends_the_agents_turn_is_no_stop_and_no_failure() {
    for reason in ["cancelled", "refusal"] {
        let acts = [Act::says(&["I would."]), Act::runs_if_allowed("rm notes.txt", ""), Act::stops(reason)];
        let scene = AcpScene::with(Script::default().turn("remove", acts)).await;
        scene.room().says("@ann", "remove my notes").await;
        let asked = scene.room().is_asked("rm notes.txt").await;
        scene.asks(&format!("/deny {}", asked.code), "I would.").await;
        let room = scene.room().now();
        assert!(!room.contains("(stopped)") && !room.contains("cut short"), "{room}");
        scene.asks("hello", "bot   hello").await;
        assert_eq!(scene.agent.processes().len(), 1);
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_policy_decides_without_asking_and_a_refusal_is_a_line() {
    for (permissions, option) in [
        (AppPermissions::Deny, "no"),
        (AppPermissions::Allow(vec!["rm notes.txt".into()]), "yes"),
        (AppPermissions::Allow(vec!["ls*".into()]), "no"),
    ] {
        let scene = AcpScene::as_set(removing(), |config, _| config.permissions = permissions).await;
        scene.asks("remove my notes", "I went on.").await;
        assert_eq!(outcome(&scene), selected(option));
        assert!(scene.room().asked().is_empty(), "nobody is asked");
        let is_told = scene.room().now().contains("Declined: the agent asked to do `rm notes.txt`.");
        assert_eq!(is_told, option == "no", "{}", scene.room().now());
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_request_that_is_not_clear_is_refused_with_a_line() {
    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    let unclear = "it was not clear for what";
    for (params, line) in [
        (json!({ "toolCall": { "toolCallId": "x" }, "options": options }), unclear),
        (
            json!({ "toolCall": { "toolCallId": "x", "title": "do it" }, "options": [] }),
            "offered no answer that holds for this action alone",
        ),
        (json!({ "options": options }), unclear),
        (json!({}), unclear),
    ] {
        let acts = [Act::asks("session/request_permission", params), Act::says(&["I went on."])];
        let scene = AcpScene::with(Script::default().turn("go", acts)).await;
        scene.asks("go", line).await;
        assert_eq!(outcome(&scene), json!({ "outcome": "cancelled" }));
        scene.ends().await;
    }
}

#[tokio::test]
async fn an_ask_that_nobody_answers_ends_the_turn() {
    let setup = Setup { ask_for: Duration::from_millis(300), ..Setup::default() };
    let scene = AcpScene::of(removing(), setup, |_, _| {}).await;
    scene.asks("remove my notes", "nobody answered in time").await;
    scene.receives("session/cancel", 1).await;
    assert_eq!(scene.agent.ran(), Vec::<String>::new());
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn what_nobody_knows_is_refused_and_the_turn_goes_on() {
    let script = Script::default().turn(
        "go",
        [
            Act::asks("terminal/create", json!({ "command": "ls" })),
            Act::asks("_vendor/ask", json!({})),
            Act::asks("fs/read_text_file", json!({ "sessionId": "another", "path": "/etc/passwd" })),
            Act::says(&["I went on."]),
        ],
    );
    let scene = AcpScene::with(script).await;
    scene.asks("go", "I went on.").await;
    let codes: Vec<_> =
        scene.agent.answers().iter().map(|answer| answer["error"]["code"].as_i64().unwrap()).collect();
    assert_eq!(codes, [-32_601, -32_601, -32_602]);
    scene.ends().await;
}
