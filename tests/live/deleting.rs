//! A deleted answer is gone with every text it ever had: the homeserver keeps each edit as an event of its own.

use reqwest::Method;
use serde_json::{Value, json};

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::support::PATIENCE;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Kind, With, escaped};
use crate::support::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_deleted_answer_can_be_read_in_an_encrypted_room() {
    let late = json!({ "ciphertext": "sealed" });
    everything_is_deleted(DIRECT, "m.room.encrypted", late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_deleted_answer_can_be_read_in_a_plain_room() {
    let late = json!({ "msgtype": "m.text", "body": "One, two" });
    everything_is_deleted(Kind { encrypted: false, direct: true }, "m.room.message", late).await;
}

/// Checks that an answer is deleted with its edits, and with a late one: the homeserver accepted it after the message
/// itself was redacted.
async fn everything_is_deleted(kind: Kind, late_kind: &str, mut late: Value) {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_E2EE", "optional");
    scene.gateway.starts();
    let (room, answer) = answers(&scene, kind).await;
    assert!(listed_edits(&scene, &room, &answer).await >= 2);
    let before = readable(&scene, &room);
    scene.ann.deletes(&room, &answer.question).await;
    let redacted = async {
        while readable(&scene, &room) == before {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, redacted).await.expect("the message is gone");
    assert_eq!(readable(&scene, &room), before - 1, "its edits are still there");
    // Synapse no longer lists the edits.
    assert_eq!(listed_edits(&scene, &room, &answer).await, 0);

    late["m.relates_to"] = json!({ "rel_type": "m.replace", "event_id": answer.id });
    let token = scene.homeserver.logs_in(&scene.bot).await;
    let path = format!("/v3/rooms/{}/send/{late_kind}/late", escaped(&room));
    scene.homeserver.asks(&token, Method::PUT, &path, late).await;
    is_gone(&scene, &room).await;
    scene.ends();
}

/// The gateway dies when the message is gone and its edits are not, and Synapse no longer lists them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_life_did_not_delete_the_next_one_does() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.dies_at("deletion.more", 1);
    scene.gateway.starts();
    let (room, answer) = answers(&scene, DIRECT).await;
    scene.ann.deletes(&room, &answer.question).await;
    scene.gateway.ended().await;
    assert!(readable(&scene, &room) >= 2, "only the message itself is gone");
    scene.gateway.lives_on();
    scene.gateway.starts();
    is_gone(&scene, &room).await;
    scene.ends();
}

/// Number of edits of a message that the homeserver lists.
async fn listed_edits(scene: &Scene, room: &str, answer: &AnsweredQuestion) -> usize {
    let path = format!("/v1/rooms/{}/relations/{}/m.replace", escaped(room), escaped(&answer.id));
    let listed = scene.ann.asks(Method::GET, &path, json!({})).await;
    listed["chunk"].as_array().unwrap().len()
}

/// The messages of a question and of its answer.
struct AnsweredQuestion {
    question: String,
    id: String,
}

/// Ann asks, and reads an answer that was edited.
async fn answers(scene: &Scene, kind: Kind) -> (String, AnsweredQuestion) {
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
    let id = scene.reads(&room, "One, two, three.").await.id;
    assert!(readable(scene, &room) >= 3, "a message and two edits");
    (room, AnsweredQuestion { question, id })
}

/// Waits until no message of the bot in a room can be read, and the stored list of redactions is gone too.
async fn is_gone(scene: &Scene, room: &str) {
    let notes = "SELECT count(*) FROM notes WHERE key LIKE 'deleting.%' AND account = ?1";
    let gone = async {
        while readable(scene, room) > 0 || scene.gateway.count(notes, "matrix") > 0 {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("nothing can be read");
}

/// Number of the bot's messages and edits in a room that the homeserver has not redacted.
fn readable(scene: &Scene, room: &str) -> usize {
    let events = "SELECT count(*) FROM events WHERE room_id = ?1 AND sender = ?2
        AND type IN ('m.room.message', 'm.room.encrypted')
        AND NOT EXISTS (SELECT 1 FROM redactions WHERE redacts = events.event_id)";
    scene.homeserver.stored().query_row(events, [room, &scene.bot.id], |row| row.get(0)).unwrap()
}
