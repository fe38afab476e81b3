//! Work within codex' own sandbox, which needs namespaces: nobody is asked.

use serde_json::json;

use crate::codex_home::CodexOptions;
use crate::patches::found;
use crate::responses::{adds_file, calls, says, told};
use crate::scene::{Scene, SceneSetup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_within_the_sandbox_is_a_step_and_asks_nobody() {
    let scene = Scene::start().await;
    let gate = scene.home.path().join("gate");
    let command = format!("until test -e {}; do sleep 0.05; done; echo from the sandbox", gate.display());
    scene.model.answers(calls("exec_command", &json!({ "cmd": command }))).answers(says(["It said so."]));
    let question = scene.says("go");
    scene.answers_with(&question, "until test -e").await;
    std::fs::write(gate, "").unwrap();
    assert_eq!(scene.ends(&question).await, "It said so.");
    assert!(scene.asked().is_empty(), "{scene}");
    let last = told(&scene.model.prompts()[1]);
    assert!(last.last().unwrap().contains("from the sandbox"), "{last:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_within_a_writable_workspace_asks_nobody() {
    let root = "sandbox_mode = \"workspace-write\"".to_owned();
    let codex = CodexOptions { root, ..CodexOptions::default() };
    let scene = Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await;
    scene.model.answers(adds_file("notes.txt", "a line of the patch")).answers(says(["Written."]));
    assert_eq!(scene.turn("write it down").await, "Written.");
    assert!(scene.asked().is_empty(), "{scene}");
    assert!(found(&scene.home.workspace(), "notes.txt").is_some());
}
