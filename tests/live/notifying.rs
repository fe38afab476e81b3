//! Notifications: a long answer in several messages notifies once, wherever the server or client can tell.

use reqwest::Method;
use serde_json::{Value, json};

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::parts;
use crate::support::homeserver::Homeserver;
use crate::support::person::{Kind, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// An answer too long for one message; each line contains its number.
fn long_answer() -> String {
    (0..2500).map(|line| format!("This is line {line}.\n")).collect()
}

/// The messages of an answer that is complete.
fn parts_of(shown: &[Shown], bot: &str) -> Option<Vec<Shown>> {
    let said: Vec<_> = shown.iter().filter(|message| message.sender == bot).cloned().collect();
    let whole = said.last().is_some_and(|last| last.text().contains("This is line 2499."));
    whole.then_some(said)
}

/// The homeserver counts as it does for push notifications: by the default rules of a new account. Edits of a growing
/// answer never count. In an encrypted room it cannot see that further messages are notices, so it counts them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_homeserver_counts_a_long_answer_once_where_it_can_read_it() {
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_E2EE", "optional");
    scene.gateway.starts();
    for encrypted in [false, true] {
        let room = scene.ann.makes_room(Kind { encrypted, direct: true }, &[&scene.bot.id]).await;
        let gate = Gate::new();
        scene.upstream.answers(
            Answer::stream()
                .sends(delta("This is long:"))
                .waits(&gate)
                .sends(delta(&format!("\n{}", long_answer())) + finish("stop").as_str() + DONE)
                .ends(),
        );
        scene.ann.says(&room, "tell me everything").await;
        scene.reads(&room, "This is long:").await;
        gate.open();
        let said = scene.ann.sees(&room, "the whole answer", |shown| parts_of(shown, &scene.bot.id)).await;
        assert!(said.len() > 2 && said[0].edits() > 0, "{} messages, {} edits", said.len(), said[0].edits());
        let synced = scene.ann.asks(Method::GET, "/v3/sync?timeout=0", json!({})).await;
        let unread = &synced["rooms"]["join"][&room]["unread_notifications"]["notification_count"];
        let expected = if encrypted { said.len() } else { 1 };
        assert_eq!(unread, &json!(expected), "of {} messages; encrypted: {encrypted}", said.len());
    }
    scene.ends();
}

/// In an encrypted room only the client can tell, once it has decrypted the message. This one checks the push rules
/// as Element does before it notifies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_rings_once_for_a_long_answer_in_an_encrypted_room() {
    if !parts::has_js() {
        return;
    }
    let scene = Scene::with(With::Js).await;
    let room = scene.direct().await;
    scene.upstream.answers(Answer::says([long_answer().as_str()]));
    scene.ann.says(&room, "tell me everything").await;
    let said = scene.ann.sees(&room, "the whole answer", |shown| parts_of(shown, &scene.bot.id)).await;
    assert!(said.len() > 2 && said.iter().all(|message| message.encrypted && message.readable));
    let mut rings = Vec::new();
    for message in &said {
        let asked = scene.ann.does("rings", json!({ "room": room, "event": message.id })).await;
        rings.push(asked["rings"] == Value::Bool(true));
    }
    assert_eq!(rings.iter().filter(|rings| **rings).count(), 1, "{rings:?}");
    assert!(rings[0]);
    scene.ends();
}
