//! A homeserver that cannot return one event, while it answers everything else, does not end the reading.

use crate::it::upstream::Answer;
use crate::support::front::{Front, Stumble};
use crate::support::full;
use crate::support::homeserver::Homeserver;
use crate::support::person::{SHARED, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_shown_again_is_asked_for_anew_and_stops_nobody() {
    stumbles(Stumble::Error).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_waited_for_in_vain_is_asked_for_anew_and_stops_nobody() {
    // The gateway waits for it, for most of a minute.
    if !full() {
        return;
    }
    stumbles(Stumble::Silence).await;
}

/// Only the event as it was sent shows whether a message was heard before. The gateway sees it so in its own poll; what
/// came while it was down has to be fetched. If the homeserver never returns it, that stays unknown: the message is not
/// obeyed, its author is told, and everybody else is heard.
async fn stumbles(how: Stumble) {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    let front = Front::of(&scene.homeserver).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_HOMESERVER", &front.url);
    scene.gateway.starts();
    let (broken, whole) = (scene.direct().await, scene.direct().await);
    scene.settles(&broken).await;

    scene.gateway.stops().await;
    front.stumbles_over(&[name_of(&broken), "/event/"], how);
    let question = scene.ann.says(&broken, "open the door").await;
    scene.gateway.starts();
    let told =
        |shown: &[Shown]| shown.iter().find(|message| message.reply_to.as_ref() == Some(&question)).cloned();
    let told = scene.ann.sees(&broken, "that it was not heard", told).await;
    assert!(told.kind == "m.notice" && told.text().contains("again"), "{told:?}");
    scene.settles(&whole).await;
    assert_eq!(scene.upstream.prompts().len(), 2, "each room once, and the door not at all");

    front.recovers();
    scene.upstream.answers(Answer::says(["Opened."]));
    scene.ann.says(&broken, "open the door").await;
    scene.reads(&broken, "Opened.").await;
    assert_eq!(scene.upstream.prompts().len(), 3);
    scene.ends();
}

/// The part of a room id that occurs in request paths.
fn name_of(room: &str) -> &str {
    room.trim_start_matches('!').split(':').next().unwrap()
}

/// The message before an edit can be read, but its author wants the edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_cannot_be_shown_again_is_asked_for_anew() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    let front = Front::of(&scene.homeserver).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_HOMESERVER", &front.url);
    scene.gateway.starts();
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says(["Opened."]));
    let question = scene.ann.says(&room, "open the front door").await;
    scene.reads(&room, "Opened.").await;

    scene.gateway.stops().await;
    front.stumbles_over(&[name_of(&room), "/event/"], Stumble::Error);
    scene.ann.edits(&room, &question, "open the back door").await;
    scene.gateway.starts();
    let told = |shown: &[Shown]| shown.iter().find(|message| message.kind == "m.notice").cloned();
    let told = scene.ann.sees(&room, "that the edit was not heard", told).await;
    assert!(told.sender == scene.bot.id && told.text().contains("again"), "{told:?}");
    assert_eq!(scene.upstream.prompts().len(), 1);
    scene.ends();
}

/// Only the earlier event shows whether a reply or a message in a thread is meant for us, once we have forgotten our
/// own messages. If the homeserver never returns it, that stays unknown: the message is not obeyed, and its author is
/// told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_something_that_cannot_be_shown_is_asked_for_anew() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    let front = Front::of(&scene.homeserver).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_HOMESERVER", &front.url);
    scene.gateway.starts();
    let talk = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    let threads = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    let hello = format!("{} hello", scene.bot.id);
    scene.upstream.answers(Answer::says(["Here."]));
    scene.ann.says(&talk, &hello).await;
    let answer = scene.reads(&talk, "Here.").await.id;
    let root = scene.ann.says(&threads, "about the door").await;
    scene.upstream.answers(Answer::says(["And here."]));
    scene.ann.says_in_thread(&threads, &root, &hello).await;
    scene.reads(&threads, "And here.").await;
    // The gateway has read its own messages back, and forgets them.
    let direct = scene.direct().await;
    scene.settles(&direct).await;
    scene.gateway.stops().await;
    scene.gateway.starts();

    for (room, event, in_thread) in [(&talk, &answer, false), (&threads, &root, true)] {
        front.stumbles_over(&["/event/", event.trim_start_matches('$')], Stumble::Error);
        let question = if in_thread {
            scene.ann.says_in_thread(room, event, "open it").await
        } else {
            scene.ann.replies(room, event, "open it").await
        };
        let told = |shown: &[Shown]| {
            shown.iter().find(|message| message.reply_to.as_ref() == Some(&question)).cloned()
        };
        let told = scene.ann.sees(room, "that nobody knows whether it was meant", told).await;
        assert!(told.kind == "m.notice" && told.text().contains("again"), "{told:?}");
    }
    assert_eq!(scene.upstream.prompts().len(), 3);
    scene.ends();
}
