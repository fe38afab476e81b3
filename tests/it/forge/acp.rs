//! ACP agents behind this surface: one process for each session, in the session's own folder.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use talaria::access::AppPermissions;
use talaria::agents::acp::AcpTimes;
use talaria::agents::process::count_children;
use talaria::config::{AcpConfig, ForgeConfig};
use tokio::task::JoinHandle;

use super::scene::{ADMIN, ForgeScene, error};
use crate::acp::scripted_agent::{Act, Script, ScriptedAgent};
use crate::support::gateway::Setup;
use crate::support::served::{KEY, json};
use crate::support::stream::Stream;

#[tokio::test]
async fn a_session_has_a_process_in_its_own_folder_until_it_is_closed() {
    let (scene, acp) = ForgeScene::acp(Script::default().turn("x", [Act::says(&["y"])])).await;
    let home = scene.served.gateway.home().to_owned();
    let (one, other) = (scene.begin().await, scene.begin().await);
    assert_eq!(count_children(&home), 0, "a process starts with the first turn");
    let health = json(scene.get("/healthz").await).await;
    assert_eq!(health["claude_version"], Value::Null, "nobody knows it yet");
    for id in [&one, &other, &one] {
        assert_eq!(scene.turn(id, "x").await.status(), 200);
    }
    let health = json(scene.get("/healthz").await).await;
    assert_eq!((&health["claude_version"], &health["agents"][1]["version"]), (&json!("1.0"), &json!("1.0")));
    let opened = acp.received("session/new");
    let folders: Vec<_> = opened.iter().map(|params| params["cwd"].as_str().unwrap()).collect();
    assert!(folders.len() == 2 && folders[0] != folders[1], "{folders:?}");
    assert!(folders.iter().all(|folder| folder.starts_with(home.to_str().unwrap())));
    for id in [&one, &other] {
        let path = format!("/sessions/{id}");
        assert_eq!(json(scene.get(&path).await).await["live"], true);
        scene.delete(&path).await;
        assert_eq!(json(scene.get(&path).await).await["live"], false);
    }
    scene.served.until(async || count_children(&home) == 0).await;
    assert_eq!(scene.folders().len(), 2);
    scene.sweep_after(90_000).await;
    assert!(scene.folders().is_empty());
}

#[tokio::test]
async fn after_a_restart_the_next_turn_loads_the_session() {
    let (mut scene, acp) = ForgeScene::acp(Script::default().turn("x", [Act::says(&["y"])])).await;
    let id = scene.begin().await;
    scene.turn(&id, "x").await;
    scene.served.restart().await;
    let answer = json(scene.turn(&id, "x").await).await;
    assert_eq!((&answer["ok"], &answer["turn_index"]), (&json!(true), &json!(2)), "{answer}");
    assert_eq!((acp.received("session/new").len(), acp.received("session/load").len()), (1, 1));
}

#[tokio::test]
async fn a_session_that_cannot_be_loaded_is_closed_and_never_begins_anew() {
    let (mut scene, acp) = ForgeScene::acp(Script::default().turn("x", [Act::says(&["y"])])).await;
    let id = scene.begin().await;
    scene.turn(&id, "x").await;
    scene.served.restart().await;
    acp.forgets_everything();
    let answer = scene.turn(&id, "x").await;
    assert_eq!(answer.status(), 502);
    let answer = json(answer).await;
    assert_eq!(answer["error"], "session_lost", "{answer}");
    assert_eq!(acp.received("session/new").len(), 1, "no empty session in its place");
    scene
        .served
        .until(async || !json(scene.get(&format!("/sessions/{id}")).await).await["closed_at"].is_null())
        .await;
    error(scene.turn(&id, "x").await, 410).await;
}

#[tokio::test]
async fn the_policy_of_the_app_answers_its_requests_for_permission() {
    // Alone, the agent's own policy holds for rooms; an app's has to agree.
    for own in [AppPermissions::Ask, AppPermissions::Allow(vec!["echo*".to_owned()])] {
        the_policy_of_the_app_answers_beside(own).await;
    }
}

