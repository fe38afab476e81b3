//! A room can have a list and an agent of its own, which apply there and nowhere else.

use std::collections::HashMap;

use talaria::access::{AccessLists, AccessPolicy};
use talaria::agent::RewindSupport;
use talaria::ids::AgentName;
use talaria::rules::{AccountRules, PlaceRules};
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};

fn lists(admins: &[&str], people: &[&str]) -> AccessLists {
    let set = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect();
    AccessLists { admins: set(admins), people: set(people), ..AccessLists::default() }
}

#[tokio::test(start_paused = true)]
async fn a_rooms_own_list_replaces_the_others_but_not_the_admins() {
    let account =
        AccountRules::listed(AccessLists { pairing: true, ..lists(&["@root:test"], &["@ann:test"]) });
    let own = AccessPolicy::Listed(lists(&["@root:test"], &["@bob:test"]));
    let place = PlaceRules { access: Some(own), ..PlaceRules::default() };
    let rules = AccountRules { places: HashMap::from([("!all".into(), place)]), ..account };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let (room, direct) = (gateway.shared_room(), gateway.room());
    assert_eq!(room.name, "!all");

    for who in ["@ann", "@bob", "@root"] {
        room.says(who, "hello").await;
        room.settled().await;
        direct.says(who, "hello").await;
        direct.settled().await;
    }
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|heard| heard.prompt).collect();
    insta::assert_snapshot!(heard.join("\n"), @r#"
    hello
    "bob" (@bob:test): hello
    "root" (@root:test): hello
    hello
    "#);
    assert!(!room.invites("@ann").await && room.invites("@bob").await && direct.invites("@ann").await);
}

/// Rules: everybody may talk, and one room uses the model.
fn with_the_model_in(room: &str) -> AccountRules {
    let place = PlaceRules { agent: Some(AgentName::local()), ..PlaceRules::default() };
    let rules = Setup::default().rules;
    AccountRules { places: HashMap::from([(room.into(), place)]), ..rules }
}

#[tokio::test(start_paused = true)]
async fn a_room_can_have_an_agent_of_its_own() {
    let setup =
        Setup { rules: with_the_model_in("!all"), rewind: RewindSupport::Impossible, ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    let (room, direct) = (gateway.shared_room(), gateway.room());
    for place in [&room, &direct] {
        place.says("@ann", "hello").await;
        place.settled().await;
    }
    assert_eq!(gateway.stand_in().heard().len(), 1);
    assert_eq!(gateway.agent_itself().heard().len(), 1);
    // The available commands depend on the room's agent.
    for (place, can) in [(&room, true), (&direct, false)] {
        place.says("@ann", "/undo").await;
        assert_eq!(!place.settled().await.contains("cannot"), can, "{}", place.now());
    }
}

/// `/undo`, `/retry` and an edit are about a turn, and its agent may no longer be the room's.
#[tokio::test(start_paused = true)]
async fn the_agent_of_the_turn_decides_whether_it_can_be_taken_back() {
    for (rewind, words) in [
        (RewindSupport::Impossible, ["cannot change what it remembers", "came too late"]),
        (RewindSupport::Unknown, ["cannot be asked right now", "cannot be asked right now"]),
    ] {
        let gateway = TestGateway::with(Setup { rewind, ..Setup::default() }).await;
        let room = gateway.shared_room();
        let asked = room.says("@ann", "one").await;
        room.settled().await;
        gateway.reload(with_the_model_in("!all"));
        room.says("@ann", "/undo").await;
        assert!(room.settled().await.contains(words[0]), "{}", room.now());
        room.edits("@ann", &asked, "another").await;
        room.settled().await;
        assert!(room.ours().last().unwrap().contains(words[1]), "{}", room.now());
        // It is asked once more in the session that it remembers.
        room.says("@ann", "/retry").await;
        room.settled().await;
        let heard = gateway.agent_itself().heard();
        assert_eq!((heard.len(), &heard[1].session), (2, &heard[0].session));
        assert!(gateway.stand_in().heard().is_empty());
    }
    // The room's agent cannot take anything back, but the turn's can.
    let gateway = TestGateway::with(Setup {
        rules: with_the_model_in("!all"),
        rewind: RewindSupport::Impossible,
        ..Setup::default()
    })
    .await;
    let room = gateway.shared_room();
    room.says("@ann", "one").await;
    room.settled().await;
    gateway.reload(Setup::default().rules);
    room.says("@ann", "/undo").await;
    assert!(!room.settled().await.contains("cannot"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn another_agent_is_told_what_was_said_before() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    room.says("@ann", "one").await;
    room.settled().await;
    gateway.reload(with_the_model_in("!all"));
    room.says("@ann", "two").await;
    room.settled().await;
    gateway.reload(Setup::default().rules);
    room.says("@ann", "three").await;
    room.settled().await;
    let model = gateway.stand_in().heard();
    assert_eq!((model.len(), model[0].history.len()), (1, 2));
    let agent = gateway.agent_itself().heard();
    assert_eq!((agent.len(), agent[1].history.len()), (2, 4));
    assert_ne!(agent[0].session, agent[1].session, "what it remembers is no longer what was said");
}
