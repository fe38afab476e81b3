//! `talaria pairing` on the real binary; `scenes/pairing` shows what strangers see.

use rustix::process::Signal;
use serde_json::Value;

use super::{Scene, texts};

const OPEN: &str = "access: {people: ['@ann:test'], pairing: true}";

/// An unknown person writes, and gets a code.
async fn code(scene: &Scene, who: &str, room: &str) -> String {
    scene.network.says_as(who, room, true, "hello");
    scene.shows(|messages| !texts(messages, room).is_empty()).await;
    let shown = texts(&scene.network.messages(), room).join("\n");
    let line = shown.lines().find(|line| line.contains("pairing approve")).expect("a code");
    line.split_whitespace().last().unwrap().to_owned()
}

#[tokio::test]
async fn a_second_process_lets_a_stranger_in_and_out_again() {
    let scene = Scene::new(OPEN).await;
    let _process = scene.starts().await;
    let code = code(&scene, "@eve:test", "!eve").await;
    let list = scene.prints(["pairing", "list"]).await;
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2]), ("@eve:test", "test", "waits"), "{list}");
    assert!(!list.contains(&code) && !list.contains(&code.replace('-', "")), "{list}");

    let (first, second) = code.split_once('-').unwrap();
    let said = scene.prints(["pairing", "approve", &first.to_lowercase(), second]).await;
    assert_eq!(said, "@eve:test on test may talk now, in direct chats. They are told so.\n");
    scene
        .shows(|messages| texts(messages, "!eve").iter().any(|text| text == "You can talk to me now."))
        .await;
    scene.network.says_as("@eve:test", "!eve", true, "hello again");
    scene.shows(|messages| texts(messages, "!eve").iter().any(|text| text == "ok")).await;
    let list: Value = serde_json::from_str(&scene.prints(["pairing", "list", "--json"]).await).unwrap();
    assert_eq!(list["pairings"][0]["pending"], false);

    scene.asks_without_end("@eve:test", "!eve").await;
    let wrong = scene.is_refused(1, ["pairing", "revoke", "@eve:test", "--account", "other"]).await;
    wrong.said("neither waits nor was let in");
    let said = scene.prints(["pairing", "revoke", "@eve:test", "--account", "test"]).await;
    assert_eq!(said, "@eve:test on test may no longer talk.\nAnswers that were stopped: 1.\n");
    scene.shows(|messages| texts(messages, "!eve").iter().any(|text| text.ends_with("(stopped)"))).await;
    let asked = scene.upstream.prompts().len();
    scene.network.says_as("@eve:test", "!eve", true, "hello?");
    scene.network.says_as("@ann:test", "!ann", true, "hello");
    scene.shows(|messages| texts(messages, "!ann") == ["ok"]).await;
    assert_eq!(scene.upstream.prompts().len(), asked + 1, "only Ann is heard");
}

/// The code outlives the process that gave it, and the next process tells the stranger.
#[tokio::test]
async fn a_stranger_can_be_let_in_while_nothing_runs() {
    let scene = Scene::new(OPEN).await;
    let process = scene.starts().await;
    let code = code(&scene, "@eve:test", "!eve").await;
    process.signal(Signal::TERM);
    process.ended().await;

    let said = scene.prints(["pairing", "approve", &code]).await;
    assert_eq!(
        said,
        "@eve:test on test may talk now, in direct chats. They are told so when talaria runs.\n"
    );
    let _process = scene.starts().await;

    scene
        .shows(|messages| texts(messages, "!eve").iter().any(|text| text == "You can talk to me now."))
        .await;
    scene.network.says_as("@eve:test", "!eve", true, "hello again");
    scene.shows(|messages| texts(messages, "!eve").iter().any(|text| text == "ok")).await;
}

#[tokio::test]
async fn without_a_configuration_that_holds_nobody_is_let_in() {
    let scene = Scene::new(OPEN).await;
    let process = scene.starts().await;
    let code = code(&scene, "@eve:test", "!eve").await;
    process.signal(Signal::TERM);
    process.ended().await;

    scene.talaria.rewrites_config("no_such_key: 1\n");
    scene.is_refused(78, ["pairing", "approve", &code]).await.said("error: unknown key `no_such_key`");
    scene.writes("access: {people: ['@ann:test']}");
    scene
        .is_refused(1, ["pairing", "approve", &code])
        .await
        .said("`platforms.test` does not let strangers ask");
    scene.writes(OPEN);
    scene.prints(["pairing", "approve", &code]).await;
}

#[tokio::test]
async fn wrong_codes_are_counted_over_processes() {
    let scene = Scene::new(OPEN).await;
    let process = scene.starts().await;
    scene
        .is_refused(1, ["pairing", "approve", "what"])
        .await
        .said("that is not a code")
        .said("eight letters");
    for _ in 0..2 {
        scene.is_refused(1, ["pairing", "approve", "2222-2222"]).await.said("nobody who waits has this code");
    }
    process.signal(Signal::TERM);
    process.ended().await;
    for _ in 0..2 {
        scene.is_refused(1, ["pairing", "approve", "2222-2222"]).await.said("nobody who waits has this code");
    }
    scene.is_refused(1, ["pairing", "approve", "2222-2222"]).await.said("too many codes were wrong");
    assert!(scene.prints(["pairing", "list"]).await.contains("Too many codes were wrong"));
}

/// If a list names them too, the operator must not believe that they are out.
#[tokio::test]
async fn revoking_somebody_whom_a_list_names_says_so() {
    let scene = Scene::new(OPEN).await;
    let _process = scene.starts().await;
    let code = code(&scene, "@eve:test", "!eve").await;
    scene.prints(["pairing", "approve", &code]).await;
    scene.writes("access: {people: ['@ann:test', '@eve:test'], pairing: true}");
    scene.prints(["reload"]).await;
    let said = scene.prints(["pairing", "revoke", "@eve:test"]).await;
    assert!(said.contains("warning: `platforms.test.access` lets them talk all the same"), "{said}");
}
