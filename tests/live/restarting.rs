//! Messages that come while the gateway is down are answered when it is back: once, and in order.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::it::upstream::Answer;
use crate::support::homeserver::{Homeserver, Limits};
use crate::support::person::{Kind, SHARED, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// Direct chats, and questions in each: more than that in one queue are rightly refused with a notice.
const CHATS: usize = 7;
const QUESTIONS: usize = 15;
/// Other messages between two questions in the room of several people: together more than a sync brings.
const SMALL_TALK: usize = 7;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Events of a room that are read after a gap, at most, and those that the sync itself brings.
const BOUND: usize = 500 + 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_to_read_is_said_in_the_room() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    // Plaintext messages are sent quickly.
    scene.gateway.sets("MATRIX_E2EE", "optional");
    scene.gateway.starts();
    let room = scene.ann.makes_room(Kind { encrypted: false, direct: false }, &[&scene.bot.id]).await;
    let named = |text: &str| json!({ "msgtype": "m.text", "body": format!("{} {text}", scene.bot.id), "m.mentions": {} });
    scene.upstream.answers(Answer::says(["Hello."]));
    scene.ann.sends_plain(&room, "m.room.message", named("hello")).await;
    scene.reads(&room, "Hello.").await;
    scene.gateway.stops().await;

    scene.ann.sends_plain(&room, "m.room.message", named("too long ago")).await;
    for _ in 0..BOUND + 10 {
        scene.ann.sends_plain(&room, "m.room.message", json!({ "msgtype": "m.text", "body": "…" })).await;
    }
    scene.upstream.answers(Answer::says(["Here again."]));
    scene.ann.sends_plain(&room, "m.room.message", named("are you back?")).await;
    scene.gateway.starts();

    scene.reads(&room, "Here again.").await;
    let told = notices(&scene, &room).await;
    assert!(told.len() == 1 && told[0].starts_with("12 messages"), "{told:?}");
    assert_eq!(scene.upstream.prompts().len(), 2);
    scene.ends();
}

/// A homeserver derives an event's age from the time when it stored it, whatever a client claims. So the test changes
/// that time, while the homeserver is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_older_than_a_day_is_not_answered_but_said_in_the_room() {
    let homeserver = Arc::new(Homeserver::own(Limits::Wide).await);
    let mut scene = Scene::prepared(homeserver.clone(), With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    scene.settles(&room).await;
    scene.gateway.stops().await;

    let yesterday = scene.ann.says(&room, "what is for lunch?").await;
    let before = scene.ann.says(&room, "and for dinner?").await;
    let today = scene.ann.says(&room, "and for breakfast?").await;
    homeserver.dies().await;
    homeserver.ages(&yesterday, 25 * HOUR);
    homeserver.ages(&before, 24 * HOUR);
    homeserver.ages(&today, 23 * HOUR);
    homeserver.starts().await;
    scene.upstream.answers(Answer::says(["Porridge."]));
    scene.gateway.starts();

    let answer = scene.reads(&room, "Porridge.").await;
    assert_eq!(answer.reply_to, Some(today));
    let told = notices(&scene, &room).await;
    assert!(told.len() == 1 && told[0].starts_with("2 messages"), "{told:?}");
    // Once: the next process does not repeat the notice.
    scene.gateway.stops().await;
    scene.gateway.starts();
    scene.settles(&room).await;
    assert_eq!(notices(&scene, &room).await.len(), 1);
    assert_eq!(scene.upstream.prompts().len(), 3);
    scene.ends();
}

/// Waits until the bot has posted a notice in a room; returns its notices.
async fn notices(scene: &Scene, room: &str) -> Vec<String> {
    let told = |shown: &[Shown]| {
        let notices =
            shown.iter().filter(|message| message.sender == scene.bot.id && message.kind == "m.notice");
        let notices: Vec<_> = notices.map(|message| message.text().to_owned()).collect();
        (!notices.is_empty()).then_some(notices)
    };
    scene.ann.sees(room, "a notice", told).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_and_twenty_questions_while_it_was_down_are_answered_once_each_in_order() {
    let mut scene = Scene::with(With::Nio).await;
    let mut rooms = Vec::new();
    for _ in 0..CHATS {
        rooms.push(scene.direct().await);
    }
    let shared = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    // A bot that has just joined has read nothing yet.
    for room in &rooms {
        scene.settles(room).await;
    }
    scene.gateway.stops().await;

    for number in 0..QUESTIONS {
        for (index, room) in rooms.iter().enumerate() {
            scene.ann.says(room, &format!("question {number} in {index}")).await;
        }
        for _ in 0..SMALL_TALK {
            scene.ann.says(&shared, "what a day").await;
        }
        scene.ann.says(&shared, &format!("{} question {number} of all", scene.bot.id)).await;
    }
    rooms.push(shared);
    scene.gateway.starts();

    for room in &rooms {
        let asked: Vec<_> = scene
            .ann
            .shows(room)
            .into_iter()
            .filter(|message| message.text().contains("question ") && message.sender == scene.ann.id)
            .map(|message| message.id)
            .collect();
        assert_eq!(asked.len(), QUESTIONS);
        let answered = |shown: &[Shown]| {
            let answers =
                shown.iter().filter(|message| message.sender == scene.bot.id && message.text() == "ok");
            let to: Vec<_> = answers.filter_map(|message| message.reply_to.clone()).collect();
            (to.len() >= QUESTIONS).then_some(to)
        };
        assert_eq!(scene.ann.sees(room, "all answers", answered).await, asked);
    }
    // Once each, also a little later.
    for room in &rooms[..CHATS] {
        scene.settles(room).await;
        let answers = scene.said(room).into_iter().filter(|message| message.text() == "ok").count();
        assert_eq!(answers, QUESTIONS);
    }
    scene.ends();
}
