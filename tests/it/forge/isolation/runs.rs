//! Turns of this surface are runs, too: their approvals and their stop are the app's own.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::questions::{About, ask, questions};
use crate::forge::scene::ForgeScene;
use crate::support::served::{KEY, json};

/// The id of a run that a turn of a session was.
pub async fn of_a_turn(scene: &ForgeScene, key: &str) -> String {
    let path = format!("/sessions/{}/turn", scene.begin_as(key).await);
    let request = scene.request(key, Method::POST, &path).body(json!({ "prompt": "x" }).to_string());
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned()
}

/// A turn of a session whose script asks for an approval, once it waits for that: its run, and its whole stream to come.
async fn that_asks(scene: &ForgeScene, key: &str, session: &str) -> (String, JoinHandle<String>) {
    let path = format!("/sessions/{session}/turn");
    let request = scene.request(key, Method::POST, &path).header("accept", "text/event-stream");
    let (run, answer) = that_is(scene, key, request, "waiting_for_approval").await;
    (run, tokio::spawn(async move { answer.await.unwrap().text().await.unwrap() }))
}

/// A single request whose script hangs: its run, and the answer to come.
async fn that_hangs(scene: &ForgeScene, key: &str) -> (String, JoinHandle<Response>) {
    that_is(scene, key, scene.request(key, Method::POST, "/run"), "running").await
}

/// A turn once its run has this status.
async fn that_is(
    scene: &ForgeScene,
    key: &str,
    request: RequestBuilder,
    status: &str,
) -> (String, JoinHandle<Response>) {
    let open = async || {
        let open = scene.served.gateway.store().read(|tx| tx.open_app_turns()).await.unwrap();
        open.into_iter().map(|turn| turn.id.0).collect::<Vec<_>>()
    };
    let before = open().await;
    let request = request.body(json!({ "prompt": "x" }).to_string());
    let answer = tokio::spawn(async move { request.send().await.unwrap() });
    scene.served.until(async || open().await.len() > before.len()).await;
    let run = open().await.into_iter().find(|run| !before.contains(run)).unwrap();
    scene.served.until(async || state(scene, key, &run).await == status).await;
    (run, answer)
}

async fn state(scene: &ForgeScene, key: &str, run: &str) -> Value {
    let shown = scene.request(key, Method::GET, &format!("/v1/runs/{run}")).send().await.unwrap();
    json(shown).await["status"].clone()
}

#[tokio::test]
async fn nobody_else_sees_answers_or_stops_what_runs_here() {
    let scene = ForgeScene::with_admin().await;
    let own = scene.makes_token(&json!({ "name": "asked", "permissions": "ask" })).await;
    let ended = of_a_turn(&scene, &own).await;
    let session = scene.begin_as(&own).await;
    scene.says().asks("Run a command", "ls").says(["done"]);
    let (turn, answered_turn) = that_asks(&scene, &own, &session).await;
    let script = scene.says().says(["do"]).then_hangs().says(["ne"]);
    let (single, answered_single) = that_hangs(&scene, &own).await;
    for question in questions(|about| about == About::Run) {
        for key in [scene.other.as_str(), KEY] {
            for before in ["", "asked%2F", "..%2Fasked%2F"] {
                let absent =
                    ask(&scene, Some(key), &question, &format!("{before}run_{}", "0".repeat(32))).await;
                assert_eq!(absent.status, 404, "{question:?}: {absent:?}");
                for run in [&ended, &turn, &single] {
                    let foreign = ask(&scene, Some(key), &question, &format!("{before}{run}")).await;
                    assert_eq!(foreign, absent, "{question:?} with {run}");
                }
            }
        }
    }
    // Both still wait, and go on when their own app says so.
    assert!(scene.agent.ran().is_empty());
    let path = format!("/v1/runs/{turn}/approval");
    let answer = scene.request(&own, Method::POST, &path).body(json!({ "choice": "once" }).to_string());
    assert_eq!(answer.send().await.unwrap().status(), 200);
    script.goes_on();
    let streamed = answered_turn.await.unwrap();
    assert!(streamed.contains(r#""stop_reason":"end_turn""#), "{streamed}");
    assert_eq!(json(answered_single.await.unwrap()).await["result"], "done");
    assert_eq!(scene.agent.ran(), ["ls"]);
}

#[tokio::test]
async fn its_own_app_stops_what_runs_here() {
    let scene = ForgeScene::with_admin().await;
    let own = scene.makes_token(&json!({ "name": "asked", "permissions": "ask" })).await;
    let session = scene.begin_as(&own).await;
    let stop = async |run: &str| {
        let stop = scene.request(&own, Method::POST, &format!("/v1/runs/{run}/stop"));
        assert_eq!(stop.send().await.unwrap().status(), 200);
    };
    scene.says().asks("Run a command", "ls").then_hangs();
    let (run, streamed) = that_asks(&scene, &own, &session).await;
    stop(&run).await;
    let streamed = streamed.await.unwrap();
    assert!(streamed.contains(r#""stop_reason":"cancelled""#), "{streamed}");
    assert!(scene.agent.ran().is_empty(), "what nobody allowed did not run");
    scene.says().says(["half"]).then_hangs();
    let (run, answered) = that_hangs(&scene, &own).await;
    stop(&run).await;
    let answer = answered.await.unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(json(answer).await["stop_reason"], "cancelled");
}
