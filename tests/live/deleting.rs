//! A deleted answer is gone with everything it ever said: the homeserver keeps each edit as an event of its own.

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::support::PATIENCE;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Kind, With};
use crate::support::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_deleted_answer_can_be_read_in_an_encrypted_room() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = deletes_an_answer(&scene, DIRECT).await;
    is_gone(&scene, &room).await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_deleted_answer_can_be_read_in_a_plain_room() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_E2EE", "optional");
    scene.gateway.starts();
    let room = deletes_an_answer(&scene, Kind { encrypted: false, direct: true }).await;
    is_gone(&scene, &room).await;
}

/// Dies with the message gone and its edits not, when the homeserver no longer says which they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_life_did_not_delete_the_next_one_does() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.dies_at("deletion.more", 1);
    scene.gateway.starts();
    let room = deletes_an_answer(&scene, DIRECT).await;
    scene.gateway.ended().await;
    assert!(readable(&scene, &room) >= 2, "only the message itself is gone");
    scene.gateway.lives_on();
    scene.gateway.starts();
    is_gone(&scene, &room).await;
    scene.ends();
}

/// Ann asks, reads an answer that was edited, and deletes her question. The room.
async fn deletes_an_answer(scene: &Scene, kind: Kind) -> String {
    let room = scene.ann.makes_room(kind, &[&scene.bot.id]).await;
    let gates = [Gate::new(), Gate::new()];
    scene.upstream.answers(
        Answer::stream()
            .sends(delta("One, "))
            .waits(&gates[0])
            .sends(delta("two, "))
            .waits(&gates[1])
            .sends(delta("three.") + finish("stop").as_str() + DONE)
            .ends(),
    );
    let question = scene.ann.says(&room, "count").await;
    scene.reads(&room, "One,").await;
    gates[0].open();
    scene.reads(&room, "One, two,").await;
    gates[1].open();
    scene.reads(&room, "One, two, three.").await;
    assert!(readable(scene, &room) >= 3, "a message and two edits");

    scene.ann.deletes(&room, &question).await;
    room
}

/// Waits until nothing that the bot said in a room can be read, and the list of what was to be deleted is gone too.
async fn is_gone(scene: &Scene, room: &str) {
    let notes = "SELECT count(*) FROM notes WHERE key LIKE 'deleting.%' AND account = ?1";
    let gone = async {
        while readable(scene, room) > 0 || scene.gateway.count(notes, "matrix") > 0 {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("nothing can be read");
}

/// How many messages of the bot in a room the homeserver has not redacted, edits too.
fn readable(scene: &Scene, room: &str) -> usize {
    let events = "SELECT count(*) FROM events WHERE room_id = ?1 AND sender = ?2
        AND type IN ('m.room.message', 'm.room.encrypted')
        AND NOT EXISTS (SELECT 1 FROM redactions WHERE redacts = events.event_id)";
    scene.homeserver.stored().query_row(events, [room, &scene.bot.id], |row| row.get(0)).unwrap()
}