#[tokio::test]
async fn what_a_list_allows_is_allowed_in_the_folder_of_the_session_alone() {
    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
        { "optionId": "no", "name": "No", "kind": "reject_once" }]);
    let asks = |cwd: Option<&str>| {
        let input = json!({ "command": "echo hi", "cwd": cwd });
        let call = json!({ "toolCallId": "c", "title": "echo hi", "kind": "execute", "rawInput": input });
        Act::asks("session/request_permission", json!({ "toolCall": call, "options": options }))
    };
    let script =
        Script::default().turn("x", [asks(None), asks(Some("/etc")), asks(Some("..")), Act::says(&["y"])]);
    let (scene, acp) = ForgeScene::acp_with(with_admin(), script).await;
    let token = trusted(&scene, json!(["echo hi", "echo*"])).await;
    let request = scene.request(&token, Method::POST, "/run").body(json!({ "prompt": "x" }).to_string());
    assert_eq!(json(request.send().await.unwrap()).await["ok"], true);
    let chosen: Vec<_> =
        acp.answers().iter().map(|answer| answer["result"]["outcome"]["optionId"].clone()).collect();
    assert_eq!(chosen, ["yes", "no", "no"], "{}", acp.history());
    // The same on a surface where the app is not shown the folder as a part of the action.
    let chat = json!({ "model": "claude", "messages": [{ "role": "user", "content": "x" }] });
    let request = scene.request(&token, Method::POST, "/v1/chat/completions").body(chat.to_string());
    assert_eq!(request.send().await.unwrap().status(), 200);
    let chosen: Vec<_> =
        acp.answers().iter().skip(3).map(|answer| answer["result"]["outcome"]["optionId"].clone()).collect();
    assert_eq!(chosen, ["yes", "no", "no"], "{}", acp.history());
}

fn with_admin() -> ForgeConfig {
    ForgeConfig { admin_token: Some(ADMIN.to_owned().into()), ..ForgeConfig::default() }
}

/// The token of an app with these permissions.
async fn trusted(scene: &ForgeScene, permissions: Value) -> String {
    let body = json!({ "name": "trusted", "permissions": permissions });
    let made = scene.request(ADMIN, Method::POST, "/admin/tokens").body(body.to_string());
    json(made.send().await.unwrap()).await["token"].as_str().unwrap().to_owned()
}

