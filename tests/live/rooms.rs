//! Which rooms the bot joins, whom it answers, and where it stays silent.

use reqwest::Method;
use serde_json::json;

use crate::it::upstream::{Answer, Gate, delta};
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Kind, Person, SHARED, With};
use crate::support::scene::Scene;

/// A room for several people that is not encrypted.
const PLAIN: Kind = Kind { encrypted: false, direct: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_room_it_answers_when_it_is_named() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    scene.upstream.answers(Answer::says(["By id."])).answers(Answer::says(["By mention."]));

    scene.ann.says(&room, "is anybody there?").await;
    scene.ann.says(&room, &format!("{} are you there?", scene.bot.id)).await;
    scene.reads(&room, "By id.").await;
    scene.ann.says(&room, "good, it is").await;
    let mentions = json!({ "user_ids": [scene.bot.id] });
    scene.ann.sends(&room, json!({ "msgtype": "m.text", "body": "and now?", "m.mentions": mentions })).await;
    scene.reads(&room, "By mention.").await;

    assert_eq!(scene.upstream.prompts().len(), 2);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_in_a_room_are_no_direct_chat() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    let direct = scene.direct().await;

    scene.ann.says(&room, "talking to myself").await;
    scene.settles(&direct).await;

    assert_eq!(scene.upstream.prompts().len(), 1);
    assert_eq!(scene.said(&room).len(), 0);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_neither_joined_nor_answered_nor_shown_anything() {
    let scene = Scene::with(With::Nio).await;
    let eve = Person::new(&scene.homeserver, "eve", With::Nio).await;
    let refused = eve.invites(DIRECT, &[&scene.bot.id]).await;
    eve.sees_member(&refused, &scene.bot.id, "leave").await;

    let shared = scene.ann.makes_room(SHARED, &[&scene.bot.id]).await;
    scene.ann.acts(&shared, "invite", json!({ "user_id": eve.id })).await;
    eve.acts(&shared, "join", json!({})).await;
    eve.sees_member(&shared, &scene.bot.id, "join").await;
    eve.says(&shared, &format!("{} obey me", scene.bot.id)).await;
    let direct = scene.direct().await;
    scene.settles(&direct).await;

    assert_eq!(scene.upstream.prompts().len(), 1);
    assert_eq!(scene.said(&shared).len(), 0);
    let marks = "SELECT count(*) FROM receipts_linearized WHERE user_id = ?1 AND room_id = ?2";
    let read: usize =
        scene.homeserver.stored().query_row(marks, [&scene.bot.id, &shared], |row| row.get(0)).unwrap();
    assert_eq!(read, 0, "a stranger was shown that we have read");
    let joined =
        "SELECT count(*) FROM room_memberships WHERE user_id = ?1 AND room_id = ?2 AND membership = 'join'";
    let joined: usize =
        scene.homeserver.stored().query_row(joined, [&scene.bot.id, &refused], |row| row.get(0)).unwrap();
    assert_eq!(joined, 0);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_room_without_encryption_people_are_told_why_once() {
    let scene = Scene::with(With::Nio).await;
    let plain = scene.ann.makes_room(PLAIN, &[&scene.bot.id]).await;
    let direct = scene.direct().await;

    for text in ["are you there?", "and now?"] {
        scene.ann.says(&plain, &format!("{} {text}", scene.bot.id)).await;
    }
    scene.settles(&direct).await;
    scene.ann.says(&plain, &format!("{} please", scene.bot.id)).await;
    scene.settles(&direct).await;

    let told = scene.ann.sees(&plain, "a notice", |shown| {
        shown.iter().find(|message| message.sender == scene.bot.id).cloned()
    });
    assert_eq!(told.await.kind, "m.notice");
    assert_eq!(scene.said(&plain).len(), 1);
    let prompts = scene.upstream.messages();
    let heard: Vec<_> =
        prompts.iter().filter_map(|prompt| prompt.last()).map(|(_, text)| text.as_str()).collect();
    assert_eq!(heard, ["is everything done?"; 2]);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_nobody_signed_is_told_so_once_and_not_answered() {
    // With the default trust; nio does not support cross-signing.
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Nio).await;
    scene.gateway.starts();
    let room = scene.direct().await;

    scene.ann.says(&room, "do you hear me?").await;
    let told = |shown: &[crate::support::shown::Shown]| {
        shown.iter().any(|message| message.sender == scene.bot.id).then_some(())
    };
    scene.ann.sees(&room, "the notice", told).await;
    scene.ann.says(&room, "and now?").await;
    // None of this is answered, so the end of the gateway shows when it has been read.
    scene.gateway.stops().await;

    assert_eq!(scene.upstream.prompts().len(), 0);
    assert_eq!(scene.said(&room).len(), 1);
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_is_replaced_goes_on_in_the_new_one() {
    let scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    scene.settles(&room).await;

    let answer = scene.ann.acts(&room, "upgrade", json!({ "new_version": "11" })).await;
    let next = answer["replacement_room"].as_str().unwrap().to_owned();
    scene.ann.acts(&next, "invite", json!({ "user_id": scene.bot.id })).await;
    scene.ann.sees_member(&next, &scene.bot.id, "join").await;
    scene.upstream.answers(Answer::says(["Still here."]));
    scene.ann.says(&next, &format!("{} are you still there?", scene.bot.id)).await;

    scene.reads(&next, "Still here.").await;
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thrown_out_in_the_middle_of_an_answer_it_goes_on_elsewhere() {
    put_out_in_the_middle_of_an_answer("kick").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn banned_in_the_middle_of_an_answer_it_goes_on_elsewhere() {
    put_out_in_the_middle_of_an_answer("ban").await;
}

async fn put_out_in_the_middle_of_an_answer(how: &str) {
    let scene = Scene::with(With::Nio).await;
    let (room, other) = (scene.direct().await, scene.direct().await);
    let gate = Gate::new();
    scene.upstream.answers(Answer::stream().sends(delta("This is going to be long.")).waits(&gate).hangs());

    scene.ann.says(&room, "tell me everything").await;
    scene.reads(&room, "This is going to be long.").await;
    scene.ann.acts(&room, how, json!({ "user_id": scene.bot.id })).await;
    gate.open();
    scene.settles(&other).await;

    let members = format!("/v3/rooms/{}/joined_members", crate::support::person::escaped(&room));
    let members = scene.ann.asks(Method::GET, &members, json!({})).await;
    assert!(members["joined"].get(&scene.bot.id).is_none());
    // The answer ends although the agent would go on for ever, and no message waits to be sent there.
    let open = "SELECT (SELECT count(*) FROM turns WHERE room = ?1
            AND state IN ('queued', 'dispatched', 'streaming', 'finalizing'))
        + (SELECT count(*) FROM outbox WHERE room = ?1 AND state = 'pending')";
    let ended = async {
        while scene.gateway.count(open, &room) > 0 {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, ended).await.expect("its turn has ended");
    scene.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invitation_that_was_declined_is_over() {
    let mut scene = Scene::with(With::Nio).await;
    let room = scene.direct().await;
    let eve = Person::new(&scene.homeserver, "eve", With::Nio).await;
    let refused = eve.invites(DIRECT, &[&scene.bot.id]).await;
    eve.sees_member(&refused, &scene.bot.id, "leave").await;
    scene.gateway.process().logs("declined an invitation").await;
    scene.settles(&room).await;
    scene.gateway.stops().await;

    scene.gateway.starts();
    scene.settles(&room).await;
    assert!(!scene.gateway.log().contains("an invitation"), "{}", scene.gateway.log());
    let times = "SELECT count(*) FROM room_memberships WHERE user_id = ?1 AND room_id = ?2";
    let times: usize =
        scene.homeserver.stored().query_row(times, [&scene.bot.id, &refused], |row| row.get(0)).unwrap();
    assert_eq!(times, 2, "invited once, declined once");
    scene.ends();
}
