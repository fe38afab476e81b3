//! Requests that come at the same time: each race has one winner, and nothing is left of the others.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use talaria::config::ForgeConfig;

use super::scene::{ForgeScene, error};
use crate::support::served::{KEY, json};

/// Requests at once.
const MANY: usize = 12;

/// Rounds of a race that either side may win.
const ROUNDS: usize = 20;

/// How often each status is among the answers.
fn count(statuses: impl IntoIterator<Item = u16>) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    statuses.into_iter().for_each(|status| *counts.entry(status).or_default() += 1);
    counts
}

#[tokio::test]
async fn of_turns_at_the_same_time_one_runs() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let script = scene.says().says(["a"]).then_hangs().says(["b"]);
    let path = format!("/sessions/{id}/turn");
    let turns = (0..MANY).map(|_| {
        let request = scene.request(&scene.app, Method::POST, &path);
        tokio::spawn(request.body(json!({ "prompt": "x" }).to_string()).send())
    });
    let running: Vec<_> = turns.collect();
    script.is_hanging().await;
    // All but the one that hangs are answered.
    scene.served.until(async || running.iter().filter(|turn| turn.is_finished()).count() == MANY - 1).await;
    script.goes_on();
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for turn in running {
        let answer = turn.await.unwrap().unwrap();
        match answer.status().as_u16() {
            200 => done.push(json(answer).await),
            _ => refused.push(error(answer, 409).await),
        }
    }
    assert_eq!((done.len(), refused.len()), (1, MANY - 1));
    assert_eq!(done[0]["turn_index"], 1);
    assert!(refused.iter().all(|error| error == "turn_in_progress"), "{refused:?}");
    assert_eq!(scene.agent.heard().len(), 1);
    assert_eq!(scene.audit(&id).await, ["create", "turn"]);
}

#[tokio::test]
async fn of_sessions_at_the_same_time_exactly_as_many_begin_as_there_may_be() {
    let most = 5;
    let scene = ForgeScene::with(ForgeConfig { max_live_sessions: most, ..ForgeConfig::default() }).await;
    for (key, begun) in [(scene.app.as_str(), 4), (KEY, 1)] {
        let body = json!({ "agent": "claude" }).to_string();
        let made = (0..MANY).map(|_| scene.request(key, Method::POST, "/sessions").body(body.clone()).send());
        let statuses = join_all(made).await.into_iter().map(|answer| answer.unwrap().status().as_u16());
        assert_eq!(count(statuses), BTreeMap::from([(200, begun), (503, MANY - begun)]));
    }
    let open = scene.served.gateway.store().read(|tx| tx.open_forge_sessions(None)).await.unwrap();
    assert_eq!(open, most as u64);
}

#[tokio::test]
async fn a_close_beside_a_turn_leaves_a_closed_session_and_nothing_that_runs() {
    let scene = ForgeScene::start().await;
    for _ in 0..ROUNDS {
        let id = scene.begin().await;
        let path = format!("/sessions/{id}");
        let (turn, closed) = tokio::join!(scene.turn(&id, "x"), scene.delete(&path));
        assert_eq!((closed.status().as_u16(), json(closed).await), (200, json!({ "ok": true })));
        let status = turn.status().as_u16();
        let ended: Value = json(turn).await;
        match status {
            200 => assert!(
                ["end_turn", "cancelled"].contains(&ended["stop_reason"].as_str().unwrap()),
                "{ended}"
            ),
            _ => assert_eq!((status, &ended["error"]), (410, &json!("session_closed"))),
        }
        scene.served.has_turns("forge", 0).await;
        assert_eq!(error(scene.turn(&id, "y").await, 410).await, "session_closed");
    }
}

#[tokio::test]
async fn a_sweep_beside_a_turn_closes_the_session_before_it_or_not_at_all() {
    let scene = ForgeScene::start().await;
    let mut spare = None;
    for _ in 0..ROUNDS {
        let id = scene.begin().await;
        let script = spare.take().unwrap_or_else(|| scene.says().says(["a"]).then_hangs());
        let path = format!("/sessions/{id}/turn");
        let request =
            scene.request(&scene.app, Method::POST, &path).body(json!({ "prompt": "x" }).to_string());
        let turn = tokio::spawn(request.send());
        let swept = scene.sweep_after(3_700).await["soft_closed"].as_u64().unwrap();
        let is_closed = swept == 1;
        if is_closed {
            assert_eq!(error(turn.await.unwrap().unwrap(), 410).await, "session_closed");
            // Nobody has taken it.
            spare = Some(script);
        } else {
            script.is_hanging().await;
            script.goes_on();
            assert_eq!(json(turn.await.unwrap().unwrap()).await["stop_reason"], "end_turn");
        }
        let shown = json(scene.get(&format!("/sessions/{id}")).await).await;
        assert_eq!(shown["closed_at"].is_null(), !is_closed);
        scene.delete(&format!("/sessions/{id}")).await;
    }
}
