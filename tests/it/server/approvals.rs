//! An agent's asks in a run, and how an app answers them.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AskChoice, DenyReason};

use crate::support::gateway::Setup;
use crate::support::scripted::ask;
use crate::support::served::{Served, json, settings};
use crate::support::stream::{Stream, kinds};

const CHAT: &str = "/v1/chat/completions";

fn asks(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "stream": true })
}

/// Asks in a session, and opens the stream.
async fn chat(served: &Served, session: &str) -> Stream {
    let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", session);
    Stream::of(request.body(asks("hi").to_string()).send().await.unwrap())
}

/// Answers an ask; returns status and body.
async fn answer(served: &Served, run: &str, body: Value) -> (u16, Value) {
    let answer = served.post(&format!("/v1/runs/{run}/approval"), &body).await;
    (answer.status().as_u16(), json(answer).await)
}

#[tokio::test]
async fn an_agent_asks_in_the_stream_and_acts_if_it_may() {
    let served = Served::start().await;
    served.agent().asks("delete the build", "rm -rf target").says(["done"]);
    let mut stream = chat(&served, "s").await;
    let asked = stream.until("approval.request").await.json();
    // For clients that do not know such events it is a chunk without content.
    assert_eq!((&asked["object"], &asked["choices"]), (&json!("chat.completion.chunk"), &json!([])));
    assert_eq!((&asked["title"], &asked["command"]), (&json!("delete the build"), &json!("rm -rf target")));
    assert_eq!(asked["approval"]["choices"], json!(["once", "session", "always", "deny"]));
    assert!(asked["expires_at"].as_i64().unwrap() > 0);
    let (run, id) = (asked["run_id"].as_str().unwrap(), &asked["approval_id"]);

    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(shown["status"], "waiting_for_approval");
    assert_eq!(shown["pending_approvals"][0]["approval_id"], *id);
    assert_eq!(shown["pending_approvals"][0]["detail"], "rm -rf target");

    let (status, told) = answer(&served, run, json!({ "choice": "once" })).await;
    assert_eq!((status, &told["choice"], &told["resolved"]), (200, &json!("once"), &json!(1)));
    let rest = stream.rest().await;
    let responded = rest.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("once"), &json!("approved")));
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -rf target"]);
    // An answer counts once.
    let (status, told) = answer(&served, run, json!({ "choice": "once" })).await;
    assert_eq!((status, &told["error"]["code"]), (409, &json!("approval_not_pending")));
    // A client that repeats its answer, because the response was lost, gets a success; but nobody can change the
    // answer.
    let (status, told) = answer(&served, run, json!({ "choice": "once", "approval_id": id })).await;
    assert_eq!((status, &told["approval_id"]), (200, id));
    for other in ["deny", "always"] {
        let (status, _) = answer(&served, run, json!({ "choice": other, "approval_id": id })).await;
        assert_eq!(status, 409, "{other}");
    }
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -rf target"]);
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!((&shown["status"], &shown["pending_approvals"]), (&json!("completed"), &json!([])));
    assert_eq!(shown["approvals"][0]["status"], "approved");
}

#[tokio::test]
async fn what_is_denied_or_unclear_is_not_done() {
    let served = Served::start().await;
    served.agent().asks("one", "first").asks_all([ask("two", "second"), ask("three", "third")]);
    let mut stream = chat(&served, "s").await;
    let asked = stream.until("approval.request").await.json();
    let run = asked["run_id"].as_str().unwrap();
    for wrong in ["", "yes", "sure", "ONCE AND FOR ALL"] {
        let (status, told) = answer(&served, run, json!({ "choice": wrong })).await;
        assert_eq!((status, &told["error"]["code"]), (400, &json!("invalid_approval_choice")), "{wrong}");
    }
    for (body, param) in [(json!({}), Value::Null), (json!({ "choice": true }), json!("choice"))] {
        let (status, told) = answer(&served, run, body).await;
        assert_eq!((status, &told["error"]["param"]), (400, &param));
    }
    let (status, _) = answer(&served, run, json!({ "choice": "once", "approval_id": "other" })).await;
    assert_eq!(status, 409);
    assert_eq!(answer(&served, run, json!({ "choice": "deny" })).await.0, 200);
    let denied = stream.until("approval.responded").await.json();
    assert_eq!((&denied["choice"], &denied["reason"]), (&json!("deny"), &json!("denied")));

    // With two open asks the answer must name one.
    let second = stream.until("approval.request").await.json();
    let third = stream.until("approval.request").await.json();
    let (status, told) = answer(&served, run, json!({ "choice": "once" })).await;
    assert_eq!((status, &told["error"]["code"]), (409, &json!("approval_unclear")));
    let third = if third["title"] == "three" { third } else { second.clone() };
    let body = json!({ "choice": "approve", "approval_id": third["approval_id"] });
    assert_eq!(answer(&served, run, body).await.0, 200);
    // Now only one ask is open.
    assert_eq!(answer(&served, run, json!({ "choice": "deny" })).await.0, 200);
    stream.rest().await;
    assert_eq!(served.gateway.agent_itself().ran(), ["third"]);
}

