//! Failures of the provider, in words for people: nothing of codex' own words reaches a room.

use serde_json::json;

use crate::codex_home::{KEY, KEY_VARIABLE};
use crate::responses::{has_no_room, is_cut_after, refuses, says, told};
use crate::scene::{CUT_SHORT, Scene, SceneSetup};

/// Parts of codex' own words, which belong into the log.
const FOREIGN: [&str; 9] = [
    "scripted error",
    "http://",
    "unexpected status",
    "Reconnecting",
    "Missing environment variable",
    "stream disconnected",
    "codexErrorInfo",
    "Start a new thread",
    KEY,
];

/// Checks that a final message says in our words why there is no whole answer.
#[track_caller]
fn assert_explains(scene: &Scene, end: &str) {
    assert!(end.contains(CUT_SHORT), "{end}\n{scene}");
    for words in FOREIGN {
        assert!(!end.contains(words), "{words} in {end}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_provider_are_told_and_the_next_turn_works() {
    let scene = Scene::start().await;
    for status in [400, 401, 429, 500] {
        // codex tries some of them again.
        scene
            .model
            .answers(refuses(status))
            .answers(refuses(status))
            .answers(refuses(status))
            .answers(refuses(status));
        let end = scene.turn(&format!("with {status}")).await;
        assert_explains(&scene, &end);
        scene.model.forgets_answers();
        scene.model.answers(says(["Better."]));
        assert_eq!(scene.turn("and now?").await, "Better.", "after {status}");
    }
    scene.assert_only_responses();
    scene.one_codex_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_over_http_is_an_error_there_too() {
    let scene = Scene::start().await;
    scene.model.answers(refuses(400));
    let record = scene.runs(&json!({ "input": "hi" }), "deny").await;
    assert_eq!(record["status"], "failed", "{record}");
    let words = record.to_string();
    for foreign in FOREIGN {
        assert!(!words.contains(foreign), "{foreign} in {words}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_key_is_told() {
    let scene = Scene::with(SceneSetup { without_key: true, ..SceneSetup::default() }).await;
    let end = scene.turn("hi").await;
    assert_explains(&scene, &end);
    assert!(scene.model.prompts().is_empty());
    let checked = scene.checks().await;
    assert!(checked.contains(KEY_VARIABLE), "{checked}");
    // The codex that runs tells its rules too.
    assert!(
        checked.contains("The last answer came from model scripted, with approvals on-request"),
        "{checked}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_answer_that_is_begun_again_is_shown_once() {
    let scene = Scene::start().await;
    scene.model.answers(is_cut_after("Half an ans")).answers(says(["The whole answer."]));
    assert_eq!(scene.turn("go").await, "The whole answer.");
    scene.model.answers(is_cut_after("The half that")).answers(is_cut_after("The half that there is"));
    let end = scene.turn("again").await;
    assert_explains(&scene, &end);
    assert_eq!(end.matches("The half that").count(), 1, "{end}");
    assert!(end.contains("The half that there is"), "{end}");
    scene.model.answers(says(["Better."]));
    assert_eq!(scene.turn("and now?").await, "Better.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_context_is_told_and_made_smaller() {
    let scene = Scene::start().await;
    scene.model.answers(says(["Hello."]));
    scene.turn("I am Ann").await;
    scene.model.answers(has_no_room());
    let question = scene.says("go on");
    // The summary, whoever asks for it first, and the answer after it.
    scene.model.answers(says(["Ann was here."])).answers(says(["I go on."]));
    let end = scene.ends(&question).await;
    if !end.contains("I go on.") {
        assert_explains(&scene, &end);
        assert_eq!(scene.turn("go on").await, "I go on.");
    }
    let last = told(scene.model.prompts().last().unwrap()).join("\n");
    assert!(last.contains("Ann was here."), "{last}");
}
