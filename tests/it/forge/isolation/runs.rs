//! Turns of this surface are runs, too: their approvals and their stop are the app's own.

use reqwest::{Method, Response};
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

/// A turn whose script asks for an approval, once it waits for that: its run, and the answer to come.
async fn that_asks(scene: &ForgeScene, key: &str, path: &str) -> (String, JoinHandle<Response>) {
    let open = async || {
        let open = scene.served.gateway.store().read(|tx| tx.open_app_turns()).await.unwrap();
        open.into_iter().map(|turn| turn.id.0).collect::<Vec<_>>()
    };
    let before = open().await;
    let request = scene.request(key, Method::POST, path).body(json!({ "prompt": "x" }).to_string());
    let answer = tokio::spawn(async move { request.send().await.unwrap() });
    scene.served.until(async || open().await.len() > before.len()).await;
    let run = open().await.into_iter().find(|run| !before.contains(run)).unwrap();
    scene.served.until(async || state(scene, key, &run).await == "waiting_for_approval").await;
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
    let (turn, answered_turn) = that_asks(&scene, &own, &format!("/sessions/{session}/turn")).await;
    scene.says().asks("Run a command", "ls").says(["done"]);
    let (single, answered_single) = that_asks(&scene, &own, "/run").await;
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
    for run in [&turn, &single] {
        let path = format!("/v1/runs/{run}/approval");
        let answer = scene.request(&own, Method::POST, &path).body(json!({ "choice": "once" }).to_string());
        assert_eq!(answer.send().await.unwrap().status(), 200);
    }
    assert_eq!(json(answered_turn.await.unwrap()).await["stop_reason"], "end_turn");
    assert_eq!(json(answered_single.await.unwrap()).await["result"], "done");
    assert_eq!(scene.agent.ran(), ["ls", "ls"]);
}

#[tokio::test]
async fn its_own_app_stops_what_runs_here() {
    let scene = ForgeScene::with_admin().await;
    let own = scene.makes_token(&json!({ "name": "asked", "permissions": "ask" })).await;
    let session = scene.begin_as(&own).await;
    for (path, status) in [(format!("/sessions/{session}/turn"), 200), ("/run".to_owned(), 502)] {
        scene.says().asks("Run a command", "ls").then_hangs();
        let (run, answered) = that_asks(&scene, &own, &path).await;
        let stop = scene.request(&own, Method::POST, &format!("/v1/runs/{run}/stop")).send().await.unwrap();
        assert_eq!(stop.status(), 200);
        let answer = answered.await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(json(answer).await["stop_reason"], "cancelled");
        assert!(scene.agent.ran().is_empty(), "what nobody allowed did not run");
    }
}
