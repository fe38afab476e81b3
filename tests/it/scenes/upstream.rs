//! An agent's reports about a session: stored, given back to that agent alone, and used to tell it that the session is
//! over.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, UPSTREAM_BYTES};
use talaria::ids::AgentName;
use talaria::rules::{AccountRules, PlaceRules, SessionReset, SessionRules};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;
use crate::support::scripted::Scripted;

async fn says(room: &Room, text: &str) {
    room.says("@ann", text).await;
    room.settled().await;
}

/// What was given back with each turn, in order.
fn given_back(agent: &Scripted) -> Vec<Option<Value>> {
    agent.heard().into_iter().map(|turn| turn.upstream).collect()
}

/// The reports of the sessions that the agent was told are over.
fn ended(agent: &Scripted) -> Vec<Value> {
    agent.ended().into_iter().map(|ended| ended.upstream).collect()
}

/// Waits until nothing happens any more: ends are told after everything else.
async fn quiet(gateway: &TestGateway) {
    gateway.chat().is_quiet(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_report_is_given_back_in_the_next_turns_also_after_a_restart() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!({ "thread": 1 })).says(["one"]);
    gateway.agent().says(["two"]);
    gateway
        .agent()
        .reports(json!({ "thread": 2 }))
        .reports(json!({ "thread": 3, "cwd": "/tmp" }))
        .says(["three"]);
    for text in ["one", "two", "three"] {
        says(&room, text).await;
    }
    gateway.restart().await;
    says(&room, "four").await;

    let (first, last) = (json!({ "thread": 1 }), json!({ "thread": 3, "cwd": "/tmp" }));
    assert_eq!(given_back(gateway.agent_itself()), [None, Some(first.clone()), Some(first), Some(last)]);
    assert_eq!(gateway.agent_itself().ended(), []);
}

#[tokio::test(start_paused = true)]
async fn a_report_is_on_disk_while_the_turn_still_runs() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let hanging = gateway.agent().reports(json!("thread 1")).says(["Let me "]).then_hangs();
    room.says("@ann", "one").await;
    hanging.is_hanging().await;
    // The report is the job before this one.
    gateway.store().write(|_| Ok(())).await.unwrap();
    gateway.kill().await;
    gateway.restart().await;
    let room = gateway.room();
    room.settled().await;
    says(&room, "two").await;

    assert_eq!(given_back(gateway.agent_itself()), [None, Some(json!("thread 1"))]);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_turn_has_what_its_first_try_reported() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let hanging = gateway.agent().reports(json!("thread 1")).says(["Let me "]).then_hangs();
    room.says("@ann", "one").await;
    hanging.is_hanging().await;
    gateway.restart().await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!((heard[1].resumed, heard[1].upstream.clone()), (true, Some(json!("thread 1"))));
    assert_eq!(heard[1].session, heard[0].session);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_turn_stays_in_its_session_if_the_history_changed_meanwhile() {
    let mut gateway = TestGateway::with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    let first = room.says("@ann", "one").await;
    room.settled().await;
    let hanging = gateway.agent().reports(json!("thread 1")).says(["Let me "]).then_hangs();
    room.says("@ann", "two").await;
    hanging.is_hanging().await;
    room.deletes("@ann", &first).await;
    room.settled().await;
    gateway.restart().await;
    room.settled().await;
    says(&room, "three").await;

    let heard = gateway.agent_itself().heard();
    assert_eq!((heard[2].resumed, heard[2].upstream.clone()), (true, Some(json!("thread 1"))));
    assert_eq!(heard[2].session, heard[1].session, "the run to resume is in that one");
    assert_eq!(
        (heard[3].session.clone(), heard[3].upstream.clone()),
        (format!("{}.1", heard[0].session), None)
    );
}

