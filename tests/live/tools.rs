//! An agent with a terminal in an encrypted room: the room shows the command, a person approves it from their client, the
//! command runs, and the answer comes.

use crate::it::upstream::{Answer, Upstream};
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::shown::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_approved_from_an_encrypted_room() {
    let homeserver = Homeserver::shared().await;
    let (bot, ann, model) = tokio::join!(
        homeserver.registers("bot"),
        Person::new(&homeserver, "ann", With::Nio),
        Upstream::plain(),
    );
    let workspace = tempfile::tempdir().unwrap();
    let command = r#"{"command":"echo hello > note.txt; cat note.txt"}"#;
    model
        .answers(Answer::calls("I write a note.", &[("c1", "terminal", command)]))
        .answers(Answer::says(["The note says hello."]));
    let mut gateway = Gateway::new(&homeserver, &bot, "", &[&ann.id]);
    gateway.configures(&format!(
        "default_agent: helper
agents:
  helper:
    kind: model
    base_url: {}/v1
    model: small
    workspace: {}
    tools: [terminal]
    access: {{allow_all: true}}
platforms:
  matrix: {{pause: 100ms}}
",
        model.url(),
        workspace.path().display()
    ));
    gateway.sets("MATRIX_TRUST", "any");
    gateway.starts();
    let room = ann.makes_room(DIRECT, &[&bot.id]).await;

    ann.says(&room, "leave a note").await;
    let asks = |shown: &[Shown]| {
        let ask = shown.iter().find(|message| message.text().contains("echo hello > note.txt"));
        ask.filter(|message| message.sender == bot.id).cloned()
    };
    let ask = ann.sees(&room, "the command", asks).await;
    assert!(ask.encrypted && ask.readable);
    assert!(!workspace.path().join("note.txt").exists(), "nothing runs before it is approved");
    ann.replies(&room, &ask.id, "/approve").await;

    let answered = |shown: &[Shown]| {
        let is_answer = |message: &&Shown| message.text().contains("The note says hello.");
        shown.iter().find(is_answer).filter(|message| message.encrypted).map(|_| ())
    };
    ann.sees(&room, "the answer", answered).await;
    assert_eq!(std::fs::read_to_string(workspace.path().join("note.txt")).unwrap(), "hello\n");
    let last = model.prompts().pop().unwrap().json();
    let result = last["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(result["role"], "tool");
    assert!(result["content"].as_str().unwrap().contains("hello"), "{result}");
}
