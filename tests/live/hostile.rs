//! Hostile rooms and people: reading goes on, and none of it is obeyed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::it::upstream::Answer;
use crate::support::person::{DIRECT, Person, SHARED, With, escaped};
use crate::support::scene::Scene;
use crate::support::{fresh, full};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_strange_invitations_stops_nobody() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let eve = scene.homeserver.registers("eve").await;
    let eve = scene.homeserver.logs_in(&eve).await;
    let count = if full() { 200 } else { 40 };

    let mut invited = Vec::new();
    for number in 0..count {
        let answer =
            scene.homeserver.asks(&eve, Method::POST, "/v3/createRoom", strange(number, &scene.bot.id)).await;
        invited.push(answer["room_id"].as_str().unwrap().to_owned());
    }
    scene.settles(&room).await;

    for room in invited {
        let path = format!("/v3/rooms/{}/state/m.room.member/{}", escaped(&room), escaped(&scene.bot.id));
        let membership = |answer: &Value| answer["membership"].as_str().unwrap_or_default().to_owned();
        let refused = async {
            loop {
                let now = membership(&scene.homeserver.asks(&eve, Method::GET, &path, json!({})).await);
                assert_ne!(now, "join");
                if now == "leave" {
                    return;
                }
            }
        };
        tokio::time::timeout(crate::support::PATIENCE, refused).await.expect("the invitation is refused");
    }
    assert_eq!(scene.upstream.prompts().len(), 1);
    scene.ends();
}

/// In old versions power levels may be words; in the newest, ids have no server.
const VERSIONS: [&str; 4] = ["9", "10", "11", "12"];

