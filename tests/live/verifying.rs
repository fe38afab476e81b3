//! A person compares emoji with the operator, and the operator checks the account.

use serde_json::json;

use crate::it::upstream::Answer;
use crate::parts;
use crate::support::PATIENCE;
use crate::support::comparing::{Comparing, operator, until};
use crate::support::homeserver::Homeserver;
use crate::support::person::{Person, With};
use crate::support::scene::Scene;

/// A person who is heard already, because her device is signed, and the operator see emoji.
async fn begins() -> Comparing {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Js).await;
    scene.gateway.starts();
    scene.ann.does("cross_sign", json!({})).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    Comparing::in_room(scene, room).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_and_the_operator_compare_pictures() {
    if parts::has_js() {
        let comparing = begins().await;
        comparing.matches().await;
        comparing.still_talk().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_that_differ_for_the_person_verify_nobody() {
    if !parts::has_js() {
        return;
    }
    let comparing = begins().await;
    comparing.scene.ann.does("mismatch", json!({})).await;

    // An operator who confirms learns that the verification is over; a moment later the SDK has forgotten it.
    let over = async {
        loop {
            let said = operator(&comparing.scene, &["confirm", &comparing.id]).await;
            if said.out.contains("cancelled") || said.err.contains("there is no verification") {
                return;
            }
            assert!(!said.out.contains("done"), "{}{}", said.out, said.err);
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("the end of it");
    assert!(!comparing.is_sure().await);
    comparing.still_talk().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_that_differ_for_the_operator_verify_nobody() {
    if !parts::has_js() {
        return;
    }
    let comparing = begins().await;
    let said = operator(&comparing.scene, &["mismatch", &comparing.id]).await;
    assert!(said.out.contains("cancelled"), "{}{}", said.out, said.err);

    assert_eq!(comparing.scene.ann.does("is_broken_off", json!({})).await["cancelled"], true);
    assert!(!comparing.is_sure().await);
    comparing.still_talk().await;
}

/// A person whom the operator has verified and who suddenly has other keys may be another person.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verified_person_with_a_new_identity_is_not_obeyed() {
    if !parts::has_js() {
        return;
    }
    let comparing = begins().await;
    comparing.matches().await;
    let Comparing { mut scene, room, .. } = comparing;
    scene.upstream.answers(Answer::says(["Of course."]));
    scene.ann.says(&room, "is it you?").await;
    scene.reads(&room, "Of course.").await;
    let before = scene.upstream.prompts().len();

    scene.ann.does("cross_sign", json!({})).await;
    scene.ann.says(&room, "and do you still know me?").await;
    scene.gateway.process().logs("the keys are not this person's").await;

    assert_eq!(scene.upstream.prompts().len(), before);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_device_of_the_account_waits_for_the_operator_like_everybody() {
    if !parts::has_js() {
        return;
    }
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    // Before the account has an identity there is nothing to verify.
    scene.gateway.process().logs("recovery.key").await;
    let other = Person::logs_in(&scene.homeserver, &scene.bot, With::Js).await;

    other.does("verify_own", json!({})).await;
    let list = until(&scene, &["list"], |list| list["verifications"][0]["id"].is_string()).await;
    assert_eq!(list["verifications"][0]["own"], true, "{list}");
    scene.settles(&room).await;
    let list = until(&scene, &["list"], |_| true).await;
    assert_eq!(list["verifications"][0]["stage"], "asked", "{list}");
    assert_eq!(other.does("own_phase", json!({})).await["phase"], 2);

    let id = list["verifications"][0]["id"].as_str().unwrap();
    operator(&scene, &["cancel", id]).await;
    scene.ends();
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
