//! MCP servers of codex' own configuration, their forms, and questions with options.

use serde_json::json;

use crate::codex_home::CodexOptions;
use crate::mcp_server::{SERVER, tables};
use crate::responses::{asks, calls_mcp, says, told};
use crate::scene::{Scene, SceneSetup};

async fn with_server() -> Scene {
    let codex = CodexOptions { tables: tables(), ..CodexOptions::default() };
    Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_of_an_mcp_server_is_approved_or_denied() {
    let scene = with_server().await;
    let echoes = || calls_mcp(SERVER, "echo", &json!({ "text": "from the shelf" }));
    scene.model.answers(echoes()).answers(says(["It answered."]));
    let question = scene.says("ask the shelf");
    let asked = scene.is_asked(1).await;
    for words in [SERVER, "echo", "from the shelf"] {
        assert!(asked.text.contains(words), "{words} in {}", asked.text);
    }
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "It answered.");
    let last = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(last.contains("from the shelf"), "{last}");

    scene.model.answers(echoes()).answers(says(["Then not."]));
    let question = scene.says("ask it again");
    let asked = scene.is_asked(2).await;
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "Then not.");
    let last = told(scene.model.prompts().last().unwrap()).pop().unwrap();
    assert!(last.contains("user rejected MCP tool call"), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_a_server_never_waits_for_ever() {
    let scene = with_server().await;
    scene.model.answers(calls_mcp(SERVER, "form", &json!({}))).answers(says(["Filled in or not."]));
    let question = scene.says("fill in the form");
    let asked = scene.is_asked(1).await;
    scene.approves(&asked);
    // A form is asked for, or declined visibly.
    let form = async {
        let asked = scene.is_asked(2).await;
        assert!(asked.text.contains("Which name shall I write?"), "{}", asked.text);
        scene.says(&format!("/answer {} Ann", asked.code));
    };
    tokio::select! {
        () = form => {}
        end = scene.ends(&question) => {
            assert!(end.contains("Filled in or not."), "{end}");
            scene.shows(SERVER).await;
        }
    }
    let end = scene.ends(&question).await;
    assert!(end.contains("Filled in or not."), "{end}");
    let last = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(last.contains("Ann") || last.contains("decline"), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_with_options_is_answered_by_one_of_them() {
    let features = "default_mode_request_user_input = true".to_owned();
    let codex = CodexOptions { features, ..CodexOptions::default() };
    let scene = Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await;
    scene.model.answers(asks("Tea or coffee?", &["Tea", "Coffee"])).answers(says(["Coffee it is."]));
    let question = scene.says("make me something");
    let asked = scene.is_asked(1).await;
    for words in ["Tea or coffee?", "1. `Tea`", "2. `Coffee`"] {
        assert!(asked.text.contains(words), "{words} in {}", asked.text);
    }
    scene.says(&format!("/answer {} 2", asked.code));
    assert_eq!(scene.ends(&question).await, "Coffee it is.");
    let last = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(last.contains(r#""q1":{"answers":["Coffee"]}"#), "{last}");

    scene.model.answers(asks("Milk?", &["Yes", "No"])).answers(says(["I decide."]));
    let question = scene.says("go on");
    let asked = scene.is_asked(2).await;
    scene.denies(&asked);
    assert_eq!(scene.ends(&question).await, "I decide.");
    let last = told(scene.model.prompts().last().unwrap()).pop().unwrap();
    assert!(!last.contains("Yes") && !last.contains("No\""), "{last}");
}
