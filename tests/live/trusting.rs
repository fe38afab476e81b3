//! With `trust: verified`, a person who has not compared emoji with the operator is not heard and cannot read;
//! afterwards they are and can.

use serde_json::json;

use crate::it::upstream::{Answer, Upstream};
use crate::parts;
use crate::support::PATIENCE;
use crate::support::comparing::{Comparing, operator, until};
use crate::support::front::{Front, Stumble};
use crate::support::gateway::Gateway;
use crate::support::homeserver::Homeserver;
use crate::support::person::{DIRECT, Person, With};
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// Ann, whose device is signed, has written and was not heard.
async fn unheard() -> (Scene, String) {
    is_unheard(Scene::prepared(Homeserver::shared().await, With::Js).await).await
}

async fn is_unheard(mut scene: Scene) -> (Scene, String) {
    scene.gateway.sets("MATRIX_TRUST", "verified");
    scene.gateway.starts();
    scene.ann.does("cross_sign", json!({})).await;
    let room = scene.direct().await;
    // Before the bot has an identity, it cannot verify anybody's.
    scene.gateway.process().logs("recovery.key").await;
    says_in_vain(&mut scene, &room).await;
    (scene, room)
}

/// Ann writes a message that is not heard, and cannot read the bot's notice about it.
async fn says_in_vain(scene: &mut Scene, room: &str) {
    scene.ann.says(room, "do you hear me?").await;
    scene.gateway.process().logs("a device is not trusted").await;
    let of_the_bot = |shown: &[Shown]| shown.iter().find(|message| message.sender == scene.bot.id).cloned();
    let told = scene.ann.sees(room, "that she is not heard", of_the_bot).await;
    assert!(told.encrypted && !told.readable, "{told:?}");
    assert_eq!(scene.upstream.prompts().len(), 0);
}

