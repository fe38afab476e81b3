//! A real ACP agent answers from an encrypted room, with every part real but the model: it wants to run a command; the room
//! shows it; a person approves it from their client; the command's step and the answer appear. A command that they refuse
//! does not run.

use crate::acp_parts::provider;
use crate::acp_parts::real_agents::{RealAgent, entry};
use crate::it::upstream::Upstream;
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::shown::Shown;

/// The bot's question about a command, once it is in the room.
fn asked(shown: &[Shown], bot: &str, command: &str) -> Option<Shown> {
    let is_ask = |text: &str| text.contains(command) && text.contains("`/deny ");
    shown.iter().find(|message| message.sender == bot && is_ask(message.text())).cloned()
}

/// The bot's message with these words in any of its versions. Its question about a command is another one.
fn told(shown: &[Shown], bot: &str, words: &str) -> Option<Shown> {
    let is_told = |text: &String| text.contains(words) && !text.contains("`/deny ");
    let by_bot = |message: &&Shown| message.sender == bot && message.encrypted;
    shown.iter().filter(by_bot).find(|message| message.texts.iter().any(is_told)).cloned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_an_acp_agent_is_approved_from_an_encrypted_room_and_another_is_refused() {
    let homeserver = Homeserver::shared().await;
    let (bot, ann, model) = tokio::join!(
        homeserver.registers("bot"),
        Person::new(&homeserver, "ann", With::Nio),
        Upstream::plain(),
    );
    model.answers_by(provider::responder);
    // Not in the system's temporary folder: codex does not put its own links there.
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (watered, mown) = (home.path().join("watered.txt"), home.path().join("mown.txt"));
    let agent = entry(&RealAgent::CodexAcp.config(home.path(), &model.url()));
    let mut gateway = Gateway::new(&homeserver, &bot, "", &[&ann.id]);
    gateway.configures(&format!(
        "default_agent: coder\nagents:\n  coder: {agent}\nplatforms:\n  matrix: {{pause: 100ms}}\n"
    ));
    gateway.sets("MATRIX_TRUST", "any");
    gateway.starts();
    let room = ann.makes_room(DIRECT, &[&bot.id]).await;

    let command = format!("echo watered > {}", watered.display());
    ann.says(&room, &format!("water the garden [exec:{command}]")).await;
    let ask = ann.sees(&room, "the exact command", |shown| asked(shown, &bot.id, &command)).await;
    assert!(ask.encrypted && ask.readable);
    assert!(ask.text().contains("1. `Yes"), "the agent's own options: {}", ask.text());
    let step = ann.sees(&room, "the step", |shown| told(shown, &bot.id, "echo watered")).await;
    assert!(!watered.exists(), "nothing runs before it is approved");
    ann.replies(&room, &ask.id, "/answer 1").await;
    let answer = ann.sees(&room, "the answer", |shown| told(shown, &bot.id, "The tool has ended.")).await;
    assert_eq!(answer.id, step.id, "one message has the step and the answer");
    assert_eq!(std::fs::read_to_string(&watered).unwrap(), "watered\n");

    let command = format!("echo mown > {}", mown.display());
    ann.says(&room, &format!("mow the lawn [exec:{command}]")).await;
    let ask = ann.sees(&room, "the other command", |shown| asked(shown, &bot.id, &command)).await;
    ann.replies(&room, &ask.id, "/deny").await;
    // The conversation goes on, and the command was not run on the way.
    ann.says(&room, "and how are the roses?").await;
    ann.sees(&room, "the next answer", |shown| told(shown, &bot.id, "how are the roses?")).await;
    assert!(!mown.exists(), "a refused command does not run");
    assert_eq!(std::fs::read_to_string(&watered).unwrap(), "watered\n", "an approved one runs once");
}
