//! Turns of a session, answered in one piece: one at a time, with an end in any case.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, StepState, TurnEnd};

use super::scene::{ForgeScene, error};
use crate::support::served::{KEY, json};

#[tokio::test]
async fn every_kind_of_agent_gives_events_of_the_same_form() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene
        .says()
        .thinks("hm")
        .step("1", "ls", StepState::Running)
        .step("1", "ls", StepState::Done)
        .says(["hel", "lo"]);
    let answer = json(scene.turn(&id, "say hello").await).await;
    let events = answer["events"].as_array().unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap_or("-")).collect();
    assert_eq!(kinds, ["thinking", "tool_call", "tool_call", "text", "-"]);
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "text")
        .map(|event| event["content"].as_str().unwrap())
        .collect();
    assert_eq!(text, "hello");
    assert_eq!(events[3]["params"]["content"]["text"], "hello", "older clients read this");
    assert_eq!(events[1]["name"], "ls");
    assert_eq!(events[4]["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn turns_are_counted_and_the_agent_remembers() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    for number in 1..=3 {
        let answer = json(scene.turn(&id, &format!("question {number}")).await).await;
        assert_eq!(answer["turn_index"], number);
    }
    let heard = scene.agent.heard();
    assert_eq!(heard[2].history.len(), 4);
    assert!(heard.iter().all(|one| one.session == heard[0].session && one.folder == heard[0].folder));
    let folder = heard[0].folder.clone().unwrap();
    assert!(folder.is_dir() && folder.starts_with(scene.served.gateway.home()));
    assert_eq!(scene.audit(&id).await, ["create", "turn", "turn", "turn"]);
}

#[tokio::test]
async fn a_second_turn_is_refused_while_one_runs() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["a"]).then_hangs().says(["b"]);
    let path = format!("/sessions/{id}/turn");
    let first = scene.request(&scene.app, Method::POST, &path).body(json!({ "prompt": "one" }).to_string());
    let first = tokio::spawn(first.send());
    script.is_hanging().await;
    let second = scene.turn(&id, "two").await;
    assert!(second.headers().contains_key("retry-after"));
    assert_eq!(error(second, 409).await, "turn_in_progress");
    script.goes_on();
    let first = json(first.await.unwrap().unwrap()).await;
    assert_eq!((&first["turn_index"], &first["stop_reason"]), (&json!(1), &json!("end_turn")));
    assert_eq!(json(scene.turn(&id, "three").await).await["turn_index"], 2, "a refused turn does not count");
}

#[tokio::test]
async fn a_timeout_is_an_answer_with_what_there_is() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).then_hangs();
    let body = json!({ "prompt": "slow", "timeout_secs": 1 });
    let answer = scene.post(&format!("/sessions/{id}/turn"), &body).await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!((&answer["ok"], &answer["stop_reason"]), (&json!(true), &json!("timeout")));
    assert_eq!(answer["events"][0]["content"], "half");
    assert!(script.was_told_to_stop());
    // The session goes on.
    assert_eq!(json(scene.turn(&id, "again").await).await["stop_reason"], "end_turn");
}

#[tokio::test]
async fn an_agent_that_ignores_its_stop_does_not_hold_the_answer_up() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene.says().says(["half"]).then_ignores_everything();
    let body = json!({ "prompt": "slow", "timeout_secs": 1 });
    let answer = json(scene.post(&format!("/sessions/{id}/turn"), &body).await).await;
    assert_eq!(answer["stop_reason"], "timeout");
    assert!(answer["duration_ms"].as_u64().unwrap() < 25_000);
}

#[tokio::test]
async fn a_turn_can_be_cancelled() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let path = format!("/sessions/{id}/cancel");
    assert_eq!(json(scene.post(&path, &json!({})).await).await, json!({ "ok": true, "cancelled": false }));
    let script = scene.says().says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    assert_eq!(json(scene.post(&path, &json!({})).await).await, json!({ "ok": true, "cancelled": true }));
    let answer = running.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(json(answer).await["stop_reason"], "cancelled");
}

#[tokio::test]
async fn the_agents_own_word_for_its_end_is_passed_on() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    for reason in ["refusal", "max_turn_requests", "something_new"] {
        scene.says().says(["a"]).facts(json!({ "stop_reason": reason }));
        assert_eq!(json(scene.turn(&id, "x").await).await["stop_reason"], reason);
    }
    scene.says().says(["a"]).then_ends(TurnEnd::Limit);
    assert_eq!(json(scene.turn(&id, "x").await).await["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_failure_says_what_failed_and_has_the_events_so_far() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene.says().says(["half"]).then_fails(AgentErrorKind::CutShort, "the agent's process ended");
    let answer = scene.turn(&id, "x").await;
    assert_eq!(answer.status(), 502);
    let answer = json(answer).await;
    assert_eq!((&answer["ok"], &answer["stop_reason"]), (&json!(false), &json!("error")));
    assert_eq!(answer["events"][0]["content"], "half");
    assert!(answer["detail"].as_str().unwrap().contains("process ended"), "{answer}");
    assert!(answer["error"].is_string());
}

#[tokio::test]
async fn an_agent_that_is_busy_is_asked_again_later() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let kind = AgentErrorKind::Busy { after: None, rate_limited: false };
    scene.says().then_fails(kind, "All processes are in use.");
    let answer = scene.turn(&id, "x").await;
    assert!(answer.headers().contains_key("retry-after"));
    error(answer, 503).await;
    // Nothing ran, so nothing counts.
    let shown = json(scene.get(&format!("/sessions/{id}")).await).await;
    assert_eq!((&shown["turn_count"], &shown["last_turn_at"]), (&json!(0), &Value::Null));
    assert_eq!(scene.audit(&id).await, ["create"]);
    assert_eq!(json(scene.turn(&id, "x").await).await["turn_index"], 1);
    assert_eq!(scene.audit(&id).await, ["create", "turn"]);
}

