//! Somebody compares pictures with the operator, and the operator asks how the account is.

use serde_json::{Value, json};

use crate::it::binary::Ended;
use crate::it::upstream::Answer;
use crate::parts;
use crate::support::PATIENCE;
use crate::support::homeserver::Homeserver;
use crate::support::person::With;
use crate::support::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_and_the_operator_compare_pictures() {
    if !parts::has_js() {
        return;
    }
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Js).await;
    scene.gateway.starts();
    scene.ann.does("cross_sign", json!({})).await;
    let room = scene.direct().await;
    scene.settles(&room).await;

    let theirs = scene.ann.begins("verify", json!({ "user": scene.bot.id, "room": room }));
    let list = until(&scene, &["list"], |list| list["verifications"][0]["id"].is_string()).await;
    let one = &list["verifications"][0];
    assert_eq!(one["user"], *scene.ann.id);
    let id = one["id"].as_str().unwrap();
    let ours = until(&scene, &["accept", id], |one| one["stage"] == "compare").await;
    let theirs = scene.ann.has_done("verify", theirs).await;
    let pictures = |emoji: &Value| -> Vec<String> {
        let emoji = emoji.as_array().expect("pictures");
        emoji.iter().map(|one| one[0].as_str().unwrap().trim_end_matches('\u{fe0f}').to_owned()).collect()
    };
    assert_eq!(pictures(&ours["emoji"]).len(), 7);
    assert_eq!(pictures(&ours["emoji"]), pictures(&theirs["emoji"]));

    let confirmed = scene.ann.begins("confirm", json!({}));
    operator(&scene, &["confirm", id]).await;
    scene.ann.has_done("confirm", confirmed).await;
    until(&scene, &["list"], |list| {
        let all = list["verifications"].as_array().unwrap();
        all.iter().all(|one| one["id"] != id || one["stage"] == "done")
    })
    .await;

    // Still on speaking terms.
    scene.upstream.answers(Answer::says(["Of course."]));
    scene.ann.says(&room, "is it you?").await;
    scene.reads(&room, "Of course.").await;
    scene.ends();
}

/// Asks again until the operator is told what a test waits for.
async fn until(scene: &Scene, step: &[&str], happened: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = operator(scene, step).await;
            let answer = serde_json::from_str(&answer.out)
                .unwrap_or_else(|_| panic!("{step:?} {:?} {}", answer.out, answer.err));
            if happened(&answer) {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{step:?}"))
}

async fn operator(scene: &Scene, step: &[&str]) -> Ended {
    let command = ["matrix", "verify", "--json"].iter().chain(step).copied();
    scene.gateway.talaria.does(command).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_finds_nothing_wrong() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    scene.gateway.process().logs("recovery.key").await;

    let healthy = scene.gateway.talaria.does(["matrix", "doctor"]).await;
    assert_eq!(healthy.code, 0, "{}\n{}", healthy.out, healthy.err);
    assert!(!healthy.out.contains("BAD"), "{}", healthy.out);
    let status = scene.gateway.talaria.does(["matrix", "status"]).await;
    assert!(status.code == 0 && status.out.contains(&scene.bot.id), "{}\n{}", status.out, status.err);
    scene.ends();
}
