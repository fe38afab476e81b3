//! Turns before, across and after a switch: each request goes to its own runtime, and each runtime has sessions of its own.

use talaria::access::AgentAccess;
use talaria::agent::AgentErrorKind;
use talaria::ids::AgentName;
use talaria::rules::AgentPolicy;

use super::{rules, setup};
use crate::support::fake_codex::FakeCodex;
use crate::support::gateway::{Setup, TestGateway, open_agents};
use crate::support::scripted::{Heard, Scripted};

/// The texts of the history that a turn got.
fn history(heard: &Heard) -> Vec<&str> {
    heard.history.iter().map(|message| message.content.as_str()).collect()
}

fn prompts(agent: &Scripted) -> Vec<String> {
    agent.heard().into_iter().map(|heard| heard.prompt).collect()
}

#[tokio::test]
async fn a_switch_holds_from_the_next_message_on_with_the_history_and_without_the_old_thread() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let (room, model, runtime) = (gateway.room(), gateway.stand_in(), gateway.codex());
    gateway.answers(&room, "@ann", "one").await;
    room.is_answered("@ann", "/codex-runtime on").await;
    runtime.script().reports(serde_json::json!({ "thread": "t1" })).says(["by codex"]);
    gateway.answers(&room, "@ann", "two").await;
    gateway.answers(&room, "@ann", "three").await;
    let first = runtime.heard();
    assert_eq!(
        (prompts(model), prompts(runtime)),
        (vec!["one".to_owned()], vec!["two".into(), "three".into()])
    );
    assert_eq!(history(&first[0]), ["one", "ok"], "codex is given what was said before");
    assert_eq!((&first[0].upstream, first[1].upstream.is_some()), (&None, true), "one thread for both");
    assert_eq!(first[0].session, first[1].session);
    assert_ne!(first[0].session, model.heard()[0].session, "a session of its own");

    let told = runtime.is_told();
    room.is_answered("@ann", "/codex-runtime off").await;
    gateway.answers(&room, "@ann", "four").await;
    assert_eq!(history(&model.heard()[1]), ["one", "ok", "two", "by codex", "three", "ok"]);
    // Codex is told that its thread is over.
    told.opened().await;
    let ended: Vec<_> = runtime.ended().into_iter().map(|ended| (ended.session.0, ended.upstream)).collect();
    assert_eq!(ended, [(first[0].session.clone(), serde_json::json!({ "thread": "t1" }))]);

    room.is_answered("@ann", "/codex-runtime on").await;
    gateway.answers(&room, "@ann", "five").await;
    let last = runtime.heard().pop().unwrap();
    assert_eq!((last.upstream.is_none(), history(&last).len()), (true, 8), "a new thread with all of it");
}

#[tokio::test]
async fn the_choice_and_the_thread_survive_a_restart_and_status_names_the_runtime() {
    let codex = FakeCodex::new("0.130.0");
    let mut gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    let before = room.is_answered("@ann", "/status").await;
    assert!(before.contains("Agent: model small."), "{before}");
    room.is_answered("@ann", "/codex-runtime on").await;
    gateway.codex().script().reports(serde_json::json!({ "thread": "t1" })).says(["by codex"]);
    gateway.answers(&room, "@ann", "one").await;
    gateway.restart().await;
    gateway.answers(&room, "@ann", "two").await;
    let heard = gateway.codex().heard();
    assert_eq!(heard[1].upstream, Some(serde_json::json!({ "thread": "t1" })));
    let status = room.is_answered("@ann", "/status").await;
    assert!(status.contains("Agent: codex app-server in place of model small."), "{status}");
    assert_eq!(gateway.operator().status().await["agent"], "codex app-server in place of model small");
}

