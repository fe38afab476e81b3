//! Agents by name: `/agent` lists and chooses, a choice lasts, and an agent talks only to those on its list.

mod asks;

use std::collections::{BTreeMap, HashMap};

use talaria::access::{AccessLists, AgentAccess};
use talaria::agent::AgentErrorKind;
use talaria::ids::AgentName;
use talaria::rules::{AccountRules, AgentPolicy, AgentRules, PlaceRules};
use talaria::store::AuditFilter;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

const NOTHING_RAN: AgentErrorKind = AgentErrorKind::NothingRan { after: None };

/// The newest message of ours, once nothing happens any more.
async fn last(room: &Room) -> String {
    room.settled().await;
    room.ours().pop().unwrap_or_default()
}

/// Everybody may talk, `@root` is an admin, and `local` has this list.
fn guarded(access: AgentAccess) -> (AccountRules, AgentRules) {
    let lists =
        AccessLists { admins: ["@root:test".into()].into(), allow_all: true, ..AccessLists::default() };
    let account = AccountRules { limits: None, ..AccountRules::listed(lists) };
    let policy = AgentPolicy { access, ..AgentPolicy::default() };
    let by_name =
        BTreeMap::from([(AgentName::proxy(), AgentPolicy::default()), (AgentName::local(), policy)]);
    (account, AgentRules { by_name, ..AgentRules::default() })
}

fn only_ann() -> AgentAccess {
    AgentAccess { people: ["@ann:test".into()].into(), ..AgentAccess::default() }
}

