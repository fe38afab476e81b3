//! The agent asks for permission in an encrypted room.

use std::time::Duration;

use talaria::agent::AskChoice;

use crate::support::asking::{ACTION, Asking};
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::shown::Shown;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// A room with an open ask of the agent.
struct Asked {
    gateway: Asking,
    ann: Person,
    bot: String,
    room: String,
    /// The message with the ask.
    ask: Shown,
}

async fn asked(ask_for: Duration) -> Asked {
    let homeserver = Homeserver::shared().await;
    let (bot, ann) = tokio::join!(homeserver.registers("bot"), Person::new(&homeserver, "ann", With::Nio));
    let gateway = Asking::starts(&homeserver, &bot, &ann.id, ask_for).await;
    let room = ann.makes_room(DIRECT, &[&bot.id]).await;
    ann.says(&room, "clean up").await;
    let look = |shown: &[Shown]| {
        shown.iter().find(|message| message.sender == bot.id && message.text().contains(ACTION)).cloned()
    };
    let ask = ann.sees(&room, "the question", look).await;
    assert!(ask.encrypted && ask.readable);
    assert_eq!(gateway.told(), []);
    Asked { gateway, ann, bot: bot.id, room, ask }
}

impl Asked {
    async fn ends_with(&self, text: &str) {
        self.ann.reads(&self.room, &self.bot, text).await;
    }

    fn was_allowed(&self) -> bool {
        match self.gateway.told()[..] {
            [ref choice] => !matches!(choice, AskChoice::Deny(_)),
            _ => panic!("one answer: {:?}", self.gateway.told()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_by_code_lets_the_agent_act() {
    let asked = asked(FIVE_MINUTES).await;
    let text = asked.ask.text();
    let code = text.split("/approve ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    asked.ann.says(&asked.room, &format!("/approve {code}")).await;
    asked.ends_with("Done.").await;
    assert!(asked.was_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_by_reply_lets_the_agent_act() {
    let asked = asked(FIVE_MINUTES).await;
    asked.ann.replies(&asked.room, &asked.ask.id, "/approve").await;
    asked.ends_with("Done.").await;
    assert!(asked.was_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cross_under_the_question_denies_it_and_a_tick_does_nothing() {
    let asked = asked(FIVE_MINUTES).await;
    asked.ann.reacts(&asked.room, &asked.ask.id, "✅").await;
    asked.ann.reacts(&asked.room, &asked.ask.id, "👍").await;
    asked.ann.reacts(&asked.room, &asked.ask.id, "❌").await;
    asked.ends_with("Then not.").await;
    assert!(!asked.was_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_it_is_denied_and_the_room_is_told() {
    let asked = asked(Duration::from_secs(3)).await;
    asked.ends_with("Then not.").await;
    assert!(!asked.was_allowed());
    let told = |shown: &[Shown]| {
        let told = shown.iter().filter(|message| message.sender == asked.bot);
        told.into_iter().any(|message| message.text().contains("nobody answered")).then_some(())
    };
    asked.ann.sees(&asked.room, "why", told).await;
}
