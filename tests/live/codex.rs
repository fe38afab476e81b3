//! The scene that the product is for, with every part real but the model: somebody in an encrypted room asks; the gateway
//! relays to an agent server; codex there wants to run a command; the room shows it; they approve it from their client; the
//! command's step and the answer stream back.

use serde_json::json;

use crate::codex_parts::codex_home::{CodexHome, CodexOptions, KEY, KEY_VARIABLE};
use crate::codex_parts::responses;
use crate::it::binary::{Process, Talaria};
use crate::it::upstream::{Gate, Upstream};
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::shown::Shown;

/// The owner's key of the agent server.
const OWNER: &str = "a-key-of-the-owner-that-is-long-enough";

/// The agent server. Its log is shown if the test fails.
struct AgentServer(Process);

impl Drop for AgentServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "half of what there is to know about a failure")]
            {
                eprintln!("agent server:\n{}", self.0.so_far());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_codex_behind_a_relay_is_approved_from_an_encrypted_room() {
    let homeserver = Homeserver::shared().await;
    let (bot, ann, model) = tokio::join!(
        homeserver.registers("bot"),
        Person::new(&homeserver, "ann", With::Nio),
        Upstream::plain(),
    );
    let codex = CodexHome::new(&model.url(), &CodexOptions::default());
    let note = codex.path().join("note.txt");
    let command = format!("echo watered > {}", note.display());
    let rest = Gate::new();
    model.answers(responses::runs(&command)).answers(responses::says_behind(
        "I have watered",
        &rest,
        " the garden.",
    ));

    let home = Talaria::new()
        .var("HOME", &codex.path().display().to_string())
        .var("API_SERVER_PORT", "0")
        .var("API_SERVER_KEY", OWNER)
        .config(&format!(
            "agents:\n  coder:\n    kind: codex\n    command: {}\n    codex_home: {}\n    workspace: {}\n    \
             env: {{{KEY_VARIABLE}: {KEY}}}\n    access: {{allow_all: true}}\n",
            codex.program().display(),
            codex.codex_home().display(),
            codex.workspace().display(),
        ));
    let mut server = AgentServer(home.starts());
    let address = server.0.serves().await;
    let mut gateway = Gateway::new(&homeserver, &bot, &address, &[&ann.id]);
    gateway.sets("GATEWAY_PROXY_KEY", OWNER);
    gateway.sets("MATRIX_TRUST", "any");
    gateway.starts();
    let room = ann.makes_room(DIRECT, &[&bot.id]).await;

    ann.says(&room, "water the garden").await;
    let asks = |shown: &[Shown]| {
        let is_ask = |text: &str| text.contains(&command) && text.contains("`/approve ");
        shown.iter().find(|message| message.sender == bot.id && is_ask(message.text())).cloned()
    };
    let ask = ann.sees(&room, "the exact command with a code", asks).await;
    assert!(ask.encrypted && ask.readable);
    let steps = |shown: &[Shown]| {
        let step = shown.iter().find(|message| message.text().contains("exec_command: `"));
        step.filter(|message| message.sender == bot.id && message.encrypted).cloned()
    };
    let step = ann.sees(&room, "the step of the command", steps).await;
    assert!(!note.exists(), "nothing runs before it is approved");
    ann.replies(&room, &ask.id, "/approve").await;

    // The draft has the first words while the model still holds the rest back. Its last letter may come later: more could
    // follow that changes it.
    let drafted = |shown: &[Shown]| {
        let draft = shown.iter().find(|message| message.text().contains("I have water"));
        draft.filter(|message| message.encrypted).cloned()
    };
    let draft = ann.sees(&room, "the beginning of the answer", drafted).await;
    assert!(!draft.text().contains("the garden."), "{}", draft.text());
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "watered\n");
    rest.open();
    let answered = |shown: &[Shown]| {
        let is_answer = |message: &&Shown| message.text().contains("I have watered the garden.");
        shown.iter().find(is_answer).filter(|message| message.encrypted).cloned()
    };
    let answer = ann.sees(&room, "the answer", answered).await;
    assert_eq!(
        (&answer.id, &answer.id),
        (&step.id, &draft.id),
        "one message has the step, the draft and the answer"
    );

    let outputs = model.prompts().pop().unwrap().json();
    let is_output = |item: &&serde_json::Value| item["type"] == json!("function_call_output");
    assert!(outputs["input"].as_array().unwrap().iter().any(|item| is_output(&item)), "codex told the model");
    drop(server);
}
