//! `/model`: a session has one of the models of its agent, until the next session.

use insta::assert_snapshot;
use talaria::access::AgentAccess;
use talaria::ids::AgentName;
use talaria::rules::{AgentPolicy, AgentRules};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

async fn gateway() -> TestGateway {
    TestGateway::with(Setup { models: &["big", "small-1", "small-2"], ..Setup::default() }).await
}

async fn last(room: &Room, text: &str) -> String {
    room.says("@ann", text).await;
    room.settled().await;
    room.ours().pop().unwrap_or_default()
}

/// The model of each turn so far.
fn models(gateway: &TestGateway) -> Vec<Option<String>> {
    gateway.agent_itself().heard().into_iter().map(|heard| heard.model).collect()
}

#[tokio::test(start_paused = true)]
async fn the_models_are_listed_and_one_is_chosen() {
    let gateway = gateway().await;
    let room = gateway.room();
    for text in ["/model", "one", "/model small-1", "two", "/model", "/model default", "three"] {
        last(&room, text).await;
    }
    assert_snapshot!(room.now(), @r"
    @ann  /model
    note  Models of the agent proxy:
          - big (answers here)
          - small-1
          - small-2
          `/model NAME` chooses one for this conversation; `/model default` goes back to the usual one.
    @ann  one
    bot   ok
    @ann  /model small-1
    note  From the next answer on, small-1 answers in this conversation.
    @ann  two
    bot   ok
    @ann  /model
    note  Models of the agent proxy:
          - big
          - small-1 (answers here)
          - small-2
          `/model NAME` chooses one for this conversation; `/model default` goes back to the usual one.
    @ann  /model default
    note  From the next answer on, big answers in this conversation.
    @ann  three
    bot   ok
    ");
    assert_eq!(models(&gateway), [None, Some("small-1".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_changes_nothing() {
    let gateway = gateway().await;
    let room = gateway.room();
    last(&room, "/model small-2").await;
    let said = last(&room, "/model smal-1").await;
    assert!(
        said.starts_with("There is no model smal-1 here, so nothing was changed. Did you mean small-1?"),
        "{said}"
    );
    assert!(said.contains("- small-2 (answers here)"), "{said}");
    let said = last(&room, "/model something else").await;
    assert!(
        said.starts_with("There is no model something else here, so nothing was changed. Models"),
        "{said}"
    );
    last(&room, "hello").await;
    assert_eq!(models(&gateway), [Some("small-2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_choice_lasts_over_a_restart_and_ends_with_the_session() {
    let mut gateway = gateway().await;
    let (room, other) = (gateway.room(), gateway.shared_room());
    last(&room, "/model small-1").await;
    gateway.restart().await;
    last(&room, "one").await;
    last(&other, "two").await;
    last(&room, "/new").await;
    last(&room, "three").await;
    last(&room, "/new").await;
    last(&room, "/model small-2").await;
    // Nothing was said yet, so it is the same session.
    last(&room, "/new").await;
    last(&room, "four").await;
    last(&room, "/resume 1").await;
    last(&room, "five").await;
    let chosen = Some("small-1".to_owned());
    assert_eq!(models(&gateway), [chosen.clone(), None, None, None, chosen]);
}

#[tokio::test(start_paused = true)]
async fn a_choice_while_an_answer_runs_holds_from_the_next_turn_on() {
    let gateway = gateway().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();
    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.says("@ann", "/model small-1").await;
    room.shows("From the next answer on, small-1 answers").await;
    agent.goes_on();
    room.settled().await;
    last(&room, "two").await;
    assert_eq!(models(&gateway), [None, Some("small-1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_no_longer_listed_is_not_asked_for() {
    let mut gateway = gateway().await;
    let room = gateway.room();
    last(&room, "/model small-2").await;
    gateway.has_models(&["big", "small-1"]);
    gateway.restart().await;
    last(&room, "one").await;
    assert_eq!(models(&gateway), [None]);
    assert!(last(&room, "/model").await.contains("- big (answers here)"));
}

#[tokio::test(start_paused = true)]
async fn another_agent_does_not_get_the_model() {
    let gateway = gateway().await;
    let room = gateway.room();
    for text in ["/model small-1", "/agent local", "one", "/model"] {
        last(&room, text).await;
    }
    assert_eq!(gateway.stand_in().heard()[0].model, None);
    assert_eq!(room.ours().pop().unwrap(), "The agent local has no models to choose from.");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_does_not_get_the_model() {
    let setup = Setup { models: &["big", "small-1"], fallback: true, ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    let room = gateway.room();
    last(&room, "/model small-1").await;
    gateway.agent_itself().goes_away();
    last(&room, "one").await;
    assert_eq!(gateway.stand_in().heard()[0].model, None);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_may_not_talk_to_the_agent_does_not_choose_its_model() {
    let gateway = gateway().await;
    let room = gateway.room();
    let nobody = AgentPolicy { access: AgentAccess::default(), ..AgentPolicy::default() };
    let rules = AgentRules { by_name: [(AgentName::proxy(), nobody)].into(), ..AgentRules::default() };
    gateway.reload_agents(Setup::default().rules, rules);
    assert!(last(&room, "/model small-1").await.starts_with("You may not talk to the agent proxy."));
}
