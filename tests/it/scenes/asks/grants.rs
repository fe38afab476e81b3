//! Grants: which actions need no further ask, for how long, and that a grant can be revoked.

use std::time::Duration;

use talaria::access::AccessLists;
use talaria::agent::Ask;
use talaria::i18n::TextKey;
use talaria::rules::AccountRules;

use super::{gateway, outcomes, people};
use crate::support::gateway::TestGateway;
use crate::support::room::Room;
use crate::support::scripted::ask;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes the agent ask for the action once more; returns whether people were asked.
async fn is_asked_again(gateway: &TestGateway, room: &Room) -> bool {
    let (asked, told) = (room.asked().len(), gateway.agent_itself().answers().len());
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    let agent = gateway.agent_itself().clone();
    let chat = gateway.chat();
    chat.until("it is asked or done", || {
        (room.asked().len() > asked || agent.answers().len() > told).then_some(())
    })
    .await;
    let asked = room.asked().len() > asked;
    if asked {
        room.says("@ann", "/stop").await;
    }
    room.settled().await;
    asked
}

async fn approved(gateway: &TestGateway, room: &Room, who: &str, reach: &str) {
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    room.is_asked("run a command").await;
    room.says(who, &format!("/approve {reach}")).await;
    room.settled().await;
}

#[tokio::test(start_paused = true)]
async fn once_is_asked_again() {
    let gateway = gateway().await;
    approved(&gateway, &gateway.room(), "@ann", "once").await;
    assert!(is_asked_again(&gateway, &gateway.room()).await);
}

#[tokio::test(start_paused = true)]
async fn for_a_session_holds_in_that_session_only_and_only_for_the_same() {
    let gateway = gateway().await;
    let room = gateway.room();
    approved(&gateway, &room, "@ann", "session").await;
    assert!(room.now().contains("Allowed for this conversation: `run a command`"), "{}", room.now());
    assert!(!is_asked_again(&gateway, &room).await);
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"; 2]);
    assert!(is_asked_again(&gateway, &gateway.shared_room()).await, "another place");

    gateway.agent().asks("run a command", "rm -r build ~");
    room.says("@ann", "clean up").await;
    room.is_asked("rm -r build ~").await;
    room.says("@ann", "/deny").await;
    room.settled().await;
    room.says("@ann", "/new").await;
    assert!(is_asked_again(&gateway, &room).await, "another session");
    assert_eq!(
        outcomes(&gateway).await[..2],
        ["ask session yes by @ann:test (approved)", "ask session yes by @ann:test (granted)"]
    );
}

#[tokio::test(start_paused = true)]
async fn always_is_for_admins_and_says_so() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.says("@ann", &format!("/approve {} always", asked.code)).await;
    room.shows("Only admins can use /approve always here.").await;
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
}

#[tokio::test(start_paused = true)]
async fn always_holds_in_this_place_for_thirty_days() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    approved(&gateway, &room, "@ada", "always").await;
    assert!(room.now().contains("Allowed here for 30 days: `run a command`"), "{}", room.now());
    room.says("@ann", "/new").await;
    assert!(!is_asked_again(&gateway, &room).await);
    assert!(is_asked_again(&gateway, &gateway.room()).await, "another place");
    tokio::time::sleep(29 * DAY).await;
    assert!(!is_asked_again(&gateway, &room).await);
    tokio::time::sleep(DAY).await;
    assert!(is_asked_again(&gateway, &room).await, "its time is over");
    assert_eq!(gateway.agent_itself().ran().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_grant_survives_a_restart_is_listed_and_can_be_revoked() {
    let mut gateway = gateway().await;
    let room = gateway.room();
    approved(&gateway, &room, "@ada", "always").await;
    gateway.restart().await;
    assert!(!is_asked_again(&gateway, &room).await);

    let grants = gateway.store().read(|tx| tx.grants()).await.unwrap();
    let [grant] = &grants[..] else { panic!("{grants:?}") };
    assert_eq!((grant.title.as_str(), grant.by.as_str()), ("`run a command`", "@ada:test"));
    assert_eq!((grant.room.as_str(), grant.session.as_ref()), ("!home", None));
    assert_eq!(grant.expires - grant.granted, 30 * 24 * 60 * 60);
    let id = grant.id.clone();
    assert!(
        gateway.store().write(move |tx| Ok(tx.revoke_grant("x")? || tx.revoke_grant(&id)?)).await.unwrap()
    );
    assert_eq!(gateway.store().read(|tx| tx.grants()).await.unwrap(), []);
    assert!(is_asked_again(&gateway, &room).await);
}

#[tokio::test(start_paused = true)]
async fn a_grant_holds_only_as_long_as_whoever_gave_it_may_give_it() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    approved(&gateway, &room, "@ada", "always").await;
    let everybody = || AccountRules {
        limits: None,
        ..AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() })
    };
    gateway.reload(everybody());
    assert!(is_asked_again(&gateway, &room).await, "Ada is no admin any more");
    gateway.reload(people());
    assert!(!is_asked_again(&gateway, &room).await);
    room.leaves("@ada").await;
    assert!(is_asked_again(&gateway, &room).await, "Ada has left");
}

/// Without the whole action nobody knows whether it is the one that was allowed.
#[tokio::test(start_paused = true)]
async fn an_ask_with_a_gap_is_never_granted_by_an_earlier_approval() {
    let gateway = gateway().await;
    let room = gateway.room();
    let gap = Ask { gap: Some(TextKey::RunPartHidden.into()), ..ask("run a command", "TOKEN=*** true") };
    for number in 1..=2 {
        gateway.agent().asks_all([gap.clone()]);
        room.says("@ann", "clean up").await;
        let is_asked = || (room.asked().len() == number).then(|| room.asked().pop().unwrap());
        let asked = gateway.chat().until("it is asked", is_asked).await;
        assert!(asked.text.contains("hides a part of this"), "{}", asked.text);
        room.says("@ann", &format!("/approve {} session", asked.code)).await;
        room.settled().await;
    }
}
