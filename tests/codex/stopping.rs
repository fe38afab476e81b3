//! Turns that a person stops.

use serde_json::json;

use crate::responses::{calls, runs, says, says_half, told};
use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_while_the_answer_streams_keeps_the_text() {
    let scene = Scene::start().await;
    scene.model.answers(says_half("Let me think"));
    let question = scene.says("plan my week");
    scene.answers_with(&question, "Let me think").await;
    scene.says("/stop");
    let end = scene.ends(&question).await;
    assert!(end.contains("Let me think") && end.contains("stopped"), "{end}");
    scene.model.answers(says(["Here I am."]));
    assert_eq!(scene.turn("and now?").await, "Here I am.");
    let last = told(&scene.model.prompts()[1]).join("\n");
    assert!(last.contains("plan my week"), "the thread is the same: {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_while_an_approval_waits_runs_nothing() {
    let scene = Scene::start().await;
    let made = scene.home.path().join("made");
    scene.model.answers(runs(&format!("touch {}", made.display())));
    let question = scene.says("make it");
    let asked = scene.is_asked(1).await;
    scene.says("/stop");
    let end = scene.ends(&question).await;
    assert!(end.contains("stopped"), "{end}");
    // An approval that comes too late changes nothing.
    scene.approves(&asked);
    scene.model.answers(says(["Here I am."]));
    assert_eq!(scene.turn("and now?").await, "Here I am.");
    assert!(!made.exists());
    assert_eq!(scene.model.prompts().len(), 2, "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_a_command_that_runs() {
    let scene = Scene::start().await;
    let begun = scene.home.path().join("begun");
    scene.model.answers(runs(&format!("touch {}; sleep 600", begun.display())));
    let question = scene.says("wait");
    let asked = scene.is_asked(1).await;
    let known = scene.processes();
    scene.approves(&asked);
    scene.exists(&begun).await;
    scene.says("/stop");
    scene.ends(&question).await;
    scene.only_these_are_left(&known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_a_command_that_the_model_no_longer_waits_for() {
    let scene = Scene::start().await;
    let begun = scene.home.path().join("begun");
    let command = json!({
        "cmd": format!("touch {}; sleep 600", begun.display()), "yield_time_ms": 250,
        "sandbox_permissions": "require_escalated", "justification": "May I do this?",
    });
    scene.model.answers(calls("exec_command", &command)).answers(says_half("It runs"));
    let question = scene.says("serve it");
    let asked = scene.is_asked(1).await;
    let known = scene.processes();
    scene.approves(&asked);
    scene.exists(&begun).await;
    scene.answers_with(&question, "It runs").await;
    scene.says("/stop");
    scene.ends(&question).await;
    scene.only_these_are_left(&known).await;
    scene.one_codex_is_left().await;
}
