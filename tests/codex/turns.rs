//! Turns without asks.

use serde_json::json;

use crate::codex_home::CodexOptions;
use crate::it::upstream::Gate;
use crate::responses::{calls, offered, says, says_behind, thinks_and_says, told};
use crate::scene::{Scene, SceneSetup, completion, text_of};

/// The smallest picture.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_turns_in_a_room_are_one_conversation() {
    let mut scene = Scene::start().await;
    scene.model.answers(says(["Hello, ", "Ann."])).answers(says(["You are Ann."]));
    assert_eq!(scene.turn("my name is Ann").await, "Hello, Ann.");
    assert_eq!(scene.turn("who am I?").await, "You are Ann.");
    let prompts = scene.model.prompts();
    assert_eq!(prompts.len(), 2, "{scene}");
    let last = told(&prompts[1]);
    let said = |words: &str| last.iter().filter(|line| line.contains(words)).count();
    assert_eq!((said("my name is Ann"), said("Hello, Ann."), said("who am I?")), (1, 1, 1), "{last:#?}");
    scene.one_codex_is_left().await;
    scene.assert_only_responses();
    scene.gateway_ends_by(rustix::process::Signal::TERM).await;
    scene.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_gets_no_goals_although_codex_has_them() {
    let codex = CodexOptions { goals: true, ..CodexOptions::default() };
    let scene = Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await;
    scene.model.answers(calls("create_goal", &json!({ "objective": "count" }))).answers(says(["I cannot."]));
    assert_eq!(scene.turn("count to ten").await, "I cannot.");
    let prompts = scene.model.prompts();
    assert!(!offered(&prompts[0]).contains(&"create_goal".to_owned()), "{:?}", offered(&prompts[0]));
    scene.model.answers(says(["Hello."]));
    assert_eq!(scene.turn("hello").await, "Hello.");
    assert_eq!(scene.model.prompts().len(), 3, "no turn came by itself\n{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_grows_while_the_model_speaks() {
    let scene = Scene::start().await;
    let gate = Gate::new();
    scene.model.answers(says_behind("First this", &gate, ", then that."));
    let question = scene.says("go");
    scene.answers_with(&question, "First this").await;
    gate.open();
    assert_eq!(scene.ends(&question).await, "First this, then that.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thought_is_no_part_of_the_answer() {
    let scene = Scene::start().await;
    scene.model.answers(thinks_and_says("**Weighing** the words", "Four."));
    let record = scene.runs(&json!({ "input": "2 + 2?" }), "deny").await;
    assert_eq!((&record["status"], &record["output"]), (&json!("completed"), &json!("Four.")), "{scene}");
    scene.model.answers(thinks_and_says("**Weighing** the words", "Five."));
    assert_eq!(scene.turn("2 + 3?").await, "Five.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_rooms_are_served_at_once_by_one_process() {
    let scene = Scene::start().await;
    let gate = Gate::new();
    for _ in 0..4 {
        scene.model.answers(says_behind("half", &gate, " and half"));
    }
    let rooms = ["north", "east", "south", "west"];
    let questions = rooms.map(|room| scene.says_in(room, &format!("I am in the {room}")));
    scene.model.has_prompts(4).await;
    scene.one_codex_is_left().await;
    gate.open();
    for question in &questions {
        assert_eq!(scene.ends(question).await, "half and half");
    }
    for room in rooms {
        scene.model.answers(says(["again"]));
        let question = scene.says_in(room, "where am I?");
        assert_eq!(scene.ends(&question).await, "again");
        let told = told(scene.model.prompts().last().unwrap()).join("\n");
        for other in rooms {
            assert_eq!(told.contains(&format!("I am in the {other}")), other == room, "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_reaches_the_model() {
    let scene = Scene::start().await;
    scene.model.answers(says(["A dot."]));
    let picture = json!({ "type": "image_url", "image_url": { "url": PICTURE } });
    let content = json!([{ "type": "text", "text": "what is this?" }, picture]);
    let (status, answer) = scene.posts("/v1/chat/completions", &completion(content)).await;
    assert_eq!((status, text_of(&answer)), (200, "A dot."), "{answer}\n{scene}");
    let told = told(&scene.model.prompt());
    assert!(told.last().unwrap().contains("what is this?"), "{told:#?}");
    assert!(told.last().unwrap().contains(PICTURE), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_codex_takes_is_there_in_the_next_conversation() {
    let scene = Scene::start().await;
    let note = json!({ "action": "add", "text": "Ann drinks tea" });
    scene.model.answers(calls("memory", &note)).answers(says(["Noted."]));
    assert_eq!(scene.turn("I like tea").await, "Noted.");
    let result = told(&scene.model.prompts()[1]).pop().unwrap();
    assert!(result.contains("1. Ann drinks tea"), "{result}");
    scene.turn("/new").await;
    scene.model.answers(says(["Tea."]));
    assert_eq!(scene.turn("what shall I drink?").await, "Tea.");
    let prompt = scene.model.prompts().pop().unwrap().json()["input"].to_string();
    assert!(prompt.contains("Ann drinks tea") && !prompt.contains("I like tea"), "{prompt}");
    assert!(scene.asked().is_empty(), "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_names_its_thread_and_its_turn() {
    let scene = Scene::start().await;
    scene.model.answers(says(["Hello."]));
    let record = scene.runs(&json!({ "input": "hi", "session_id": "s" }), "deny").await;
    assert_eq!((&record["status"], &record["output"]), (&json!("completed"), &json!("Hello.")), "{scene}");
    assert!(record["codex_thread_id"].is_string() && record["codex_turn_id"].is_string(), "{record}");
    assert_eq!((&record["completed"], &record["partial"]), (&json!(true), &json!(false)), "{record}");
    scene.model.answers(says(["Again."]));
    let next = scene.runs(&json!({ "input": "and?", "session_id": "s" }), "deny").await;
    assert_eq!(next["codex_thread_id"], record["codex_thread_id"], "{next}");
    assert_ne!(next["codex_turn_id"], record["codex_turn_id"], "{next}");
    scene.assert_only_responses();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_has_agents_beside_it_whatever_the_configuration_says() {
    for tables in ["", "[agents]\nenabled = true\n", "[features.multi_agent_v2]\nenabled = true\n"] {
        let codex = CodexOptions { tables: tables.to_owned(), agents: true, ..CodexOptions::default() };
        let mut scene = Scene::with(SceneSetup { codex, ..SceneSetup::default() }).await;
        scene.model.answers(says(["Hello."])).answers(says(["Hello again."]));
        assert_eq!(scene.turn("hello").await, "Hello.");
        scene.gateway_ends_by(rustix::process::Signal::TERM).await;
        scene.gateway_starts().await;
        assert_eq!(scene.turn("hello?").await, "Hello again.");
        for prompt in scene.model.prompts() {
            let tools = prompt.json()["tools"].to_string();
            for word in ["exec_command", "spawn_agent", "multi_agent"] {
                assert_eq!(tools.contains(word), word == "exec_command", "{tables}: {word} in {tools}");
            }
        }
    }
}
