//! Commands that a person must approve.

use serde_json::json;

use crate::responses::{runs, says, told};
use crate::scene::{Scene, SceneSetup};

/// A command that leaves a mark each time it runs, and the path of the marks.
fn marking(scene: &Scene) -> (String, std::path::PathBuf) {
    let marks = scene.home.path().join("marks");
    (format!("echo mark >> {}", marks.display()), marks)
}

/// How often it ran.
fn runs_of(marks: &std::path::Path) -> usize {
    std::fs::read_to_string(marks).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_command_runs_once() {
    let scene = Scene::start().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command)).answers(says(["It is done."]));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    // The exact command, where it runs, and why.
    for words in [&*command, &*scene.home.workspace().display().to_string(), "May I do this?"] {
        assert!(asked.text.contains(words), "{words} in {}", asked.text);
    }
    assert_eq!(runs_of(&marks), 0, "not before it is approved");
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "It is done.");
    assert_eq!(runs_of(&marks), 1);
    // The same again is asked again.
    scene.model.answers(runs(&command)).answers(says(["Once more."]));
    let question = scene.says("again");
    let asked = scene.is_asked(2).await;
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "Once more.");
    assert_eq!(runs_of(&marks), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_asked_also_if_codex_has_a_reviewer_of_its_own() {
    let codex = crate::codex_home::CodexOptions {
        root: "approvals_reviewer = \"auto_review\"\n".to_owned(),
        ..Default::default()
    };
    let scene = Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command)).answers(says(["Then not."]));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    // Nor did codex ask a model.
    assert_eq!(scene.model.prompts().len(), 1, "{scene}");
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "Then not.");
    assert_eq!(runs_of(&marks), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_command_does_not_run_and_the_model_goes_on() {
    let scene = Scene::start().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command)).answers(says(["Then not."]));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "Then not.");
    assert_eq!(runs_of(&marks), 0);
    let last = told(&scene.model.prompts()[1]);
    assert!(last.last().unwrap().contains("rejected"), "{last:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_nobody_answers_is_cancelled_and_the_task_halts() {
    let scene = Scene::with(SceneSetup { answer_millis: Some(300), ..SceneSetup::default() }).await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command));
    let question = scene.says("leave a mark");
    scene.is_asked(1).await;
    let end = scene.ends(&question).await;
    assert!(end.contains("halted"), "{end}\n{scene}");
    assert_eq!((runs_of(&marks), scene.model.prompts().len()), (0, 1), "{scene}");
    // The conversation goes on.
    scene.model.answers(says(["Hello again."]));
    assert_eq!(scene.turn("hello?").await, "Hello again.");
    assert_eq!(runs_of(&marks), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_for_the_session_lasts_until_it_is_revoked() {
    let scene = Scene::start().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command)).answers(says(["First."]));
    let question = scene.says("leave a mark");
    let asked = scene.is_asked(1).await;
    scene.says(&format!("/approve {} session", asked.code));
    assert_eq!(scene.ends(&question).await, "First.");
    scene.model.answers(runs(&command)).answers(says(["Second."]));
    assert_eq!(scene.turn("again").await, "Second.");
    assert_eq!((runs_of(&marks), scene.asked().len()), (2, 1), "{scene}");

    let list = scene.says("/approvals");
    let list = scene.ends(&list).await;
    let id = list.split('`').nth(1).unwrap_or_else(|| panic!("an id in {list}"));
    let revoked = scene.says(&format!("/approvals revoke {id}"));
    scene.ends(&revoked).await;
    scene.model.answers(runs(&command)).answers(says(["Then not."]));
    let question = scene.says("and again");
    let asked = scene.is_asked(2).await;
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "Then not.");
    assert_eq!(runs_of(&marks), 2);
    // It is still the same conversation.
    let last = told(scene.model.prompts().last().unwrap()).join("\n");
    assert!(last.contains("leave a mark") && last.contains("First."), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_over_http_runs_the_command() {
    let scene = Scene::start().await;
    let (command, marks) = marking(&scene);
    scene.model.answers(runs(&command)).answers(says(["It is done."]));
    let record = scene.runs(&json!({ "input": "leave a mark" }), "once").await;
    assert_eq!(
        (&record["status"], &record["output"]),
        (&json!("completed"), &json!("It is done.")),
        "{scene}"
    );
    assert_eq!(runs_of(&marks), 1);
    scene.model.answers(runs(&command)).answers(says(["Then not."]));
    let record = scene.runs(&json!({ "input": "again" }), "deny").await;
    assert_eq!(record["output"], "Then not.", "{scene}");
    assert_eq!(runs_of(&marks), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_for_more_permissions_is_declined_visibly_unless_the_entry_says_ask() {
    let features = "request_permissions_tool = true".to_owned();
    let codex = crate::codex_home::CodexOptions { features, ..Default::default() };
    let wish = json!({ "reason": "to fetch it", "permissions": { "network": { "enabled": true } } });
    let wishes = || crate::responses::calls("request_permissions", &wish);

    let scene = Scene::with(SceneSetup { codex: codex.clone(), ..SceneSetup::default() }).await;
    scene.model.answers(wishes()).answers(says(["Without it, then."]));
    let end = scene.turn("fetch it").await;
    assert!(end.contains("Without it, then."), "{end}");
    assert!(scene.asked().is_empty(), "{scene}");
    let granted = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(!granted.contains("true"), "{granted}");
    scene.shows("permission").await;

    let entry = "    permissions: {escalation: ask}\n".to_owned();
    let scene = Scene::with(SceneSetup { codex, entry, ..SceneSetup::default() }).await;
    scene.model.answers(wishes()).answers(says(["Thank you."]));
    let question = scene.says("fetch it");
    let asked = scene.is_asked(1).await;
    assert!(asked.text.contains("to fetch it"), "{}", asked.text);
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "Thank you.");
    let granted = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(granted.contains("\"enabled\":true"), "{granted}");
}