/// Ann, who was refused before, writes and is refused again; everything else that was under way is done. Returns the
/// id of her message.
async fn is_refused(scene: &mut Scene, room: &str) -> String {
    let said = scene.ann.says(room, "and now?").await;
    let refused = "SELECT count(*) FROM audit WHERE rule = 'untrusted' AND actor = ?1";
    let again = async {
        while scene.gateway.count(refused, &scene.ann.id) < 2 {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("a second refusal");
    scene.gateway.stops().await;
    // A client sees this message after everything that the bot has sent before.
    scene.ann.says(room, "good night").await;
    scene.ann.reads(room, &scene.ann.id, "good night").await;
    said
}

/// Ann is heard, on the same device and in the same session as before, and reads the answer.
async fn is_heard(comparing: Comparing) -> Scene {
    let Comparing { scene, room, .. } = comparing;
    scene.upstream.answers(Answer::says(["Now I do."]));
    scene.ann.says(&room, "and now?").await;
    let answer = scene.reads(&room, "Now I do.").await;
    assert!(answer.encrypted && answer.readable, "{answer:?}");
    // Her earlier messages are not answered after all.
    scene.settles(&room).await;
    assert_eq!(scene.upstream.prompts().len(), 2);
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compares_pictures_in_the_room_is_heard() {
    if !parts::has_js() {
        return;
    }
    let (scene, room) = unheard().await;
    let comparing = Comparing::in_room(scene, room).await;
    comparing.matches().await;
    // Her client sends the request in plaintext, and there is no warning about that.
    assert!(
        !comparing.scene.gateway.log().contains("a message in the clear"),
        "{}",
        comparing.scene.gateway.log()
    );
    is_heard(comparing).await.ends_after_verifying_aloud();
}

/// At first the homeserver refuses each of the bot's plaintext events with a rate limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compares_pictures_in_the_room_is_heard_where_the_homeserver_wants_it_slower() {
    if !parts::has_js() {
        return;
    }
    let mut scene = Scene::prepared(Homeserver::shared().await, With::Js).await;
    let front = Front::of(&scene.homeserver).await;
    scene.gateway.sets("MATRIX_HOMESERVER", &front.url);
    front.stumbles_over(&["/send/m.key.verification."], Stumble::TooMany);
    let (scene, room) = is_unheard(scene).await;
    let comparing = Comparing::in_room(scene, room).await;
    comparing.matches().await;
    assert!(front.refused() > 2, "{}", front.refused());
    is_heard(comparing).await.ends_after_verifying_aloud();
}

/// Ann's part is encrypted; it is read although nobody has verified her.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compares_pictures_in_the_room_and_encrypts_her_part_is_heard() {
    if !parts::has_js() {
        return;
    }
    let (scene, room) = unheard().await;
    let comparing = Comparing::sealed_in_room(scene, room).await;
    comparing.matches().await;
    is_sealed(&comparing.scene, &comparing.room);
    is_heard(comparing).await.ends_after_verifying_aloud();
}

/// Checks that only Ann's membership events are in plaintext.
fn is_sealed(scene: &Scene, room: &str) {
    let clear = scene.in_the_clear(room, &scene.ann.id);
    assert!(
        clear.iter().all(|kind| !kind.starts_with("m.key.verification.") && kind != "m.room.message"),
        "{clear:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compares_pictures_from_device_to_device_is_heard() {
    if !parts::has_js() {
        return;
    }
    let (scene, room) = unheard().await;
    let comparing = Comparing::by_device(scene, room).await;
    comparing.matches().await;
    is_heard(comparing).await.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_pictures_differ_learns_so_and_stays_unheard() {
    if !parts::has_js() {
        return;
    }
    let (scene, room) = unheard().await;
    let Comparing { mut scene, room, id } = Comparing::in_room(scene, room).await;
    let said = operator(&scene, &["mismatch", &id]).await;
    assert!(said.out.contains("cancelled"), "{}{}", said.out, said.err);
    assert_eq!(scene.ann.does("is_broken_off", json!({})).await["cancelled"], true);

    let after = is_refused(&mut scene, &room).await;
    assert!(scene.said(&room).iter().all(|message| message.reply_to.as_ref() != Some(&after)));
    assert_eq!(scene.upstream.prompts().len(), 0);
    scene.ends_after_verifying_aloud();
}

/// A second request cancels the first, and itself: the SDK sends that by itself, without the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_twice_to_be_verified_is_told_nothing_in_the_clear() {
    if !parts::has_js() {
        return;
    }
    let (mut scene, room) = unheard().await;
    let request = json!({
        "msgtype": "m.key.verification.request", "body": "verify me", "to": scene.bot.id,
        "from_device": scene.ann.device, "methods": ["m.sas.v1"],
    });
    let before = scene.sealed(&room, &scene.bot.id);
    scene.ann.sends_plain(&room, "m.room.message", request.clone()).await;
    until(&scene, &["list"], |list| list["verifications"][0]["id"].is_string()).await;
    scene.ann.sends_plain(&room, "m.room.message", request).await;
    let ended = async {
        while scene.sealed(&room, &scene.bot.id) < before + 2 {
            scene.gateway.talaria.does(["health"]).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("that both are ended");
    // The bot has read its own messages back.
    is_refused(&mut scene, &room).await;
    scene.ends();
}

/// An unsigned device gets no keys, so it can read nothing encrypted; it sees a reaction, which Matrix never
/// encrypts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_not_signed_sees_a_mark_on_what_was_not_read() {
    for with in [With::Nio, With::Mautrix] {
        let mut scene = Scene::prepared(Homeserver::shared().await, with).await;
        scene.gateway.starts();
        let room = scene.direct().await;
        scene.gateway.process().logs("recovery.key").await;
        let said = scene.ann.says(&room, "do you hear me?").await;
        let is_mark = |event: &serde_json::Value| {
            let relation = &event["content"]["m.relates_to"];
            event["type"] == "m.reaction" && relation["event_id"] == said && relation["key"] == "🔒"
        };
        scene.ann.sees_event(&room, "a mark on what she said", is_mark).await;
        let of_the_bot =
            |shown: &[Shown]| shown.iter().find(|message| message.sender == scene.bot.id).cloned();
        let told = scene.ann.sees(&room, "that she is not heard", of_the_bot).await;
        assert!(told.encrypted && !told.readable, "{told:?}");
        assert_eq!(scene.upstream.prompts().len(), 0);
        scene.ends();
    }
}

/// Ann writes on a device that she has not signed; on her signed device she reads what to do about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_an_unsigned_device_can_be_read_on_a_signed_one() {
    if !parts::has_js() {
        return;
    }
    let homeserver = Homeserver::shared().await;
    let (bot, ann, upstream) =
        tokio::join!(homeserver.registers("bot"), homeserver.registers("ann"), Upstream::idempotent());
    let signed = Person::logs_in(&homeserver, &ann, With::Js).await;
    signed.does("cross_sign", json!({})).await;
    let unsigned = Person::logs_in(&homeserver, &ann, With::Nio).await;
    let mut gateway = Gateway::new(&homeserver, &bot, &upstream.url(), &[&ann.id]);
    gateway.starts();
    let room = signed.makes_room(DIRECT, &[&bot.id]).await;
    gateway.process().logs("recovery.key").await;
    let said = unsigned.says(&room, "do you hear me?").await;
    let of_the_bot = |shown: &[Shown]| shown.iter().find(|message| message.sender == bot.id).cloned();
    let told = signed.sees(&room, "what to do", of_the_bot).await;
    assert!(told.readable && told.text().contains("is not signed by its owner"), "{told:?}");
    assert_eq!(told.reply_to, Some(said));
    let told = unsigned.sees(&room, "that something was said", of_the_bot).await;
    assert!(told.encrypted && !told.readable, "{told:?}");
    assert_eq!(upstream.prompts().len(), 0);
}