#[tokio::test(start_paused = true)]
async fn after_new_the_agent_is_told_once_and_begins_without_it() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    says(&room, "one").await;
    for _ in 0..2 {
        says(&room, "/new").await;
    }
    quiet(&gateway).await;
    let session = gateway.agent_itself().heard()[0].session.clone();
    let told = gateway.agent_itself().ended();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].session.0.clone(), told[0].upstream.clone()), (session, json!("thread 1")));
    assert_eq!(told[0].agent, AgentName::proxy());

    says(&room, "two").await;
    // Nothing was reported in this session, so there is nothing to free.
    says(&room, "/new").await;
    gateway.restart().await;
    quiet(&gateway).await;
    assert_eq!(given_back(gateway.agent_itself()), [None, None]);
    assert_eq!(ended(gateway.agent_itself()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_taken_up_again_begins_without_it_too() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    gateway.agent().reports(json!("thread 2")).says(["two"]);
    for text in ["one", "/new", "/resume 1", "two", "/new"] {
        says(&room, text).await;
    }
    quiet(&gateway).await;
    let heard = gateway.agent_itself().heard();
    assert_eq!((heard[1].upstream.clone(), heard[1].history.len()), (None, 2));
    assert_eq!(ended(gateway.agent_itself()), ["thread 1", "thread 2"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_place_another_one_takes_is_told() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    for text in ["one", "/agent local", "two"] {
        says(&room, text).await;
    }
    quiet(&gateway).await;
    assert_eq!(given_back(gateway.stand_in()), [None]);
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
    assert_eq!(gateway.stand_in().ended(), []);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_by_time_is_told_too() {
    let setup = Setup::default();
    let hour = Duration::from_secs(60 * 60);
    let session = SessionRules { reset: SessionReset::Idle { after: hour }, ..SessionRules::default() };
    let rules = AccountRules { session, ..setup.rules.clone() };
    let gateway = TestGateway::with(Setup { rules, ..setup }).await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    says(&room, "one").await;
    tokio::time::sleep(2 * hour).await;
    says(&room, "two").await;
    quiet(&gateway).await;

    assert_eq!(given_back(gateway.agent_itself()), [None, None]);
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_history_is_another_session_to_the_agent() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says(["one"]);
    gateway.agent().reports(json!("thread 1")).says(["two"]);
    for text in ["one", "two", "/undo", "three"] {
        says(&room, text).await;
    }
    quiet(&gateway).await;
    let heard = gateway.agent_itself().heard();
    assert_eq!(given_back(gateway.agent_itself()), [None, None, None]);
    assert_ne!(heard[2].session, heard[1].session);
    let told = gateway.agent_itself().ended();
    assert_eq!((told.len(), told[0].session.0.clone()), (1, heard[1].session.clone()), "the old one is over");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_session_is_told_also_if_the_next_turn_is_tried_twice() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after: None }, "The agent is busy.");
    for text in ["one", "/undo", "two"] {
        says(&room, text).await;
    }
    quiet(&gateway).await;
    assert_eq!(gateway.agent_itself().heard().len(), 3);
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_told_too() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    says(&room, "one").await;
    let told = gateway.agent_itself().is_told();
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    database.execute_batch("UPDATE sessions SET expires = 1").unwrap();
    // Something is written, so that the store looks for what has expired.
    gateway.shared_room().says("@ann", "/status").await;
    told.opened().await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
}

#[tokio::test(start_paused = true)]
async fn two_agents_in_one_session_do_not_see_each_others_reports() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let everybody = Setup::default().rules;
    let place = PlaceRules { agent: Some(AgentName::local()), ..PlaceRules::default() };
    let with_model = AccountRules { places: HashMap::from([("!all".into(), place)]), ..everybody.clone() };
    gateway.agent().reports(json!("of the first")).says(["one"]);
    gateway.stand_in().script().reports(json!("of the second")).says(["two"]);
    says(&room, "one").await;
    gateway.reload(with_model.clone());
    says(&room, "two").await;
    says(&room, "three").await;
    // The first agent does not know what the second answered, so the session is another one to it.
    gateway.reload(everybody);
    says(&room, "four").await;
    says(&room, "/new").await;
    quiet(&gateway).await;

    assert_eq!(given_back(gateway.agent_itself()), [None, None]);
    assert_eq!(given_back(gateway.stand_in()), [None, Some(json!("of the second"))]);
    assert_eq!(ended(gateway.agent_itself()), ["of the first"]);
    assert_eq!(ended(gateway.stand_in()), ["of the second"]);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_has_reports_of_its_own() {
    let gateway = TestGateway::with(Setup { fallback: true, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().reports(json!("of the first")).says(["one"]);
    says(&room, "one").await;
    gateway.agent_itself().goes_away();
    gateway.stand_in().script().reports(json!("of the second")).says(["two"]);
    says(&room, "two").await;
    says(&room, "three").await;
    says(&room, "/new").await;
    quiet(&gateway).await;

    assert_eq!(given_back(gateway.agent_itself()), [None]);
    assert_eq!(given_back(gateway.stand_in()), [None, Some(json!("of the second"))]);
    assert_eq!(ended(gateway.agent_itself()), ["of the first"]);
    assert_eq!(ended(gateway.stand_in()), ["of the second"]);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_too_large_is_dropped_with_the_one_before_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let largest = json!("x".repeat(UPSTREAM_BYTES - 2));
    gateway.agent().reports(largest.clone()).says(["one"]);
    gateway.agent().reports(json!("x".repeat(UPSTREAM_BYTES - 1))).says(["two"]);
    for text in ["one", "two", "three"] {
        says(&room, text).await;
    }
    assert_eq!(given_back(gateway.agent_itself()), [None, Some(largest), None]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_not_told_before_its_last_turn_of_the_session_has_ended() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let script = gateway.agent().reports(json!("thread 1")).then_ignores_everything();
    room.says("@ann", "one").await;
    script.is_hanging().await;
    room.says("@ann", "/new").await;
    room.shows("note").await;
    assert_eq!(gateway.agent_itself().ended(), [], "its turn has four seconds to end");
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_free_a_session_holds_up_nobody_for_long() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    gateway.agent().reports(json!("thread 2")).says(["two"]);
    gateway.agent_itself().never_frees();
    for text in ["one", "/new", "two", "/new", "three"] {
        says(&room, text).await;
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1", "thread 2"]);
}

#[tokio::test(start_paused = true)]
async fn agents_are_told_of_several_sessions_at_once() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for number in 1..=4 {
        gateway.agent().reports(json!(format!("thread {number}"))).says(["ok"]);
    }
    let told = gateway.agent_itself().never_frees();
    says(&room, "one").await;
    says(&room, "/new").await;
    told.opened().await;
    // These are over while the first call hangs, and the second call hangs, too.
    gateway.agent_itself().never_frees();
    for text in ["two", "/new", "three", "/new", "four", "/new"] {
        says(&room, text).await;
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1", "thread 2", "thread 3", "thread 4"]);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_a_crash_interrupted_is_told_again() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    says(&room, "one").await;
    let told = gateway.agent_itself().never_frees();
    room.says("@ann", "/new").await;
    told.opened().await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1"]);
    gateway.kill().await;
    gateway.restart().await;
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1", "thread 1"]);
    gateway.restart().await;
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_taken_up_while_its_end_is_told_begins_without_its_report() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().reports(json!("thread 1")).says(["one"]);
    gateway.agent().reports(json!("thread 2")).says(["two"]);
    says(&room, "one").await;
    let told = gateway.agent_itself().never_frees();
    room.says("@ann", "/new").await;
    told.opened().await;
    room.says("@ann", "/resume 1").await;
    room.says("@ann", "two").await;
    room.settled().await;
    assert_eq!(given_back(gateway.agent_itself()), [None, None]);
    // It is over once more while the first call still hangs.
    says(&room, "/new").await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()), ["thread 1", "thread 2"]);
    gateway.restart().await;
    quiet(&gateway).await;
    assert_eq!(ended(gateway.agent_itself()).len(), 2);
}
