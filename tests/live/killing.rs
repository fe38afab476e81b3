//! The gateway is killed at a step of a turn, started again, and judged by what the room shows: nothing is lost,
//! nothing comes twice, nothing runs twice.
//!
//! Twelve kills; a hundred with `TALARIA_TESTS=full`.

use std::time::Duration;

use crate::it::agent_server::{AgentServer, Kind};
use crate::it::upstream::Answer;
use crate::support::full;
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// Questions in one room: eight in quick succession look like a program's, and the room would get a notice.
const QUESTIONS_IN_A_ROOM: usize = 6;

/// How often a kill is tried.
const TRIES: usize = 5;

/// A failpoint, and the number of the visit at which the gateway dies.
type Point = (&'static str, u32);

/// The SDK has the message and its keys, our inbox does not have it yet. The question waits when the gateway starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_sync_and_inbox_loses_and_doubles_nothing() {
    kills(&[("sync.before_inbox", 1), ("accept.received", 1), ("accept.committed", 1)], 4, 34).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_an_answer_streams_loses_and_doubles_nothing() {
    kills(&[("stream.text", 3), ("anchor.sent", 1), ("edit.sent", 1), ("stream.text", 12)], 4, 33).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_around_the_final_text_loses_and_doubles_nothing() {
    kills(&[("turn.ended", 1), ("turn.finished", 1), ("outbox.sent", 1), ("outbox.committed", 1)], 4, 33)
        .await;
}

/// Tests the checker itself: a gateway that trusts the SDK's position loses the events it was killed with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_replay_the_loss_is_seen() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;
    scene.gateway.stops().await;

    // The gateway that dies is a broken one already: a sound one, killed between a sync and its inbox, would begin
    // with a replay and die with the question in that, of which the SDK's position knows nothing.
    scene.gateway.sets("TALARIA_BROKEN", "replay");
    scene.gateway.dies_at("sync.before_inbox", 1);
    let question = scene.ann.says(&room, "do you remember me?").await;
    scene.gateway.starts();
    scene.gateway.ended().await;
    scene.gateway.lives_on();
    scene.gateway.starts();
    scene.upstream.answers(Answer::says(["Here."]));
    scene.ann.says(&room, "are you there?").await;
    scene.reads(&room, "Here.").await;

    assert!(scene.said(&room).iter().all(|message| message.reply_to.as_ref() != Some(&question)));
    scene.ends();
}

async fn kills(points: &[Point], few: usize, many: usize) {
    let homeserver = Homeserver::shared().await;
    let agent = AgentServer::listen(Kind::Idempotent, Duration::from_millis(60), answer).await;
    let (bot, ann) = tokio::join!(homeserver.registers("bot"), Person::new(&homeserver, "ann", With::Nio));
    let mut gateway = Gateway::new(&homeserver, &bot, &agent.url(), &[&ann.id]);
    gateway.sets("MATRIX_TRUST", "any");

    let kills = if full() { many } else { few };
    let mut asked = Vec::new();
    let (mut room, mut here) = (String::new(), QUESTIONS_IN_A_ROOM);
    for (number, kill) in (0..kills).flat_map(|kill| [kill; TRIES]).enumerate() {
        if asked.iter().any(|(_, _, _, _, done)| *done == kill) {
            continue;
        }
        if here == QUESTIONS_IN_A_ROOM {
            here = 0;
            gateway.starts();
            room = ann.makes_room(DIRECT, &[&bot.id]).await;
            ann.says(&room, &format!("warm-up {kill}")).await;
            ann.reads(&room, &bot.id, &full_text(&format!("warm-up {kill}"))).await;
            gateway.stops().await;
        }

        here += 1;
        let (point, time) = points[kill % points.len()];
        gateway.dies_at(point, time);
        let prompt = format!("question {number}");
        let question = ann.says(&room, &prompt).await;
        gateway.starts();
        let text = full_text(&prompt);
        let died = tokio::select! {
            () = gateway.process().dies() => true,
            // On a busy machine an answer may come without any edit to die after.
            _ = ann.reads(&room, &bot.id, &text) => false,
        };
        // The whole answer may also be read just before the process dies.
        let ended = if died { gateway.ended().await } else { gateway.stops().await };
        gateway.lives_on();
        if ended.code != 0 {
            gateway.starts();
            ann.reads(&room, &bot.id, &text).await;
            asked.push((room.clone(), question, prompt, point, kill));
            gateway.stops().await;
        }
    }
    assert_eq!(asked.len(), kills, "it should have died at every point");

    // Once a later question is answered, nothing earlier can still come.
    gateway.starts();
    ann.says(&room, "the end").await;
    ann.reads(&room, &bot.id, &full_text("the end")).await;
    for (room, question, prompt, point, _) in asked {
        let of = |message: &&Shown| message.sender == bot.id && message.reply_to.as_ref() == Some(&question);
        let shown = ann.shows(&room);
        let answers: Vec<_> = shown.iter().filter(of).collect();
        let texts: Vec<_> = answers.iter().map(|answer| answer.text()).collect();
        assert_eq!(texts, [full_text(&prompt)], "{point}");
        assert_eq!(agent.executions().get(&prompt), Some(&1), "{point}");
    }
}

fn answer(prompt: &str) -> Vec<String> {
    (0..16).map(|number| format!("{prompt}, piece {number}. ")).collect()
}

fn full_text(prompt: &str) -> String {
    answer(prompt).concat().trim_end().to_owned()
}
