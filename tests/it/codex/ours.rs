//! Our own words, tools and lines around a turn of codex: instructions, notes, account and rules.

use serde_json::json;

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario, ScriptedAnswer};
use crate::support::gateway::Setup;

#[tokio::test]
async fn the_words_of_the_operator_go_beside_the_prompt_and_again_after_a_summary() {
    let scenario = Scenario::default().turn("shorten", [Act::Compacts, Act::says(&["Shorter."])]);
    let setup = Setup { context: "Be kind.".into(), ..Setup::default() };
    let scene = CodexScene::of(scenario, setup, |_| {}).await;
    scene.asks("hello", "bot   hello").await;
    scene.asks("shorten", "Shorter.").await;
    scene.asks("again", "bot   again").await;
    let told: Vec<_> = scene
        .codex
        .received("turn/start")
        .iter()
        .map(|turn| turn["additionalContext"]["talaria_context_01"]["value"].as_str().unwrap().to_owned())
        .collect();
    assert!(told[0].contains("Be kind."), "{told:?}");
    assert_eq!(told[0], told[1]);
    assert!(told[2].contains("told again") && told[2].contains("Be kind."), "{told:?}");
    // The prompt is the person's own.
    assert_eq!(scene.codex.received("turn/start")[0]["input"], json!([{ "type": "text", "text": "hello" }]));
    scene.ends().await;
}

#[tokio::test]
async fn the_memory_of_a_thread_is_that_of_its_person() {
    let note = json!({ "callId": "c1", "namespace": null, "tool": "memory",
        "arguments": { "action": "add", "text": "likes tea" } });
    let scenario =
        Scenario::default().turn("remember", [Act::asks("item/tool/call", note), Act::says(&["Noted."])]);
    let scene = CodexScene::with(scenario).await;
    scene.asks("remember that I like tea", "Noted.").await;
    let tools = scene.codex.received("thread/start").remove(0)["dynamicTools"].clone();
    assert_eq!(tools[0]["name"], "memory");
    assert_eq!(scene.codex.answers()[0]["result"]["success"], true);
    scene.asks("/memory", "likes tea").await;
    // Another person's thread knows nothing of it.
    let other = scene.gateway.direct_room("!bob");
    other.says("@bob", "hello").await;
    scene.receives("turn/start", 2).await;
    let told = scene.codex.received("turn/start")[1]["additionalContext"].to_string();
    assert!(told.contains("no notes") && !told.contains("tea"), "{told}");
    scene.ends().await;
}

#[tokio::test]
async fn an_agent_without_our_tools_gives_its_threads_none() {
    let scene = CodexScene::as_set(Scenario::default(), |config| config.tools_server = false).await;
    scene.asks("hello", "bot   hello").await;
    assert!(scene.codex.received("thread/start")[0]["dynamicTools"].is_null());
    scene.ends().await;
}

#[tokio::test]
async fn the_version_of_codex_is_known_once_it_runs() {
    let scene = CodexScene::with(Scenario::default()).await;
    let version = || scene.gateway.registered().default_agent().program_version();
    assert_eq!(version(), None);
    scene.asks("hello", "bot   hello").await;
    assert_eq!(version().as_deref(), Some("0.169.0"));
    scene.ends().await;
}

#[tokio::test]
async fn status_shows_limits_that_codex_tells_only_when_it_is_asked() {
    let account = json!({ "account": { "type": "chatgpt", "email": "ann@example.org", "planType": "plus" } });
    let limits = json!({ "rateLimits": { "limitId": "codex", "primary":
        { "usedPercent": 57, "windowDurationMins": 300, "resetsAt": null } } });
    let scenario = Scenario::default()
        .always("account/read", ScriptedAnswer::Result(account))
        .always("account/rateLimits/read", ScriptedAnswer::Result(limits))
        .turn("login", [Act::notifies("account/updated", json!({})), Act::says(&["Hi."])]);
    let scene = CodexScene::with(scenario).await;
    scene.asks("hello", "bot   hello").await;
    scene.receives("account/rateLimits/read", 1).await;
    scene.asks("/status", "57 %").await;
    scene.asks("login", "Hi.").await;
    scene.receives("account/rateLimits/read", 2).await;
    scene.ends().await;
}

#[tokio::test]
async fn status_shows_the_account_the_rules_and_the_limits() {
    let account = json!({ "account": { "type": "chatgpt", "email": "ann@example.org", "planType": "plus" } });
    let limits = json!({ "rateLimits": { "limitId": "codex", "primary":
        { "usedPercent": 43, "windowDurationMins": 300, "resetsAt": null } } });
    let limits = format!("{}\n", json!({ "method": "account/rateLimits/updated", "params": limits }));
    let scenario = Scenario::default()
        .always("account/read", ScriptedAnswer::Result(account))
        .turn("hello", [Act::writes(limits), Act::says(&["Hi."])])
        .turn(
            "hack",
            [
                Act::notifies(
                    "model/rerouted",
                    json!({ "fromModel": "fake-model", "toModel": "safe-model" }),
                ),
                Act::says(&["No."]),
            ],
        );
    let scene = CodexScene::with(scenario).await;
    scene.asks("hello", "Hi.").await;
    scene.receives("account/read", 1).await;
    scene.asks("/status", "43 %").await;
    let room = scene.room().now();
    assert!(room.contains("plus") && !room.contains("ann@"), "{room}");
    assert!(room.contains("on-request") && room.contains("readOnly"), "{room}");
    assert!(room.contains("model fake-model"), "{room}");
    scene.asks("hack it", "No.").await;
    scene.asks("/status", "model safe-model").await;
    scene.ends().await;
}
