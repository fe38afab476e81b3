//! An agent's asks are answered, and its grants are given, by those on its list.

use std::time::Duration;

use talaria::access::AgentAccess;
use talaria::agent::OptionKind;

use super::{audited, guarded, last, only_ann};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::scripted::{choice, option, or_text};

/// Allowing an action is acting through the agent.
#[tokio::test(start_paused = true)]
async fn only_those_on_its_list_allow_what_an_agent_asks_for() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    room.says("@ann", "/agent local").await;
    let _script = gateway.stand_in().script().asks("List the files", "ls");
    room.says("@ann", "what is there?").await;
    room.settled().await;
    room.says("@bob", "/approve").await;
    assert!(last(&room).await.contains("You may not talk to the agent local"), "{}", room.now());
    assert_eq!(gateway.stand_in().answers().len(), 0);
    insta::assert_snapshot!(audited(&gateway, 2).await.join("\n"), @"
    @bob:test approve once true everybody
    @bob:test approve once false agent
    ");
    // Refusing it is not acting.
    room.says("@bob", "/deny").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().answers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_those_on_its_list_answer_what_an_agent_asks() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    room.says("@ann", "/agent local").await;
    let colours = choice("Colour", "Which one?", [option("r", "red", OptionKind::Answer)]);
    let _script = gateway.stand_in().script().asks_all([or_text(colours)]);
    room.says("@ann", "paint it").await;
    room.is_asked("Colour").await;
    for answer in ["/answer 1", "/answer any you like"] {
        room.says("@bob", answer).await;
        room.chat.is_quiet(Duration::from_secs(5)).await;
        let refusal = room.ours().pop().unwrap_or_default();
        assert!(refusal.contains("You may not talk to the agent local"), "{}", room.now());
        // Kept as an approval, which uses up nobody's messages.
        let kept = ["@bob:test approve once true everybody", "@bob:test approve once false agent"];
        assert_eq!(audited(&gateway, 2).await, kept);
    }
    assert_eq!(gateway.stand_in().answers().len(), 0);
    room.says("@ann", "/answer 1").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().answers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_ends_when_its_giver_is_off_the_list_of_the_agent() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let listed = |people: &[&str]| {
        let people = people.iter().map(|person| (*person).into()).collect();
        guarded(AgentAccess { people, ..AgentAccess::default() })
    };
    let asks = async |who: &str| {
        let _script = gateway.stand_in().script().asks("List the files", "ls");
        room.says(who, "what is there?").await;
        room.settled().await;
    };
    let (account, agents) = listed(&["@ann:test", "@bob:test"]);
    gateway.reload_agents(account, agents);
    room.says("@ann", "/agent local").await;
    asks("@ann").await;
    room.says("@ann", "/approve session").await;
    room.settled().await;
    asks("@bob").await;
    assert_eq!(gateway.stand_in().ran(), ["ls", "ls"], "it need not ask again");
    let (account, agents) = listed(&["@bob:test"]);
    gateway.reload_agents(account, agents);
    asks("@bob").await;
    assert_eq!(gateway.stand_in().ran().len(), 2, "it waits for an answer");
    room.says("@bob", "/approve").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().ran().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_fallback_asks_is_allowed_by_those_on_its_list_and_for_itself_alone() {
    let gateway = TestGateway::with(Setup { fallback: true, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    gateway.agent_itself().goes_away();
    let _script = gateway.stand_in().script().asks("List the files", "ls");
    room.says("@ann", "what is there?").await;
    room.settled().await;
    room.says("@bob", "/approve").await;
    assert!(last(&room).await.contains("You may not talk to the agent local"), "{}", room.now());
    room.says("@root", "/approve always").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().ran(), ["ls"]);
    gateway.agent_itself().comes_back();
    tokio::time::sleep(Duration::from_secs(31)).await;
    let _script = gateway.agent().asks("List the files", "ls");
    room.says("@ann", "what is there?").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().asked().len(), 1);
    assert_eq!(gateway.agent_itself().answers().len(), 0, "the agent itself waits for an answer");
}

#[tokio::test(start_paused = true)]
async fn what_one_agent_need_not_ask_again_another_asks() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let (account, agents) = guarded(AgentAccess::everybody());
    gateway.reload_agents(account, agents);
    room.says("@root", "/agent local").await;
    for approval in ["/approve always", "/help"] {
        let _script = gateway.stand_in().script().asks("List the files", "ls");
        room.says("@root", "what is there?").await;
        room.settled().await;
        room.says("@root", approval).await;
        room.settled().await;
    }
    assert_eq!(gateway.stand_in().answers().len(), 2, "the second time it need not ask");
    room.says("@root", "/agent default").await;
    let _script = gateway.agent().asks("List the files", "ls");
    room.says("@root", "what is there?").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().answers().len(), 0, "the other one waits for an answer");
    room.says("@root", "/deny").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().answers().len(), 1);
}