#[tokio::test]
async fn a_session_that_its_agent_lost_is_closed_and_that_is_said() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene
        .says()
        .facts(json!({ "session_lost": true }))
        .then_fails(AgentErrorKind::Refused, "The session cannot be loaded.");
    let answer = scene.turn(&id, "x").await;
    assert_eq!(answer.status(), 502);
    let answer = json(answer).await;
    assert_eq!(answer["error"], "session_lost");
    assert!(answer["detail"].as_str().unwrap().contains("closed"), "{answer}");
    scene
        .served
        .until(async || !json(scene.get(&format!("/sessions/{id}")).await).await["closed_at"].is_null())
        .await;
    assert_eq!(error(scene.turn(&id, "y").await, 410).await, "session_closed");
}

#[tokio::test]
async fn a_turn_that_a_restart_interrupted_does_not_run_again_and_the_session_goes_on() {
    let mut scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "slow" }).to_string()).send());
    script.is_hanging().await;
    scene.served.restart().await;
    // The answer says so, or the connection broke.
    if let Ok(answer) = running.await.unwrap() {
        let status = answer.status().as_u16();
        assert!([502, 503].contains(&status), "{status}");
        assert_eq!(json(answer).await["ok"], false);
    }
    assert_eq!(scene.agent.heard().len(), 1);
    let answer = json(scene.turn(&id, "next").await).await;
    assert_eq!((&answer["ok"], &answer["turn_index"]), (&json!(true), &json!(2)));
    assert_eq!(scene.agent.heard().len(), 2, "nothing ran by itself");
}

#[tokio::test]
async fn an_equal_request_with_a_key_is_answered_with_the_same_turn() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let ask = |prompt: &str| {
        let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{id}/turn"));
        request.header("idempotency-key", "k").body(json!({ "prompt": prompt }).to_string()).send()
    };
    scene.says().says(["once"]);
    let first = json(ask("x").await.unwrap()).await;
    let second = json(ask("x").await.unwrap()).await;
    assert_eq!((&first["events"], &first["turn_index"]), (&second["events"], &second["turn_index"]));
    assert_eq!(scene.agent.heard().len(), 1);
    assert_eq!(ask("y").await.unwrap().status(), 422);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_with_its_reason() {
    let scene = ForgeScene::start().await;
    let path = format!("/sessions/{}/turn", scene.begin().await);
    for body in [
        json!({}),
        json!({ "prompt": " " }),
        json!({ "prompt": 1 }),
        json!({ "prompt": "x", "timeout_secs": 0 }),
        json!({ "prompt": "x", "files": ["ff_unknown"] }),
        json!({ "prompt": "x", "files": "all" }),
    ] {
        error(scene.post(&path, &body).await, 400).await;
    }
    let long = json!({ "prompt": "x".repeat(4 * 1024 * 1024 + 1) });
    assert_eq!(error(scene.post(&path, &long).await, 413).await, "prompt_too_large");
    let largest = json!({ "prompt": "x".repeat(4 * 1024 * 1024), "timeout_secs": 60 });
    assert_eq!(scene.post(&path, &largest).await.status(), 200);
    assert_eq!(scene.agent.heard().len(), 1);
}

#[tokio::test]
async fn other_surfaces_run_no_turn_in_a_forge_session() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let body = json!({ "messages": [{ "role": "user", "content": "x" }] });
    let request = scene.request(&scene.app, Method::POST, "/v1/chat/completions");
    let refused = request.header("x-hermes-session-id", &id).body(body.to_string()).send().await.unwrap();
    assert_eq!(refused.status(), 409);
    let refused: Value = json(refused).await;
    assert_eq!(refused["error"]["code"], "forge_session", "in that surface's own form: {refused}");
    // Its messages can be read there.
    scene.turn(&id, "hello").await;
    let messages = json(scene.get(&format!("/api/sessions/{id}/messages")).await).await;
    assert_eq!(messages["data"][0]["content"], "hello");
    // And the owner has sessions of their own.
    let own = scene.begin_as(KEY).await;
    assert_eq!(scene.get(&format!("/sessions/{own}")).await.status(), 404);
}

#[tokio::test]
async fn other_surfaces_neither_end_nor_fork_a_forge_session() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    scene.turn(&id, "one").await;
    let path = format!("/api/sessions/{id}");
    let change = |body: Value| scene.request(&scene.app, Method::PATCH, &path).body(body.to_string()).send();
    for refused in [
        change(json!({ "end_reason": "done" })).await.unwrap(),
        change(json!({ "title": "Mine", "end_reason": "done" })).await.unwrap(),
        scene.post(&format!("{path}/fork"), &json!({})).await,
        scene.request(&scene.app, Method::DELETE, &path).send().await.unwrap(),
    ] {
        assert_eq!(refused.status(), 409);
        assert_eq!(json(refused).await["error"]["code"], "forge_session");
    }
    // Its title may be set there, and the agent goes on where it was.
    assert_eq!(change(json!({ "title": "Mine" })).await.unwrap().status(), 200);
    assert!(scene.agent.ended().is_empty());
    let answer = json(scene.turn(&id, "two").await).await;
    assert_eq!((&answer["ok"], &answer["turn_index"]), (&json!(true), &json!(2)));
    assert_eq!(json(scene.get("/api/sessions").await).await["data"].as_array().unwrap().len(), 1);
}