#[tokio::test]
async fn a_stored_request_goes_to_its_runtime_although_the_agent_was_switched_while_nothing_ran() {
    let codex = FakeCodex::new("0.130.0");
    let mut gateway = TestGateway::with(Setup { stand_in_resumable: true, ..setup(&codex) }).await;
    let room = gateway.room();
    room.is_answered("@ann", "/codex-runtime on").await;
    let running = gateway.codex().script().says(["Let me think"]).then_hangs();
    room.says("@ann", "plan my week").await;
    running.is_hanging().await;
    gateway.kill().await;
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    assert_eq!(database.execute("DELETE FROM agent_runtimes", []).unwrap(), 1);
    drop(database);
    gateway.codex().script().says(["Let me think", " by codex"]);
    gateway.restart().await;
    gateway.room().shows("Let me think by codex").await;
    let heard = gateway.codex().heard();
    assert_eq!((heard.len(), heard[1].resumed), (2, true));
    assert_eq!(heard[0].request, heard[1].request);
    assert_eq!(gateway.stand_in().heard().len(), 0, "the model never gets a request of codex");
    gateway.idle().await;
    gateway.answers(&gateway.room(), "@ann", "and now").await;
    assert_eq!(prompts(gateway.stand_in()), ["and now"]);
}

#[tokio::test]
async fn a_stored_request_of_codex_runs_nowhere_once_the_agent_cannot_be_switched() {
    let codex = FakeCodex::new("0.130.0");
    let mut gateway = TestGateway::with(Setup { stand_in_resumable: true, ..setup(&codex) }).await;
    let room = gateway.room();
    room.is_answered("@ann", "/codex-runtime on").await;
    let running = gateway.codex().script().says(["Let me think"]).then_hangs();
    room.says("@ann", "plan my week").await;
    running.is_hanging().await;
    gateway.kill().await;
    gateway.setup().switches = talaria::agents::runtime_switch::SwitchTable::default();
    gateway.restart().await;
    gateway.room().shows("interrupted").await;
    assert_eq!((gateway.codex().heard().len(), gateway.stand_in().heard().len()), (1, 0));
}

#[tokio::test]
async fn a_turn_that_waits_while_nothing_ran_follows_the_switch() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let (room, other) = (gateway.room(), gateway.direct_room("!other"));
    let slow = gateway.stand_in().prepares_slowly();
    room.says("@ann", "one").await;
    // The request is made for the model, and before it is stored the agent is switched.
    other.is_answered("@ann", "/codex-runtime on").await;
    slow.open();
    room.has_messages(1).await;
    assert_eq!((prompts(gateway.stand_in()).len(), prompts(gateway.codex())), (0, vec!["one".to_owned()]));
}

#[tokio::test]
async fn a_failed_turn_of_codex_says_how_to_switch_back() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.room();
    room.is_answered("@ann", "/codex-runtime on").await;
    gateway.codex().script().says(["Half an ans"]).then_fails(AgentErrorKind::CutShort, "codex has ended");
    room.says("@ann", "one").await;
    room.shows("(cut short: codex has ended; an admin can switch back with `/codex-runtime auto`)").await;
    gateway.codex().script().then_fails(AgentErrorKind::Refused, "codex does not start.");
    room.says("@ann", "two").await;
    room.shows("⚠️ codex does not start. An admin can switch back with `/codex-runtime auto`.").await;
    room.is_answered("@ann", "/codex-runtime auto").await;
    gateway.stand_in().script().then_fails(AgentErrorKind::Refused, "The model does not answer.");
    room.says("@ann", "three").await;
    room.shows("⚠️ The model does not answer.").await;
    assert!(!room.ours().pop().unwrap().contains("switch"), "{}", room.now());
}

#[tokio::test]
async fn on_codex_an_agent_is_for_admins_unless_its_list_says_otherwise() {
    let codex = FakeCodex::new("0.130.0");
    let gateway = TestGateway::with(setup(&codex)).await;
    let room = gateway.shared_room();
    gateway.answers(&room, "@bob", "one").await;
    room.is_answered("@ann", "/codex-runtime on").await;
    let refused = room.is_answered("@bob", "two").await;
    assert!(refused.starts_with("You may not talk to the agent local."), "{refused}");
    gateway.answers(&room, "@ann", "three").await;
    assert_eq!(prompts(gateway.codex()).len(), 1, "only the admin was heard");
    // With a list of its own, that list holds on both runtimes.
    let access = AgentAccess::everybody();
    let mut agents = open_agents();
    let runtime = Some(talaria::rules::AgentRuntime::Auto);
    let policy = AgentPolicy { codex_access: access.clone(), access, runtime, ..AgentPolicy::default() };
    agents.by_name.insert(AgentName::local(), policy);
    gateway.reload_agents(rules(), agents);
    gateway.answers(&room, "@bob", "four").await;
    assert_eq!(prompts(gateway.codex()).len(), 2);
}