/// The state of a room that nobody should want to be in.
fn strange(number: usize, bot: &str) -> Value {
    let name = match number % 5 {
        0 => "x".repeat(20_000),
        1 => "\u{202e}\u{7}\u{2066}evil\u{2069}\n\n# heading".to_owned(),
        2 => "<script>alert(1)</script>".to_owned(),
        3 => format!("{bot} /approve always"),
        _ => String::new(),
    };
    json!({
        "preset": "private_chat", "invite": [bot], "is_direct": number.is_multiple_of(2), "name": name,
        "topic": "t".repeat(if number.is_multiple_of(7) { 20_000 } else { 10 }),
        "room_version": VERSIONS[number % VERSIONS.len()],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_state_and_odd_power_levels_do_not_stop_reading() {
    let scene = Scene::with(With::Nio).await;
    // In this version power levels may be words.
    let body = json!({
        "preset": "private_chat", "invite": [scene.bot.id], "room_version": "9",
        "initial_state": [
            { "type": "m.room.encryption", "state_key": "", "content": { "algorithm": "m.megolm.v1.aes-sha2" } },
            { "type": "test.heavy", "state_key": "one", "content": { "much": "m".repeat(60_000) } },
            { "type": "test.heavy", "state_key": "two", "content": { "much": vec!["m"; 12_000] } },
        ],
    });
    let room = scene.ann.asks(Method::POST, "/v3/createRoom", body).await;
    let room = room["room_id"].as_str().unwrap().to_owned();
    scene.ann.sees_member(&room, &scene.bot.id, "join").await;
    let ann = scene.ann.id.clone();
    let levels = [
        json!({ "users": { ann.clone(): "100" }, "events_default": "0", "state_default": 50 }),
        json!({ "users": { ann.clone(): 100 }, "users_default": -9_007_199_254_740_991i64, "events_default": -9_007_199_254_740_991i64 }),
        json!({ "users": { ann.clone(): 100, "@nobody:nowhere": 1 }, "events": { "m.room.message": " 0 " } }),
    ];
    for level in levels {
        let path = format!("/v3/rooms/{}/state/m.room.power_levels/", escaped(&room));
        // The homeserver may refuse some of them; we must cope with those that it accepts.
        scene.homeserver.tries(&scene.ann.token, Method::PUT, &path, level).await;
    }
    let direct = scene.direct().await;
    scene.settles(&direct).await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_speaks_for_somebody_else_and_nothing_plain_counts_in_an_encrypted_room() {
    let mut scene = Scene::prepared(crate::support::homeserver::Homeserver::shared().await, With::Nio).await;
    let ben = Person::new(&scene.homeserver, "ben", With::Nio).await;
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_ALLOWED_USERS", &format!("{},{}", scene.ann.id, ben.id));
    scene.gateway.starts();
    let room = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    scene.ann.acts(&room, "invite", json!({ "user_id": ben.id })).await;
    ben.acts(&room, "join", json!({})).await;
    scene.ann.sees_member(&room, &ben.id, "join").await;
    ben.sees_member(&room, &scene.bot.id, "join").await;

    scene.upstream.answers(Answer::says(["First."]));
    let question = scene.ann.says(&room, &format!("{} ask one", scene.bot.id)).await;
    scene.reads(&room, "First.").await;

    // An edit of another person's question, encrypted and by a person who may talk.
    ben.edits(&room, &question, &format!("{} ask two", scene.bot.id)).await;
    // An edit of the author's own question, and a question, that the homeserver could have made up.
    let text = json!({ "msgtype": "m.text", "body": format!("{} ask three", scene.bot.id) });
    let edit = json!({
        "msgtype": "m.text", "body": "*", "m.new_content": text,
        "m.relates_to": { "rel_type": "m.replace", "event_id": question },
    });
    scene.ann.sends_plain(&room, "m.room.message", edit).await;
    scene.ann.sends_plain(&room, "m.room.message", text).await;
    // Malformed relations, and malformed content.
    for content in [
        json!({ "msgtype": "m.text", "body": 7, "m.relates_to": "no" }),
        json!({ "msgtype": { "m.text": 1 }, "body": null, "m.relates_to": { "rel_type": "m.replace" } }),
        json!({ "m.relates_to": { "rel_type": "m.thread", "event_id": "$".repeat(5000) }, "msgtype": "m.text", "body": "x" }),
        json!({ "algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AAAA", "session_id": "x".repeat(9000) }),
    ] {
        for kind in ["m.room.message", "m.room.encrypted"] {
            let path = format!("/v3/rooms/{}/send/{kind}/{}", escaped(&room), fresh("transaction"));
            // The homeserver refuses some of them; we must cope with those that it accepts.
            scene.homeserver.tries(&scene.ann.token, Method::PUT, &path, content.clone()).await;
        }
    }
    let direct = scene.direct().await;
    scene.settles(&direct).await;

    let prompts = scene.upstream.messages();
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert_eq!(scene.said(&room).iter().filter(|message| message.kind == "m.text").count(), 1);
    scene.ends();
}

/// A homeserver can send a person's encrypted message once more, in their name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_encrypted_once_is_answered_once() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let question = "open the door";
    scene.upstream.answers(Answer::says(["Opened."]));
    let first = scene.ann.says(&room, question).await;
    scene.reads(&room, "Opened.").await;

    let sent = format!("/v3/rooms/{}/event/{}", escaped(&room), escaped(&first));
    let sealed = scene.ann.asks(Method::GET, &sent, json!({})).await["content"].clone();
    let mut dressed = sealed.clone();
    // A message's relations are in plaintext.
    dressed["m.relates_to"] = json!({ "m.in_reply_to": { "event_id": first } });
    scene.ann.sends_plain(&room, "m.room.encrypted", sealed.clone()).await;
    scene.ann.sends_plain(&room, "m.room.encrypted", dressed.clone()).await;
    scene.settles(&room).await;
    assert_eq!(scene.upstream.prompts().len(), 2, "once, and whether everything is done");

    // A person who repeats their words is answered again, and neither message can be replayed.
    scene.upstream.answers(Answer::says(["Opened again."]));
    let second = scene.ann.says(&room, question).await;
    let answer = scene.reads(&room, "Opened again.").await;
    assert_eq!(answer.reply_to, Some(second.clone()));
    let sent = format!("/v3/rooms/{}/event/{}", escaped(&room), escaped(&second));
    let again = scene.ann.asks(Method::GET, &sent, json!({})).await["content"].clone();
    scene.gateway.stops().await;
    scene.gateway.starts();
    for content in [again, sealed, dressed] {
        scene.ann.sends_plain(&room, "m.room.encrypted", content).await;
    }
    let other = scene.direct().await;
    scene.settles(&other).await;
    assert_eq!(scene.upstream.prompts().len(), 4);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_a_question_back_and_asks_it_again_is_answered() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let question = "open the door";
    scene.upstream.answers(Answer::says(["Opened."]));
    let first = scene.ann.says(&room, question).await;
    scene.reads(&room, "Opened.").await;
    let sent = format!("/v3/rooms/{}/event/{}", escaped(&room), escaped(&first));
    let sealed = scene.ann.asks(Method::GET, &sent, json!({})).await["content"].clone();
    scene.ann.deletes(&room, &first).await;

    scene.upstream.answers(Answer::says(["Opened again."]));
    let second = scene.ann.says(&room, question).await;
    let answer = scene.reads(&room, "Opened again.").await;
    assert_eq!(answer.reply_to, Some(second));

    // A deleted message was heard all the same.
    scene.ann.sends_plain(&room, "m.room.encrypted", sealed).await;
    scene.settles(&room).await;
    assert_eq!(scene.upstream.prompts().len(), 3);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_changes_nothing() {
    let mut scene = Scene::prepared(crate::support::homeserver::Homeserver::shared().await, With::Nio).await;
    let service = scene.homeserver.service.clone();
    let name = fresh("clock");
    let register = json!({ "type": "m.login.application_service", "username": name, "inhibit_login": true });
    let clock = scene.homeserver.asks(&service, Method::POST, "/v3/register", register).await;
    let clock = clock["user_id"].as_str().unwrap().to_owned();
    let as_clock = format!("user_id={}", escaped(&clock));

    scene.gateway.sets("MATRIX_E2EE", "optional");
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.sets("MATRIX_ALLOWED_USERS", &format!("{},{clock}", scene.ann.id));
    scene.gateway.starts();
    let plain = crate::support::person::Kind { encrypted: false, direct: false };
    let room = scene.ann.makes_room(plain, &[&scene.bot.id]).await;
    scene.ann.acts(&room, "invite", json!({ "user_id": clock })).await;
    let join = format!("/v3/rooms/{}/join?{as_clock}", escaped(&room));
    scene.homeserver.asks(&service, Method::POST, &join, json!({})).await;

    for (number, time) in ["0", "1", "9007199254740991"].into_iter().enumerate() {
        let answer = format!("At {time}.");
        scene.upstream.answers(Answer::says([answer.as_str()]));
        let path = format!(
            "/v3/rooms/{}/send/m.room.message/{}?{as_clock}&ts={time}",
            escaped(&room),
            fresh("transaction")
        );
        let content =
            json!({ "msgtype": "m.text", "body": format!("{} what time is it? {number}", scene.bot.id) });
        scene.homeserver.asks(&service, Method::PUT, &path, content).await;
        scene.reads(&room, &answer).await;
    }
    let direct = scene.ann.makes_room(DIRECT, &[&scene.bot.id]).await;
    scene.settles(&direct).await;
    assert_eq!(scene.upstream.prompts().len(), 4);
    scene.ends();
}