/// The last decisions: who did what, whether they might, and why.
async fn audited(gateway: &TestGateway, count: i64) -> Vec<String> {
    let filter = AuditFilter { limit: Some(count), ..AuditFilter::default() };
    let rows = gateway.store().read(move |tx| tx.audited(&filter)).await.unwrap();
    rows.into_iter().map(|row| format!("{} {} {} {}", row.actor, row.action, row.allowed, row.rule)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_person_lists_the_agents_and_begins_a_new_conversation_with_one() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "one").await;
    room.settled().await;
    room.says("@ann", "/agent").await;
    insta::assert_snapshot!(last(&room).await, @"
    Agents that you can talk to here:

    - proxy: scripted (answers here)
    - local: model small

    `/agent NAME` begins a new conversation with one of them.
    ");
    room.says("@ann", "/agent local").await;
    insta::assert_snapshot!(last(&room).await, @"A new conversation begins here, with the agent local.");
    room.says("@ann", "two").await;
    room.settled().await;
    let heard = gateway.stand_in().heard();
    assert_eq!((heard.len(), heard[0].history.len()), (1, 0), "it is a new conversation");

    // The choice outlives the process, and is kept by the conversations that follow.
    gateway.restart().await;
    room.says("@ann", "/new three").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().heard().len(), 2);
    room.says("@ann", "/agent").await;
    assert!(last(&room).await.contains("- local: model small (answers here)"), "{}", room.now());
    room.says("@ann", "/status").await;
    assert!(last(&room).await.contains("Agent: local, model small."), "{}", room.now());
    room.says("@ann", "/agent local").await;
    insta::assert_snapshot!(last(&room).await, @"The agent local answers here already. /new begins a new conversation with it.");

    room.says("@ann", "/agent default").await;
    insta::assert_snapshot!(last(&room).await, @"A new conversation begins here, with the agent proxy.");
    room.says("@ann", "four").await;
    room.settled().await;
    assert_eq!((gateway.stand_in().heard().len(), gateway.agent_itself().heard().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn going_back_to_a_conversation_goes_back_to_its_agent() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for text in ["one", "/agent local", "two", "/resume 1", "three", "/resume 2", "four"] {
        room.says("@ann", text).await;
        room.settled().await;
    }
    let prompts = |agent: &crate::support::scripted::Scripted| {
        agent.heard().into_iter().map(|heard| heard.prompt).collect::<Vec<_>>()
    };
    assert_eq!(prompts(gateway.agent_itself()), ["one", "three"]);
    assert_eq!(prompts(gateway.stand_in()), ["two", "four"]);
}

#[tokio::test(start_paused = true)]
async fn choosing_an_agent_ends_what_runs_and_a_wrong_name_ends_nothing() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let running = gateway.agent().says(["Well"]).then_hangs();
    room.says("@ann", "one").await;
    running.is_hanging().await;
    for wrong in ["/agent nobody", "/agent proxy", "/agent local please"] {
        room.says("@ann", wrong).await;
    }
    room.settled().await;
    assert!(!room.now().contains("(stopped)"), "{}", room.now());
    room.says("@ann", "/agent local").await;
    insta::assert_snapshot!(room.settled().await, @"
    @ann  one
    @ann  /agent nobody
    @ann  /agent proxy
    @ann  /agent local please
    note  There is no agent nobody. /agent lists those you can talk to.
    note  The agent proxy answers here already. /new begins a new conversation with it.
    note  There is no agent local please. /agent lists those you can talk to.
    bot   Well
          (stopped)
    @ann  /agent local
    note  A new conversation begins here, with the agent local.
    ");
}

#[tokio::test(start_paused = true)]
async fn an_agent_talks_only_to_those_on_its_list() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    room.says("@bob", "/agent").await;
    assert!(!last(&room).await.contains("local"), "{}", room.now());
    room.says("@bob", "/agent local").await;
    insta::assert_snapshot!(last(&room).await, @"You may not talk to the agent local. /agent lists those you can talk to.");
    room.says("@ann", "/agent local").await;
    room.settled().await;
    room.says("@bob", "let me in").await;
    insta::assert_snapshot!(last(&room).await, @"You may not talk to the agent local. /agent lists those you can talk to.");
    insta::assert_snapshot!(audited(&gateway, 3).await.join("\n"), @"
    @bob:test command agent false agent
    @ann:test command agent true everybody
    @bob:test message false agent
    ");
    room.says("@bob", "/new let me in").await;
    assert!(last(&room).await.contains("may not talk to the agent local"), "{}", room.now());
    assert!(gateway.stand_in().heard().is_empty());
    for who in ["@ann", "@root"] {
        room.says(who, "hello").await;
        room.settled().await;
    }
    assert_eq!(gateway.stand_in().heard().len(), 2);
    assert!(gateway.agent_itself().heard().is_empty(), "nothing went to the other agent");
}

#[tokio::test(start_paused = true)]
async fn an_agents_list_can_name_a_room() {
    let gateway = TestGateway::start().await;
    let access = AgentAccess { places: ["!all".into()].into(), ..AgentAccess::default() };
    let (account, agents) = guarded(access);
    gateway.reload_agents(account, agents);
    for room in [gateway.shared_room(), gateway.room()] {
        room.says("@bob", "/agent local").await;
        room.says("@bob", "hello").await;
        room.settled().await;
    }
    assert_eq!((gateway.stand_in().heard().len(), gateway.agent_itself().heard().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_agent_of_a_room_refuses_those_who_are_not_on_its_list() {
    let gateway = TestGateway::start().await;
    let (account, agents) = guarded(only_ann());
    let place = PlaceRules { agent: Some(AgentName::local()), ..PlaceRules::default() };
    let account = AccountRules { places: HashMap::from([("!all".into(), place)]), ..account };
    gateway.reload_agents(account, agents);
    let room = gateway.shared_room();
    for who in ["@bob", "@ann"] {
        room.says(who, "hello").await;
        room.settled().await;
    }
    assert_eq!((gateway.stand_in().heard().len(), gateway.agent_itself().heard().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_is_not_asked_once_its_author_is_off_the_list() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@bob", "/agent local").await;
    let running = gateway.stand_in().script().then_hangs();
    room.says("@bob", "one").await;
    running.is_hanging().await;
    room.says("@bob", "two").await;
    room.settled().await;
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    running.goes_on();
    insta::assert_snapshot!(last(&room).await, @"⚠️ You may not talk to the agent local. /agent lists those you can talk to.");
    assert_eq!(gateway.stand_in().heard().len(), 1);
    assert!(gateway.agent_itself().heard().is_empty());
    // It is not asked again either.
    room.says("@bob", "/retry").await;
    assert!(last(&room).await.contains("may not talk to the agent local"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_tried_again_is_not_asked_once_its_author_is_off_the_list() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@bob", "/agent local").await;
    room.settled().await;
    gateway.stand_in().script().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    room.says("@bob", "one").await;
    room.shows("Trying again").await;
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    insta::assert_snapshot!(last(&room).await, @"⚠️ You may not talk to the agent local. /agent lists those you can talk to.");
    assert_eq!(gateway.stand_in().heard().len(), 1, "only the try before");
    assert!(gateway.agent_itself().heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_question_is_not_asked_if_its_author_lost_the_agent_while_the_request_was_made() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@bob", "/agent local").await;
    room.settled().await;
    let making = gateway.stand_in().prepares_slowly();
    room.says("@bob", "one").await;
    room.settled().await;
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    making.open();
    insta::assert_snapshot!(last(&room).await, @"⚠️ You may not talk to the agent local. /agent lists those you can talk to.");
    assert!(gateway.stand_in().heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_fallback_answers_only_those_on_its_list() {
    let gateway = TestGateway::with(Setup { fallback: true, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    gateway.agent_itself().goes_away();
    room.says("@bob", "one").await;
    room.shows("Trying again").await;
    assert!(gateway.stand_in().heard().is_empty());
    gateway.agent_itself().comes_back();
    insta::assert_snapshot!(room.settled().await, @"
    @bob  one
    bot   ok
    ");
    assert!(gateway.stand_in().heard().is_empty(), "the question waited for the agent itself");
    gateway.agent_itself().goes_away();
    room.says("@ann", "two").await;
    room.settled().await;
    assert_eq!(gateway.stand_in().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_runs_keeps_its_agent_and_those_behind_it_are_told_that_it_is_gone() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/agent local").await;
    let running = gateway.stand_in().script().says(["Still "]).then_hangs().says(["here."]);
    room.says("@ann", "one").await;
    running.is_hanging().await;
    room.says("@ann", "two").await;
    room.settled().await;
    gateway.removes_local();
    running.goes_on();
    room.settled().await;
    room.says("@ann", "three").await;
    insta::assert_snapshot!(room.settled().await, @"
    @ann  /agent local
    @ann  one
    note  A new conversation begins here, with the agent local.
    @ann  two
    note  Queued: one other message comes first. /stop ends both.
    bot   Still here.
    note  ⚠️ The agent local is no longer there. /agent lists the others; /agent default goes back to the usual one.
    @ann  three
    note  The agent local is no longer there. /agent lists the others; /agent default goes back to the usual one.
    ");
    room.says("@ann", "/agent default").await;
    room.says("@ann", "four").await;
    room.settled().await;
    assert_eq!((gateway.stand_in().heard().len(), gateway.agent_itself().heard().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn status_names_the_agent_of_the_session_and_says_that_it_is_gone() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/agent local").await;
    room.settled().await;
    gateway.removes_local();
    room.says("@ann", "/status").await;
    let status = last(&room).await;
    let lines: Vec<_> = status.lines().collect();
    assert!(lines[1].starts_with("Agent: local. Session "), "{status}");
    assert_eq!(
        lines[2..],
        [
            "The agent local is no longer there. /agent lists the others; /agent default goes back to the usual one."
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_session_does_not_keep_an_agent_that_is_gone() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for text in ["/agent local", "one"] {
        room.says("@ann", text).await;
        room.settled().await;
    }
    gateway.removes_local();
    for text in ["/new", "two"] {
        room.says("@ann", text).await;
        room.settled().await;
    }
    assert_eq!((gateway.stand_in().heard().len(), gateway.agent_itself().heard().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_told_what_is_written_for_all_and_for_itself() {
    let gateway =
        TestGateway::with(Setup { context: "Be kind.".to_owned(), names: false, ..Setup::default() }).await;
    let (account, mut agents) = guarded(AgentAccess::everybody());
    if let Some(policy) = agents.by_name.get_mut(&AgentName::local()) {
        policy.instructions = "Be brief.".to_owned();
    }
    gateway.reload_agents(account, agents);
    let room = gateway.room();
    for text in ["one", "/agent local", "two"] {
        room.says("@ann", text).await;
        room.settled().await;
    }
    assert_eq!(gateway.agent_itself().heard()[0].context, "Be kind.");
    assert_eq!(gateway.stand_in().heard()[0].context, "Be kind.\n\nBe brief.");
}

#[tokio::test(start_paused = true)]
async fn the_fallback_is_told_what_is_written_for_itself() {
    let setup = Setup { context: "Be kind.".to_owned(), names: false, fallback: true, ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    let (account, mut agents) = guarded(AgentAccess::everybody());
    for (name, policy) in &mut agents.by_name {
        policy.instructions = format!("You are {name}.");
    }
    gateway.reload_agents(account, agents);
    gateway.agent_itself().goes_away();
    gateway.room().says("@ann", "one").await;
    gateway.room().settled().await;
    assert_eq!(gateway.stand_in().heard()[0].context, "Be kind.\n\nYou are local.");
}

#[tokio::test(start_paused = true)]
async fn an_edit_does_not_ask_an_agent_again_that_its_author_may_no_longer_talk_to() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@bob", "/agent local").await;
    room.settled().await;
    let asked = room.says("@bob", "one").await;
    room.settled().await;
    let (account, agents) = guarded(only_ann());
    gateway.reload_agents(account, agents);
    room.edits("@bob", &asked, "two").await;
    assert!(last(&room).await.contains("You may not talk to the agent local"), "{}", room.now());
    assert_eq!(gateway.stand_in().heard().len(), 1, "the answer there is stays");
}
