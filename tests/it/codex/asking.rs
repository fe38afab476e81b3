//! Every family of codex' requests in a room: what people are shown, what they can say, and what codex is told.

use serde_json::{Value, json};
use talaria::config::PermissionPolicy;

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario};
use crate::support::relay::relay;
use crate::support::served::{KEY, json as body};

/// A scene in which codex makes this request and then goes on.
async fn requesting(method: &str, params: Value) -> CodexScene {
    CodexScene::with(scenario(method, params)).await
}

fn scenario(method: &str, params: Value) -> Scenario {
    Scenario::default().turn("go", [Act::asks(method, params), Act::says(&["I went on."])])
}

/// The result that codex got.
fn result(scene: &CodexScene) -> Value {
    let answers = scene.codex.answers();
    let [answer] = answers.as_slice() else { panic!("{answers:?}") };
    answer["result"].clone()
}

/// Ann asks, answers the only ask so, and the turn goes on.
async fn answered(scene: &CodexScene, words: &str, answer: &str) -> String {
    scene.room().says("@ann", "go").await;
    let asked = scene.room().is_asked(words).await;
    let (command, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    scene.asks(format!("{command} {} {rest}", asked.code).trim(), "I went on.").await;
    asked.text
}

#[tokio::test]
async fn a_patch_shows_its_files_and_the_reason() {
    let changes = [("add", "/ws/new.py", "print(1)\n"), ("update", "/ws/old.py", "@@\n-a\n+b\n")];
    let patch = Act::patches_if_allowed(&changes);
    let scene = CodexScene::with(Scenario::default().turn("go", [patch, Act::says(&["I went on."])])).await;
    let text = answered(&scene, "change files", "/approve").await;
    assert!(text.contains("1 add, 1 update: /ws/new.py, /ws/old.py"), "{text}");
    assert!(!text.contains("print(1)"), "{text}");
    assert_eq!(result(&scene), json!({ "decision": "accept" }));
    scene.ends().await;
}

#[tokio::test]
async fn a_request_of_another_turn_is_refused_and_nobody_is_asked() {
    let request = |kind: &str, turn: &str| {
        let params = json!({ "threadId": "$thread", "turnId": turn, "kind": kind, "itemId": "call-1",
            "command": "make", "cwd": "/ws" });
        let request =
            json!({ "id": kind, "method": "item/commandExecution/requestApproval", "params": params });
        Act::repeats(&request, 1)
    };
    let acts = [request("command", "another"), request("writeStdin", "an-earlier-one"), Act::waits("gate")];
    let scene = CodexScene::with(Scenario::default().turn("go", acts)).await;
    scene.room().says("@ann", "go").await;
    // Input for a command that an earlier turn left behind.
    let asked = scene.room().is_asked("make").await;
    scene.room().says("@ann", &format!("/deny {}", asked.code)).await;
    scene.comes_to("both are answered", || scene.codex.answers().len() == 2).await;
    let answers = scene.codex.answers();
    assert_eq!((&answers[0]["id"], answers[0]["error"].is_null()), (&json!("command"), false));
    assert_eq!(
        (&answers[1]["id"], &answers[1]["result"]["decision"]),
        (&json!("writeStdin"), &json!("decline"))
    );
    assert_eq!(scene.room().asked().len(), 1);
    scene.codex.opens("gate");
    scene.ends().await;
}

#[tokio::test]
async fn more_permissions_are_declined_with_a_line_or_asked() {
    let method = "item/permissions/requestApproval";
    let params = json!({ "itemId": "p1", "cwd": "/ws", "reason": "to install it",
        "permissions": { "network": { "enabled": true }, "fileSystem": null } });
    let scene = requesting(method, params.clone()).await;
    scene.asks("go", "more permissions than its sandbox has").await;
    assert_eq!(result(&scene), json!({ "permissions": {}, "scope": "turn" }));
    scene.ends().await;

    let scene = CodexScene::as_set(scenario(method, params), |config| {
        config.permissions.escalation = PermissionPolicy::Ask;
    })
    .await;
    let text = answered(&scene, "more permissions", "/approve").await;
    assert!(text.contains("\"enabled\": true") && text.contains("`to install it`"), "{text}");
    let granted = json!({ "permissions": { "network": { "enabled": true } }, "scope": "turn" });
    assert_eq!(result(&scene), granted);
    scene.ends().await;
}

#[tokio::test]
async fn a_tool_of_a_server_is_shown_with_its_arguments() {
    let params = json!({ "serverName": "el", "mode": "form", "message": "Allow it?",
        "_meta": { "codex_approval_kind": "mcp_tool_call", "tool_name": "echo", "tool_params": { "text": "hey" } },
        "requestedSchema": { "type": "object", "properties": {} } });
    for (answer, action) in [("/approve", "accept"), ("/deny", "decline")] {
        let scene = requesting("mcpServer/elicitation/request", params.clone()).await;
        let text = answered(&scene, "use the tool 'echo'", answer).await;
        assert!(text.contains("MCP \"el\" \"echo\"") && text.contains("\"text\": \"hey\""), "{text}");
        assert_eq!(result(&scene)["action"], action);
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_form_is_answered_in_own_words_and_a_web_page_is_declined_visibly() {
    let form = json!({ "serverName": "el", "mode": "form", "_meta": null, "message": "Which colour?",
        "requestedSchema": { "type": "object", "properties": { "colour": { "type": "string" } } } });
    let scene = requesting("mcpServer/elicitation/request", form).await;
    answered(&scene, "Which colour?", "/answer dark blue").await;
    assert_eq!(
        result(&scene),
        json!({ "action": "accept", "content": { "colour": "dark blue" }, "_meta": null })
    );
    scene.ends().await;

    let page = json!({ "serverName": "el", "mode": "url", "_meta": null, "message": "Log in",
        "url": "https://example.org/login", "elicitationId": "e1" });
    let scene = requesting("mcpServer/elicitation/request", page).await;
    scene.asks("go", "wanted to have a web page opened").await;
    assert_eq!(result(&scene)["action"], "decline");
    assert!(!scene.room().now().contains("example.org"), "nobody is led anywhere");
    scene.ends().await;
}

#[tokio::test]
async fn a_question_with_options_is_answered_by_number_or_in_own_words() {
    let question = json!({ "id": "q1", "header": "Pick", "question": "Which?", "isOther": true, "isSecret": false,
        "options": [{ "label": "A (Recommended)", "description": "the first" }, { "label": "B", "description": "" }] });
    let params =
        json!({ "itemId": "c1", "questions": [question], "isBlocking": false, "autoResolutionMs": null });
    for (answer, told) in [("/answer 2", "B"), ("/answer neither of them", "neither of them")] {
        let scene = requesting("item/tool/requestUserInput", params.clone()).await;
        let text = answered(&scene, "Pick", answer).await;
        assert!(text.contains("- A (Recommended): the first") && text.contains("2. `B`"), "{text}");
        assert_eq!(result(&scene), json!({ "answers": { "q1": { "answers": [told] } } }));
        scene.ends().await;
    }
}

#[tokio::test]
async fn what_nobody_knows_is_refused_with_a_line() {
    let scene = requesting("item/newThing/requestApproval", json!({ "itemId": "x" })).await;
    scene.asks("go", "asked something that this version does not know").await;
    assert_eq!(scene.codex.answers()[0]["error"]["code"], -32_601);
    scene.ends().await;
}

#[tokio::test]
async fn a_decline_over_there_is_a_line_in_the_room_here_and_in_the_answer_to_a_program() {
    let page = json!({ "serverName": "el", "mode": "url", "_meta": null, "message": "Log in",
        "url": "https://example.org/login", "elicitationId": "e1" });
    let scene = requesting("mcpServer/elicitation/request", page).await;
    let (mut served, _codex, _workspace) = scene.served().await;
    let gateway = relay(&served.url(""), Some(KEY)).await;
    gateway.room().says("@ann", "go").await;
    gateway.room().shows("I went on.\n").await;
    gateway.room().shows("Declined: the MCP server `el` wanted to have a web page opened.").await;

    let asked = json!({ "messages": [{ "role": "user", "content": "go" }] });
    let answer = body(served.post("/v1/chat/completions", &asked).await).await;
    let line = "Declined: the MCP server `el` wanted to have a web page opened.";
    assert_eq!(answer["hermes"]["remarks"][0]["message"], line);
    assert_eq!(answer["choices"][0]["message"]["content"], "I went on.");
    let run = answer["hermes"]["run_id"].as_str().unwrap();
    let run = body(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(run["remarks"], answer["hermes"]["remarks"]);
    let events = served.get(&format!("/v1/runs/{}/events", run["run_id"].as_str().unwrap())).await;
    let events = events.text().await.unwrap();
    assert!(events.contains("\"remarks\":[{\"message\":\"Declined: "), "{events}");
    served.gateway.drain().await;
}
