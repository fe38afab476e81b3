//! The isolation matrix of this surface: every path and method × its own app, another app, no key, a revoked key, a key from
//! the wrong address. What is somebody else's answers byte for byte like what does not exist.
//!
//! The paths come from the table of routes itself: one that has no line in [`BODIES`] fails the matrix.

mod questions;
mod runs;

use reqwest::Method;
use serde_json::{Value, json};

use self::questions::{About, ask, questions};
use super::scene::{ADMIN, ForgeScene};
use crate::support::served::{KEY, json};

/// Questions for one scene: wrong keys that come too often from one address are not checked any more.
const AT_ONCE: usize = 15;

#[tokio::test]
async fn a_foreign_session_is_like_one_that_never_was_on_every_path_and_method() {
    let scene = ForgeScene::start().await;
    // One that is open, one with a running turn, one that is closed, one that was deleted.
    let deleted = scene.begin().await;
    scene.delete(&format!("/sessions/{deleted}")).await;
    scene.sweep_after(86_500).await;
    let (open, busy, closed) = (scene.begin().await, scene.begin().await, scene.begin().await);
    scene.delete(&format!("/sessions/{closed}")).await;
    let script = scene.says().when("busy").says(["half"]).then_hangs();
    let request = scene.request(&scene.app, Method::POST, &format!("/sessions/{busy}/turn"));
    let running = tokio::spawn(request.body(json!({ "prompt": "busy" }).to_string()).send());
    script.is_hanging().await;
    for question in questions(|about| about == About::Session) {
        for key in [scene.other.as_str(), KEY] {
            // Also in forms that could lead to another app's name.
            for before in ["", "forge%2F", "..%2Fforge%2F"] {
                let absent = format!("{before}fs_{}", "0".repeat(32));
                let absent = ask(&scene, Some(key), &question, &absent).await;
                assert!(
                    (400..500).contains(&absent.status) && absent.status != 403,
                    "{question:?}: {absent:?}"
                );
                for id in [&open, &busy, &closed, &deleted] {
                    let id = format!("{before}{id}");
                    let foreign = ask(&scene, Some(key), &question, &id).await;
                    assert_eq!(foreign, absent, "{question:?} with {id}");
                }
            }
        }
    }
    // Everything is as it was.
    script.goes_on();
    assert_eq!(json(running.await.unwrap().unwrap()).await["stop_reason"], "end_turn");
    assert_eq!(scene.agent.heard().len(), 1);
    assert_eq!(json(scene.turn(&open, "x").await).await["turn_index"], 1);
}

#[tokio::test]
async fn without_a_key_that_holds_nobody_learns_anything() {
    for questions in questions(|about| about != About::Nothing).chunks(AT_ONCE) {
        let scene = ForgeScene::with_admin().await;
        let (session, run) = (scene.begin().await, runs::of_a_turn(&scene, &scene.app).await);
        let turns = scene.agent.heard().len();
        for (number, question) in questions.iter().enumerate() {
            let id = if question.about == About::Run { &run } else { &session };
            // Keys of its own for each question, for the same reason.
            let revoked = scene.served.app(&format!("gone-{number}")).await;
            scene.served.revoke(&format!("gone-{number}")).await;
            let far = json!({ "name": format!("far-{number}"), "ip_cidrs": ["10.0.0.0/8"] });
            let far = scene.makes_token(&far).await;
            let nobody = ask(&scene, None, question, id).await;
            assert_eq!(ask(&scene, None, question, "absent").await, nobody, "{question:?}");
            let wrong = ask(&scene, Some(&format!("{number} is no key")), question, id).await;
            if question.about == About::Health {
                // Open to everybody; only a key that holds is told more.
                assert_eq!((nobody.status, &wrong), (200, &nobody), "{question:?}");
                assert!(!nobody.body.contains("open_sessions"), "{nobody:?}");
            } else {
                assert_eq!((nobody.status, wrong.status), (401, 401), "{question:?}");
            }
            for key in [revoked.as_str(), far.as_str()] {
                for id in [id, "absent"] {
                    assert_eq!(ask(&scene, Some(key), question, id).await, wrong, "{question:?} with {key}");
                }
            }
        }
        assert_eq!(scene.agent.heard().len(), turns, "nothing ran");
    }
}

#[tokio::test]
async fn ones_own_things_answer_and_a_list_names_nobody_elses() {
    let scene = ForgeScene::with_admin().await;
    for question in questions(|about| about != About::Run) {
        let id = scene.begin().await;
        let own = ask(&scene, Some(&scene.app), &question, &id).await;
        let expected = match question.about {
            About::Session | About::Oneself if question.is_wrong() => 400,
            About::Session | About::Oneself | About::Health => 200,
            // The admin token alone opens this.
            About::Admin => 401,
            About::Nothing => own.status.clamp(404, 405),
            About::Run => unreachable!(),
        };
        assert_eq!(own.status, expected, "{question:?}: {own:?}");
        assert_eq!(
            question.about == About::Health,
            own.body.contains("acpx_present"),
            "{question:?}: {own:?}"
        );
        for key in [scene.other.as_str(), KEY] {
            for path in ["/sessions", "/sessions?include_closed=1", "/api/sessions"] {
                let listed =
                    scene.request(key, Method::GET, path).send().await.unwrap().text().await.unwrap();
                assert!(!listed.contains(&id), "{path}: {listed}");
            }
        }
    }
}

#[tokio::test]
async fn another_app_gets_its_own_and_the_admin_token_gets_no_session() {
    let scene = ForgeScene::with_admin().await;
    let id = scene.begin().await;
    for question in questions(|about| matches!(about, About::Oneself | About::Health)) {
        let other = ask(&scene, Some(&scene.other), &question, &id).await;
        assert_eq!(other.status, if question.is_wrong() { 400 } else { 200 }, "{question:?}: {other:?}");
        assert!(!other.body.contains(&id), "{question:?}: {other:?}");
    }
    for question in questions(|about| matches!(about, About::Session | About::Run | About::Oneself)) {
        let refused = ask(&scene, Some(ADMIN), &question, &id).await;
        assert!([401, 429].contains(&refused.status), "{question:?}: {refused:?}");
    }
}

#[tokio::test]
async fn what_an_app_says_of_itself_changes_nothing() {
    let scene = ForgeScene::start().await;
    let id = scene.begin().await;
    let body: Value = json!({ "prompt": "x", "app": "forge", "app_name": "forge", "owner": true });
    let request = scene.request(&scene.other, Method::POST, &format!("/sessions/{id}/turn?app=forge"));
    let claims = request.header("x-app", "forge").header("x-hermes-session-id", &id).body(body.to_string());
    assert_eq!(claims.send().await.unwrap().status(), 404);
}