async fn the_policy_of_the_app_answers_beside(own: AppPermissions) {
    let script = Script::default().turn("x", [Act::runs_if_allowed("echo hi", "hi"), Act::says(&["done"])]);
    let (scene, acp) = ForgeScene::acp_permitting(with_admin(), own, script).await;
    let trusted = trusted(&scene, json!(["echo hi"])).await;
    for (key, runs) in [(scene.app.as_str(), false), (&trusted, true)] {
        let id = scene.begin_as(key).await;
        let request = scene.request(key, Method::POST, &format!("/sessions/{id}/turn"));
        let answer = json(request.body(json!({ "prompt": "x" }).to_string()).send().await.unwrap()).await;
        assert_eq!(answer["ok"], true, "{answer}");
        let call: Vec<_> = answer["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "tool_call")
            .collect();
        let ended = call.last().unwrap_or_else(|| panic!("{answer}"));
        let status = &ended["params"]["update"]["status"];
        assert_eq!(status == "completed", runs, "{answer}\n{}", acp.history());
    }
}

#[tokio::test]
async fn a_turn_that_its_agent_ends_after_a_refusal_is_answered_with_its_text() {
    for reason in ["cancelled", "refusal"] {
        let acts = [Act::says(&["I may not."]), Act::runs_if_allowed("rm x", ""), Act::stops(reason)];
        let (scene, _acp) = ForgeScene::acp(Script::default().turn("x", acts)).await;
        let answer = scene.post("/run", &json!({ "prompt": "x" })).await;
        assert_eq!(answer.status(), 200);
        let answer = json(answer).await;
        assert_eq!((&answer["result"], &answer["stop_reason"]), (&json!("I may not."), &json!(reason)));
        let id = scene.begin().await;
        let answer = json(scene.turn(&id, "x").await).await;
        assert_eq!((&answer["ok"], &answer["stop_reason"]), (&json!(true), &json!(reason)), "{answer}");
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_or_too_slow_ends_at_the_agent_too() {
    let (scene, acp) =
        ForgeScene::acp(Script::default().turn("slow", [Act::says(&["half"]), Act::Hangs])).await;
    let id = scene.begin().await;
    let path = format!("/sessions/{id}/turn");
    let answer = scene.post(&path, &json!({ "prompt": "slow", "timeout_secs": 1 })).await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!(answer["stop_reason"], "timeout", "{answer}");
    assert_eq!(answer["events"][0]["content"], "half");
    acp.receives("session/cancel").await;
    let running =
        scene.request(&scene.app, Method::POST, &path).body(json!({ "prompt": "slow" }).to_string());
    let running = tokio::spawn(running.send());
    scene.served.until(async || acp.received("session/prompt").len() == 2).await;
    scene.served.has_turns("forge", 1).await;
    scene.post(&format!("/sessions/{id}/cancel"), &json!({})).await;
    assert_eq!(json(running.await.unwrap().unwrap()).await["stop_reason"], "cancelled");
}

#[tokio::test]
async fn bad_agents_are_a_clear_error_and_the_server_goes_on() {
    let script = Script::default()
        .turn("exits", [Act::exits(3, "no licence")])
        .turn("garbage", [Act::writes(vec![b'x'; 100_000]), Act::writes("\n"), Act::exits(1, "")])
        .turn("ok", [Act::says(&["fine"])]);
    let (scene, _acp) = ForgeScene::acp(script).await;
    for prompt in ["exits", "garbage"] {
        let id = scene.begin().await;
        let answer = scene.turn(&id, prompt).await;
        assert_eq!(answer.status(), 502, "{prompt}");
        let answer = json(answer).await;
        assert!(answer["error"].is_string() && answer["detail"].is_string(), "{answer}");
        assert_eq!(answer["stop_reason"], "error");
        assert_eq!(answer["stderr"].as_str().unwrap().contains("no licence"), prompt == "exits", "{answer}");
    }
    // A stream ends with the same.
    let id = scene.begin().await;
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
    let request =
        request.header("accept", "text/event-stream").body(json!({ "prompt": "exits" }).to_string());
    let mut stream = Stream::of(request.send().await.unwrap());
    let mut last = json!(null);
    while let Some(event) = stream.try_next().await.unwrap() {
        last = event.json();
    }
    assert!(last["ok"] == false && last["stderr"].as_str().unwrap().contains("no licence"), "{last}");
    let id = scene.begin().await;
    assert_eq!(json(scene.turn(&id, "ok").await).await["events"][0]["content"], "fine");
}

#[tokio::test]
async fn an_agent_that_cannot_be_used_leaves_its_last_words() {
    let acts = |words: &str| [Act::warns(words)];
    let version = Script { greeting: json!({ "protocolVersion": 2 }), ..Script::default() };
    let refused = Script { new_error: Some((-32_603, "no".to_owned())), ..Script::default() };
    let token = "sk-proj-0123456789abcdef0123";
    for script in [version.initializing(acts("too old")), refused.initializing(acts("too old")), {
        Script::default().starting([Act::exits(7, &format!("too old, key={token}"))])
    }] {
        let (scene, _acp) = ForgeScene::acp(script).await;
        let id = scene.begin().await;
        let answer = scene.turn(&id, "x").await;
        assert_eq!(answer.status(), 502);
        let answer = json(answer).await;
        let stderr = answer["stderr"].as_str().unwrap();
        assert!(stderr.contains("too old") && !stderr.contains(token), "{answer}");
    }
}

#[tokio::test]
async fn a_session_whose_conversation_nobody_knows_any_more_never_begins_anew() {
    let (mut scene, acp) = ForgeScene::acp(Script::default().turn("x", [Act::says(&["y"])])).await;
    let id = scene.begin().await;
    scene.turn(&id, "x").await;
    let database = rusqlite::Connection::open(scene.served.gateway.database()).unwrap();
    assert_eq!(database.execute("DELETE FROM session_agents", []).unwrap(), 1);
    scene.served.restart().await;
    let answer = scene.turn(&id, "x").await;
    assert_eq!(answer.status(), 502);
    assert_eq!(json(answer).await["error"], "session_lost");
    assert_eq!((acp.received("session/new").len(), acp.received("session/prompt").len()), (1, 1));
}

#[tokio::test]
async fn a_result_is_json_also_if_the_agent_said_something_before_its_tool_calls() {
    let json_said = Act::says(&["```json\n{\"a\":", "1}\n```"]);
    let acts = [Act::says(&["I look."]), Act::runs("ls", "x"), json_said, Act::stops("end_turn")];
    let script = Script::default().turn("json", acts);
    let words = [Act::says(&["I look."]), Act::runs("ls", "x"), Act::says(&["Nothing."])];
    let (scene, _acp) = ForgeScene::acp(script.turn("words", words)).await;
    let ask = async |prompt: &str| {
        let request = scene.request(&scene.app, Method::POST, "/run").header("idempotency-key", prompt);
        json(request.body(json!({ "prompt": prompt }).to_string()).send().await.unwrap()).await["result"]
            .clone()
    };
    // An equal request gets the same, from the store.
    for _ in 0..2 {
        assert_eq!(ask("json").await, json!({ "a": 1 }));
    }
    assert_eq!(ask("words").await, "I look.\n\nNothing.");
}

#[tokio::test]
async fn a_claude_that_is_not_installed_is_not_present() {
    let health = async |command: Option<&'static str>| {
        let change = move |agent: &mut AcpConfig, _: &mut AcpTimes| {
            if let Some(command) = command {
                agent.command = command.to_owned();
            }
        };
        let (scene, _acp) =
            ForgeScene::acp_as_set(ForgeConfig::default(), Setup::default(), Script::default(), change).await;
        json(scene.get("/healthz").await).await["claude_present"].clone()
    };
    assert_eq!(health(None).await, true);
    assert_eq!(health(Some("/nowhere/claude-agent-acp")).await, false);
    assert_eq!(health(Some("no-such-program-anywhere")).await, false);
}

/// A scene of apps and an ACP agent with so many processes.
async fn with_processes(most: usize, script: Script) -> (ForgeScene, ScriptedAgent) {
    let setup = Setup { processes: most, ..Setup::default() };
    ForgeScene::acp_as_set(ForgeConfig::default(), setup, script, |_, _| {}).await
}

/// Begins a turn that waits at the gate of this name.
async fn waits_at(scene: &ForgeScene, acp: &ScriptedAgent, key: &str, gate: &str) -> JoinHandle<Response> {
    let id = scene.begin_as(key).await;
    let request = scene.request(key, Method::POST, &format!("/sessions/{id}/turn"));
    let request = request.body(json!({ "prompt": gate }).to_string());
    let running = tokio::spawn(async move { request.send().await.unwrap() });
    acp.reached(gate).await;
    running
}

fn gates(names: &[&str]) -> Script {
    names.iter().fold(Script::default().turn("x", [Act::says(&["y"])]), |script, gate| {
        script.turn(gate, [Act::waits(gate), Act::says(&["Done."])])
    })
}

#[tokio::test]
async fn a_full_pool_is_busy_for_everybody_and_an_app_leaves_a_share_to_others() {
    let (scene, acp) = with_processes(4, gates(&["a1", "a2", "a3", "b1"])).await;
    let (app, other) = (scene.app.as_str(), scene.other.as_str());
    let mut running = Vec::new();
    for gate in ["a1", "a2", "a3"] {
        running.push(waits_at(&scene, &acp, app, gate).await);
    }
    // Three quarters are all that one app gets; another one finds a process.
    let id = scene.begin().await;
    let refused = scene.turn(&id, "x").await;
    assert!(refused.headers().contains_key("retry-after"));
    error(refused, 503).await;
    running.push(waits_at(&scene, &acp, other, "b1").await);
    for key in [other, KEY] {
        let refused = scene.request(key, Method::POST, "/run").body(json!({ "prompt": "x" }).to_string());
        let refused = refused.send().await.unwrap();
        assert!(refused.status() == 503 && refused.headers().contains_key("retry-after"));
    }
    // A stream tells the same in its end.
    let streamed = scene.request(app, Method::POST, &format!("/sessions/{id}/turn"));
    let streamed = streamed.header("accept", "text/event-stream").body(json!({ "prompt": "x" }).to_string());
    let mut stream = Stream::of(streamed.send().await.unwrap());
    let mut last = json!(null);
    while let Some(event) = stream.try_next().await.unwrap() {
        last = event.json();
    }
    assert!(last["ok"] == false && last["retry_after"].is_u64(), "{last}");
    assert_eq!(acp.processes().len(), 4);
    for (gate, running) in ["a1", "a2", "a3", "b1"].into_iter().zip(running) {
        acp.opens(gate);
        assert_eq!(running.await.unwrap().status(), 200);
    }
    // Idle processes make room.
    let answer = json(scene.turn(&id, "x").await).await;
    assert_eq!((&answer["ok"], &answer["turn_index"]), (&json!(true), &json!(1)), "{answer}");
}

#[tokio::test]
async fn the_longest_idle_session_makes_room_and_is_loaded_when_it_goes_on() {
    let (scene, acp) = with_processes(2, gates(&[])).await;
    // The owner may have all processes.
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(scene.begin_as(KEY).await);
    }
    let turn = async |id: &str| {
        let request = scene.request(KEY, Method::POST, &format!("/sessions/{id}/turn"));
        let answer = json(request.body(json!({ "prompt": "x" }).to_string()).send().await.unwrap()).await;
        assert_eq!(answer["ok"], true, "{answer}");
    };
    let live = async |id: &str| {
        let shown = scene.request(KEY, Method::GET, &format!("/sessions/{id}")).send().await.unwrap();
        json(shown).await["live"] == true
    };
    for id in &ids {
        turn(id).await;
    }
    assert!(!live(&ids[0]).await && live(&ids[1]).await && live(&ids[2]).await);
    turn(&ids[0]).await;
    assert_eq!((acp.received("session/new").len(), acp.received("session/load").len()), (3, 1));
    assert!(!live(&ids[1]).await && live(&ids[2]).await);
}
