//! codex dies, and we die.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::it::upstream::Gate;
use crate::responses::{runs, says, says_behind, says_half, told};
use crate::scene::{CUT_SHORT, Scene};

/// Words below an answer that ended with us.
const INTERRUPTED: &str = "(interrupted";

/// A command that leaves a mark each time it runs, and the path of the marks.
fn marking(scene: &Scene) -> (String, PathBuf) {
    let marks = scene.home.path().join("marks");
    (format!("echo mark >> {}", marks.display()), marks)
}

async fn remembers(scene: &Scene) {
    scene.model.answers(says(["You are Ann."]));
    assert_eq!(scene.turn("who am I?").await, "You are Ann.");
    let last = told(scene.model.prompts().last().unwrap()).join("\n");
    assert!(last.contains("my name is Ann") && last.contains("Hello, Ann."), "{last}");
    scene.one_codex_is_left().await;
    scene.assert_only_responses();
}

async fn introduced() -> Scene {
    let scene = Scene::start().await;
    scene.model.answers(says(["Hello, Ann."]));
    assert_eq!(scene.turn("my name is Ann").await, "Hello, Ann.");
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codex_that_was_killed_between_turns_is_not_missed() {
    let mut scene = introduced().await;
    scene.codex_is_killed();
    scene.logs("codex ended by itself").await;
    remembers(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codex_that_is_killed_while_it_answers_leaves_the_text_there_is() {
    let scene = introduced().await;
    scene.model.answers(says_half("So far so"));
    let question = scene.says("tell me more");
    scene.answers_with(&question, "So far so").await;
    scene.codex_is_killed();
    let end = scene.ends(&question).await;
    assert!(end.contains("So far so") && end.contains(CUT_SHORT), "{end}\n{scene}");
    remembers(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codex_that_is_killed_while_an_approval_waits_runs_nothing() {
    let scene = introduced().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    scene.codex_is_killed();
    let end = scene.ends(&question).await;
    assert!(end.contains(CUT_SHORT), "{end}\n{scene}");
    scene.approves(&asked);
    remembers(&scene).await;
    assert!(!marks.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_are_killed_between_turns_and_remember() {
    let mut scene = introduced().await;
    scene.gateway_ends_by(Signal::KILL).await;
    scene.nothing_is_left().await;
    scene.gateway_starts().await;
    remembers(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_are_killed_while_codex_answers_and_nothing_is_asked_twice() {
    let mut scene = introduced().await;
    scene.model.answers(says_half("So far so"));
    let question = scene.says("tell me more");
    scene.answers_with(&question, "So far so").await;
    scene.gateway_ends_by(Signal::KILL).await;
    scene.nothing_is_left().await;
    let prompts = scene.model.prompts().len();
    scene.gateway_starts().await;
    let end = scene.ends(&question).await;
    assert!(end.contains("So far so") && end.contains(INTERRUPTED), "{end}\n{scene}");
    assert_eq!(scene.model.prompts().len(), prompts, "{scene}");
    remembers(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_are_killed_while_an_approval_waits_and_it_is_denied() {
    let mut scene = introduced().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    scene.gateway_ends_by(Signal::KILL).await;
    scene.nothing_is_left().await;
    scene.approves(&asked);
    scene.gateway_starts().await;
    let end = scene.ends(&question).await;
    assert!(end.contains(INTERRUPTED), "{end}\n{scene}");
    remembers(&scene).await;
    assert!(!marks.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_whose_file_a_crash_has_damaged_is_replaced_and_said() {
    for content in ["", "\0\0\0\0\n", "{\"half\": "] {
        let mut scene = introduced().await;
        scene.gateway_ends_by(Signal::KILL).await;
        scene.nothing_is_left().await;
        std::fs::write(scene.home.only_rollout(), content).unwrap();
        scene.gateway_starts().await;
        scene.model.answers(says(["You are Ann."]));
        let end = scene.turn("who am I?").await;
        assert!(end.contains("You are Ann."), "{content:?}: {end}");
        scene.shows("Codex no longer had this conversation").await;
        let last = told(scene.model.prompts().last().unwrap()).join("\n");
        assert!(last.contains("my name is Ann") && last.contains("Hello, Ann."), "{last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_end_in_order_while_codex_answers() {
    let mut scene = introduced().await;
    let gate = Gate::new();
    scene.model.answers(says_behind("So far so", &gate, " good."));
    let question = scene.says("tell me more");
    scene.answers_with(&question, "So far so").await;
    scene.gateway_ends_by(Signal::TERM).await;
    scene.nothing_is_left().await;
    scene.gateway_starts().await;
    let end = scene.ends(&question).await;
    assert!(end.contains("So far so"), "{end}\n{scene}");
    remembers(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_between_a_new_thread_and_its_turn_runs_nothing_and_loses_nothing() {
    let mut scene = Scene::start().await;
    let question = scene.gateway_dies_at("codex.thread_stored", "my name is Ann").await;
    scene.answers_with(&question, INTERRUPTED).await;
    assert!(scene.model.prompts().is_empty(), "nothing ran\n{scene}");
    scene.model.answers(says(["Hello, Ann."]));
    assert_eq!(scene.turn("my name is Ann, as I said").await, "Hello, Ann.");
    remembers(&scene).await;
}
