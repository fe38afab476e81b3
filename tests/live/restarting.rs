//! What is said while the gateway is down is answered when it is back: once, and in order.

use crate::support::person::{SHARED, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// Direct chats, and questions in each: more than that in one line is refused with a notice, as it should be.
const CHATS: usize = 7;
const QUESTIONS: usize = 15;
/// What else is said between two questions in the room of several people: together more than a sync brings.
const SMALL_TALK: usize = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_and_twenty_questions_while_it_was_down_are_answered_once_each_in_order() {
    let mut scene = Scene::with(With::Nio).await;
    let mut rooms = Vec::new();
    for _ in 0..CHATS {
        rooms.push(scene.direct().await);
    }
    let shared = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    // Whoever has just joined has read nothing yet.
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
