//! The account, its device and its keys: what survives, what is refused, and what is repaired.

use std::fs;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use crate::it::upstream::Answer;
use crate::parts;
use crate::support::PATIENCE;
use crate::support::homeserver::{Homeserver, Limits};
use crate::support::person::{DIRECT, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_is_refused_and_the_first_goes_on() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;

    let second = scene.gateway.talaria.starts().ended().await;
    assert_ne!(second.code, 0);
    assert!(second.err.contains("error:"), "{}", second.err);
    scene.settles(&room).await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_device() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    scene.gateway.stops().await;
    scene.gateway.starts();
    scene.settles(&room).await;

    assert_eq!(devices(&scene), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_token_is_enough() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    let token = scene.homeserver.logs_in(&scene.bot).await;
    scene.gateway.talaria.sets("MATRIX_PASSWORD", None);
    scene.gateway.sets("MATRIX_ACCESS_TOKEN", &token);
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    scene.settles(&room).await;
    scene.gateway.stops().await;
    scene.gateway.starts();
    scene.settles(&room).await;

    assert_eq!(devices(&scene), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_ends_is_renewed_and_the_new_one_is_kept() {
    let homeserver = Arc::new(Homeserver::own(Limits::ShortTokens).await);
    let mut scene = Scene::prepared(homeserver, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    scene.settles(&room).await;
    let file = scene.gateway.talaria.home().join("matrix/matrix/session.json");
    let token = || {
        let session: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        session["access_token"].as_str().unwrap().to_owned()
    };

    let first = token();
    let renewed = async {
        while token() == first {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("a new token");
    scene.settles(&room).await;
    scene.gateway.stops().await;
    scene.gateway.starts();
    scene.settles(&room).await;
    assert_eq!(devices(&scene), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_accounts_in_one_process_have_a_device_each() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    let other = scene.homeserver.registers("bot").await;
    scene.gateway.configures(&format!(
        "platforms:
  matrix: {{}}
  other:
    kind: matrix
    homeserver: {}
    user_id: \"{}\"
    password: \"{}\"
    trust: any
    access: {{ people: [\"{}\"] }}
",
        scene.homeserver.url, other.id, other.password, scene.ann.id
    ));
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    let second = scene.ann.makes_room(DIRECT, &[&other.id]).await;
    scene.settles(&room).await;
    scene.upstream.answers(Answer::says(["I am the other one."]));
    scene.ann.says(&second, "who are you?").await;
    scene.ann.reads(&second, &other.id, "I am the other one.").await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_logs_in_and_out() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    let login = scene.gateway.talaria.does(["matrix", "login"]).await;
    assert!(login.code == 0 && login.out.contains(&scene.bot.id), "{}{}", login.out, login.err);
    assert_eq!(devices(&scene), 1);
    // The gateway continues with that device.
    scene.gateway.starts();
    let room = scene.direct().await;
    scene.settles(&room).await;
    assert_eq!(devices(&scene), 1);
    let busy = scene.gateway.talaria.does(["matrix", "logout", "--yes"]).await;
    assert!(busy.code != 0 && busy.err.contains("hint:"), "{}{}", busy.out, busy.err);
    scene.gateway.stops().await;

    let logout = scene.gateway.talaria.does(["matrix", "logout", "--yes"]).await;
    assert_eq!(logout.code, 0, "{}{}", logout.out, logout.err);
    assert_eq!(devices(&scene), 0);
    let folder = scene.gateway.talaria.home().join("matrix/matrix");
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let is_of_a_device =
        |name: &std::ffi::OsString| name.to_string_lossy().starts_with("device-") || name == "session.json";
    assert!(!left.iter().any(is_of_a_device) && left.iter().any(|name| name == "recovery.key"), "{left:?}");
    scene.ends();
}

/// Number of the bot's devices.
fn devices(scene: &Scene) -> usize {
    // Synapse keeps cross-signing keys in the same table, hidden.
    let devices = "SELECT count(*) FROM devices WHERE user_id = ?1 AND NOT hidden";
    scene.homeserver.stored().query_row(devices, [&scene.bot.id], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_logged_out_says_so_and_keeps_its_store() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;

    let token = scene.homeserver.logs_in(&scene.bot).await;
    scene.homeserver.asks(&token, Method::POST, "/v3/logout/all", json!({})).await;
    scene.gateway.process().logs("talaria matrix l").await;

    assert!(scene.gateway.talaria.home().join("matrix/matrix/session.json").exists());
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_recovery_key_a_lost_store_is_a_new_device_that_answers() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    let folder = scene.gateway.talaria.home().join("matrix/matrix");
    scene.gateway.process().logs("recovery.key").await;
    let key = fs::read_to_string(folder.join("recovery.key")).unwrap();
    scene.gateway.stops().await;

    fs::remove_dir_all(&folder).unwrap();
    scene.gateway.sets("MATRIX_RECOVERY_KEY", key.trim());
    scene.gateway.starts();
    scene.upstream.answers(Answer::says(["I am back."]));
    scene.ann.says(&room, "are you back?").await;
    scene.reads(&room, "I am back.").await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_yet_is_answered_when_its_key_comes() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Mautrix).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("TALARIA_LOG", "info,talaria_matrix=debug");
    scene.gateway.starts();
    let room = scene.direct().await;

    scene.ann.does("hold_keys", json!({})).await;
    scene.upstream.answers(Answer::says(["Now I can read it."]));
    let question = scene.ann.says(&room, "can you read this?").await;
    // In the same life, and after a restart.
    scene.gateway.process().logs("a message waits for its key").await;
    scene.gateway.stops().await;
    scene.gateway.starts();
    scene.ann.does("release_keys", json!({})).await;

    let answer = scene.reads(&room, "Now I can read it.").await;
    assert_eq!(answer.reply_to, Some(question));
    assert_eq!(scene.upstream.prompts().len(), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stays_unreadable_is_asked_for_again_in_the_room() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Mautrix).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    // The default is ten minutes.
    scene.gateway.configures("platforms: { matrix: { unreadable_after: 1s } }");
    scene.gateway.starts();
    let room = scene.direct().await;

    scene.ann.does("hold_keys", json!({})).await;
    let question = scene.ann.says(&room, "can you read this?").await;
    let told = |shown: &[Shown]| shown.iter().find(|message| message.sender == scene.bot.id).cloned();
    let told = scene.ann.sees(&room, "the notice", told).await;
    assert_eq!((told.kind.as_str(), &told.reply_to), ("m.notice", &Some(question)), "{told:?}");
    assert!(told.text().contains("again"), "{told:?}");

    // The message was given up: a key that comes after all changes nothing.
    scene.ann.does("release_keys", json!({})).await;
    scene.settles(&room).await;
    assert_eq!(scene.upstream.prompts().len(), 1);
    assert_eq!(scene.said(&room).len(), 2);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_signed_by_its_owner_is_answered_with_the_default_trust() {
    if !parts::has_js() {
        return;
    }
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Js).await;
    scene.gateway.starts();
    scene.ann.does("cross_sign", json!({})).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Yes, ", "I do."]));

    scene.ann.says(&room, "do you trust me?").await;
    let answer = scene.reads(&room, "Yes, I do.").await;
    assert!(answer.encrypted && answer.readable);
    scene.ends();
}
