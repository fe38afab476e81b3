//! A model that is switched to the real codex, and the tools and servers that it has there by our migration.

use std::fs;

use serde_json::{Value, json};

use crate::it::upstream::Answer;
use crate::mcp_server::{ARGS, SERVER, SERVES};
use crate::processes;
use crate::responses::{calls_mcp, runs, says, told};
use crate::scene::{Scene, SceneSetup};

/// A server whose tool `echo` needs no approval, and that cannot be migrated, so that our tools server offers it.
const KEPT: &str = "vault";

async fn switchable(servers: Value) -> Scene {
    Scene::with(SceneSetup { is_switchable: true, servers, ..SceneSetup::default() }).await
}

/// Our configuration of the scripted server, with these further variables.
fn server(further: &[(&str, &str)]) -> Value {
    let mut env = json!({ SERVES: "1" });
    further.iter().for_each(|(name, value)| env[name] = json!(value));
    let program = std::env::current_exe().unwrap();
    json!({ "command": program, "args": ARGS, "env": env, "permissions": { "echo": "allow" } })
}

fn kept() -> Value {
    server(&[("API_KEY", "hunter2-is-my-key")])
}

/// The last result of a tool that codex has told its model.
fn last_result(scene: &Scene) -> String {
    told(scene.model.requests_to("/responses").last().unwrap()).pop().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_handed_to_codex_and_back_within_one_conversation() {
    let scene = switchable(Value::Null).await;
    scene.model.answers(Answer::says(["Hello, Ann."]));
    assert_eq!(scene.turn("my name is Ann").await, "Hello, Ann.");
    assert_eq!(processes::with_codex_home(&scene.home.codex_home()), [0; 0], "codex is not needed yet");

    let on = scene.operates(&["codex", "on"]).await;
    assert!(on.starts_with("Codex runs the turns of coder from its next message on.\n"), "{on}");
    scene.model.answers(runs("echo from-codex")).answers(says(["It is printed."]));
    let question = scene.says("print something");
    let asked = scene.is_asked(1).await;
    scene.approves(&asked);
    assert_eq!(scene.ends(&question).await, "It is printed.");
    let prompts = scene.model.requests_to("/responses");
    let first = told(&prompts[0]);
    let said = |words: &str| first.iter().filter(|line| line.contains(words)).count();
    let known = (said("my name is Ann"), said("Hello, Ann."), said("print something"));
    assert_eq!((known, prompts.len()), ((1, 1, 1), 2), "{first:#?}");

    let off = scene.operates(&["codex", "off"]).await;
    assert!(
        off.starts_with("The agent coder runs its turns itself again from its next message on."),
        "{off}"
    );
    scene.model.answers(Answer::says(["You are Ann, and I printed it."]));
    assert_eq!(scene.turn("who am I?").await, "You are Ann, and I printed it.");
    let prompts = scene.model.requests_to("/chat/completions");
    let last = prompts.last().unwrap().messages();
    let all: String = last.iter().map(|(role, content)| format!("{role}: {content}\n")).collect();
    for words in ["my name is Ann", "print something", "echo from-codex", "It is printed.", "who am I?"] {
        assert!(all.contains(words), "{words}: {all}");
    }
    assert_eq!((prompts.len(), scene.model.requests_to("/responses").len()), (2, 2), "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_and_tools_of_codex_count_and_the_model_itself_reviews() {
    let entry = "    tools: [memory, skills]\nreview: {memory: 2, skills: 2}\n".to_owned();
    let scene = Scene::with(SceneSetup { is_switchable: true, entry, ..SceneSetup::default() }).await;
    scene.operates(&["codex", "on"]).await;
    scene.model.answers(runs("echo one")).answers(says(["First."]));
    let question = scene.says("my name is Ann");
    scene.approves(&scene.is_asked(1).await);
    assert_eq!(scene.ends(&question).await, "First.");
    assert_eq!(scene.model.requests_to("/chat/completions").len(), 0, "below both thresholds");
    scene
        .model
        .answers(runs("echo two"))
        .answers(says(["Second."]))
        .answers(Answer::says(["Nothing is worth it."]));
    let question = scene.says("and again");
    scene.approves(&scene.is_asked(2).await);
    assert_eq!(scene.ends(&question).await, "Second.");
    scene.model.has_requests("/chat/completions", 1).await;
    let reviews = scene.model.requests_to("/chat/completions");
    let review = reviews[0].json();
    for words in ["my name is Ann", "First.", "and again", "Second."] {
        assert!(review["messages"].to_string().contains(words), "{words}: {review}");
    }
    let tools = review["tools"].to_string();
    assert!(tools.contains("\"memory\"") && tools.contains("\"skills\""), "both were due: {tools}");
    assert_eq!(scene.model.requests_to("/responses").len(), 4, "never by codex\n{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_tools_server_is_called_without_asking_unless_its_entry_was_changed() {
    let scene = switchable(json!({ KEPT: kept() })).await;
    scene.has_skill("tea", "---\nname: tea\ndescription: How to make tea\n---\nBoil water.\n");
    scene.operates(&["codex", "on"]).await;
    scene.model.answers(calls_mcp("talaria", "skills_list", &json!({}))).answers(says(["Tea."]));
    assert_eq!(scene.turn("which skills?").await, "Tea.");
    assert!(last_result(&scene).contains("- tea: How to make tea"), "{}", last_result(&scene));
    // A tool that does not say that it only reads: codex asks, and we accept.
    let calls = || calls_mcp("talaria", "mcp_vault_echo", &json!({ "text": "from the vault" }));
    scene.model.answers(calls()).answers(says(["Opened."]));
    assert_eq!(scene.turn("open it").await, "Opened.");
    assert!(last_result(&scene).contains("from the vault"), "{}", last_result(&scene));
    assert!(scene.asked().is_empty(), "{scene}");

    // Somebody has changed our entry.
    let file = scene.home.codex_home().join("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let ours = "[mcp_servers.talaria]\n";
    fs::write(&file, text.replacen(ours, &format!("{ours}startup_timeout_sec = 20\n"), 1)).unwrap();
    scene.model.answers(calls()).answers(says(["Not opened."]));
    let question = scene.says_in("other", "open it");
    let asked = scene.is_asked(1).await;
    assert!(asked.text.contains("mcp_vault_echo"), "{}", asked.text);
    scene.network.says("other", &format!("/deny {}", asked.code));
    assert_eq!(scene.ends(&question).await, "Not opened.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_migration_reaches_an_open_conversation() {
    let mut scene = switchable(json!({ KEPT: kept() })).await;
    scene.operates(&["codex", "on"]).await;
    scene.model.answers(says(["Hello."]));
    assert_eq!(scene.turn("hello").await, "Hello.");
    let process = processes::with_codex_home(&scene.home.codex_home());
    assert_eq!(process.len(), 1, "{scene}");

    scene.has_servers(json!({ KEPT: kept(), SERVER: server(&[]) })).await;
    let on = scene.operates(&["codex", "on"]).await;
    assert!(on.contains("mcp_servers.shelf"), "{on}");
    for (name, tool) in [(SERVER, "echo"), ("talaria", "mcp_vault_echo")] {
        scene
            .model
            .answers(calls_mcp(name, tool, &json!({ "text": "from there" })))
            .answers(says(["Got it."]));
        assert_eq!(scene.turn(tool).await, "Got it.");
        assert!(last_result(&scene).contains("from there"), "{tool}: {}", last_result(&scene));
    }
    assert!(scene.asked().is_empty(), "{scene}");
    assert_eq!(processes::with_codex_home(&scene.home.codex_home()), process, "it is the same process");
}