#[tokio::test]
async fn a_stop_denies_what_is_asked() {
    let served = Served::start().await;
    served.agent().asks("one", "first");
    let mut stream = chat(&served, "s").await;
    let run = stream.until("approval.request").await.json()["run_id"].as_str().unwrap().to_owned();
    served.post(&format!("/v1/runs/{run}/stop"), &json!({})).await;
    let rest = stream.rest().await;
    let responded = rest.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("deny"), &json!("stopped")));
    assert_eq!(answer(&served, &run, json!({ "choice": "once" })).await.0, 409);
    assert!(served.gateway.agent_itself().ran().is_empty());
}

#[tokio::test]
async fn what_cannot_be_shown_is_denied_and_said_so() {
    let served = Served::start().await;
    served.agent().asks("nothing", "  ");
    let events = chat(&served, "s").await.rest().await;
    let responded = events.iter().find(|event| event.kind() == "approval.responded").unwrap().json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("deny"), &json!("nothing to judge")));
}

#[tokio::test]
async fn what_was_allowed_for_longer_is_not_asked_again() {
    let served = Served::start().await;
    for _ in 0..5 {
        served.agent().asks("one", "first");
    }
    let approve = async |session: &str, choice: &str| {
        let mut stream = chat(&served, session).await;
        let run = stream.until("approval.request").await.json()["run_id"].as_str().unwrap().to_owned();
        assert_eq!(answer(&served, &run, json!({ "choice": choice })).await.0, 200);
        stream.rest().await;
    };
    let is_asked = async |session: &str| {
        kinds(&chat(&served, session).await.rest().await).contains(&"approval.request".to_owned())
    };
    approve("a", "session").await;
    assert!(!is_asked("a").await);
    approve("b", "always").await;
    assert!(!is_asked("c").await);
    assert!(!is_asked("a").await);
    assert_eq!(served.gateway.agent_itself().ran().len(), 5);
}

#[tokio::test]
async fn the_next_process_denies_what_was_asked_and_the_record_says_so() {
    let mut served = Served::with(Setup { resumable: false, ..Setup::default() }, settings()).await;
    served.agent().asks("one", "first");
    // With a key: the next process gives up a turn that nobody can come back to, and its reader may come too late.
    let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
    let mut stream = Stream::of(request.body(asks("hi").to_string()).send().await.unwrap());
    let run = stream.until("approval.request").await.json()["run_id"].as_str().unwrap().to_owned();
    served.gateway.kill().await;
    drop(stream);
    served.restart().await;
    assert_eq!(answer(&served, &run, json!({ "choice": "once" })).await.0, 409);
    let read = served.get(&format!("/v1/runs/{run}/events")).await;
    assert_eq!(read.status(), 200);
    let end = Stream::of(read).rest().await.pop().unwrap();
    assert!(["run.failed", "run.cancelled"].contains(&end.kind().as_str()), "{end:?}");
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(shown["approvals"][0]["status"], "denied");
    assert_eq!(shown["approvals"][0]["reason"], "restart");
    let answers = served.gateway.agent_itself().answers();
    assert!(answers.iter().all(|answer| answer.choice == AskChoice::Deny(DenyReason::Restart)));
    assert!(served.gateway.agent_itself().ran().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_in_time_is_denied() {
    let scene = super::paused::Scene::start().await;
    scene.gateway.agent().asks("one", "first").says(["then not"]);
    let before = tokio::time::Instant::now();
    let mut stream = Stream::of(scene.post(CHAT, &[], &asks("hi")).await.into_body().into_data_stream());
    let responded = stream.until("approval.responded").await.json();
    assert_eq!((&responded["choice"], &responded["reason"]), (&json!("deny"), &json!("timeout")));
    assert!(before.elapsed() >= Duration::from_secs(300));
    stream.rest().await;
    assert!(scene.gateway.agent_itself().ran().is_empty());
}
