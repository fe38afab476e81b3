//! A real hermes-agent behind the gateway, and a person in an encrypted room: hermes wants to run a command that needs
//! approval; the room is asked; they grant it once and deny it once. Every part is real but the model.

use crate::hermes_process::{HermesProcess, KEY};
use crate::scripted_model::ScriptedModel;
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::shown::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_hermes_is_granted_and_denied_from_an_encrypted_room() {
    let homeserver = Homeserver::shared().await;
    let (bot, ann, model) = tokio::join!(
        homeserver.registers("bot"),
        Person::new(&homeserver, "ann", With::Nio),
        ScriptedModel::listen(),
    );
    let mut hermes = HermesProcess::with_api_server(&model);
    hermes.starts().is_healthy().await;
    let mut gateway = Gateway::new(&homeserver, &bot, &hermes.url(), &[&ann.id]);
    gateway.configures("gateway: {upstream: runs}\n");
    gateway.sets("GATEWAY_PROXY_KEY", KEY);
    gateway.sets("MATRIX_TRUST", "any");
    gateway.starts();
    let room = ann.makes_room(DIRECT, &[&bot.id]).await;

    for (word, is_granted) in [("/approve", true), ("/deny", false)] {
        let folder = tempfile::tempdir().unwrap().keep();
        let command = format!("rm -rf {}", folder.display());
        ann.says(&room, &format!("remove {}", folder.display())).await;
        let asks = |shown: &[Shown]| {
            let is_ask = |text: &str| text.contains(&command) && text.contains("`/approve ");
            shown.iter().find(|message| message.sender == bot.id && is_ask(message.text())).cloned()
        };
        let ask = ann.sees(&room, "the exact command with a code", asks).await;
        assert!(ask.encrypted && ask.readable);
        assert!(folder.exists(), "nothing was decided");

        ann.replies(&room, &ask.id, word).await;
        let end = format!("remove {}\": part 1", folder.display());
        let answers = |shown: &[Shown]| {
            let is_answer = |text: &str| text.contains(&end) && text.contains("part 7,");
            shown.iter().find(|message| message.sender == bot.id && is_answer(message.text())).cloned()
        };
        let answer = ann.sees(&room, "the answer", answers).await;
        assert!(answer.encrypted && answer.text().contains("Let me look."), "{}", answer.text());
        assert_eq!(folder.exists(), !is_granted, "{word}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
