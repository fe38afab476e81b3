//! If an answer was lost on the way, a plain agent server that keeps sessions is asked for it, never for another run.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::relay::{proxy, relay, relay_as};
use crate::support::upstream::{Answer, Gate, Upstream, delta};

/// hermes-agent's own description of its capabilities.
fn capabilities() -> Answer {
    let features = json!({
        "chat_completions": true, "approval_events": true, "session_resources": true,
        "session_continuity_header": "X-Hermes-Session-Id",
    });
    Answer::status(200, &json!({ "features": features }).to_string())
}

async fn upstream() -> Upstream {
    Upstream::with_capabilities(capabilities()).await
}

/// Starts the server again, at the address of an earlier one.
async fn upstream_at(address: SocketAddr) -> Upstream {
    Upstream::at(address, capabilities()).await
}

fn session(messages: &[Value]) -> Answer {
    Answer::status(200, &json!({ "object": "list", "data": messages }).to_string())
}

fn user(text: &str) -> Value {
    json!({ "id": 1, "role": "user", "content": text, "tool_calls": null })
}

fn agent(text: &str) -> Value {
    json!({ "id": 2, "role": "assistant", "content": text, "tool_calls": null, "finish_reason": "stop" })
}

fn calls_a_tool() -> Value {
    json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c1" }], "finish_reason": "tool_calls" })
}

/// An answer that breaks off after its beginning.
fn cut() -> Answer {
    Answer::stream().sends(delta("Let me look. ")).closes()
}

/// Asks, and checks that nothing runs twice, whatever is looked up.
async fn asked(gateway: &TestGateway, upstream: &Upstream, shows: &str) {
    let before = upstream.prompts().len();
    gateway.room().says("@ann", "and now?").await;
    gateway.room().shows(shows).await;
    assert_eq!(upstream.prompts().len(), before + 1);
}

const LOST: &str = "Let me look.\n\n(cut short: the connection was lost — /retry runs it again)";

fn shown(text: &str) -> String {
    text.replace("\n\n", "\n      ")
}

#[tokio::test]
async fn an_answer_that_is_there_is_shown_and_remembered() {
    let upstream = upstream().await;
    let tool = json!({ "role": "tool", "content": "42" });
    upstream.answers(cut()).answers_at(
        "/messages",
        [session(&[user("and now?"), calls_a_tool(), tool, agent("It is **42**.")])],
    );
    let gateway = relay(&upstream.url(), Some("a key of our own, long enough")).await;
    asked(&gateway, &upstream, "bot   It is **42**.").await;
    let [look] = upstream.requests_to("/messages").try_into().expect("one look");
    let session = upstream.prompts()[0].header("x-hermes-session-id").unwrap().to_owned();
    let path = format!("/api/sessions/{session}/messages");
    assert_eq!((look.method.as_str(), look.path.as_str()), ("GET", path.as_str()));
    assert_eq!(look.header("authorization"), Some("Bearer a key of our own, long enough"));
    gateway.room().says("@ann", "thanks").await;
    upstream.has_prompts(2).await;
    let expected = [("user", "and now?"), ("assistant", "It is **42**."), ("user", "thanks")];
    let told: Vec<_> = upstream.messages()[1].clone();
    let told: Vec<_> = told.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
    assert!(told.ends_with(&expected), "{told:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_ready_is_waited_for_with_words() {
    let (upstream, gate) = (upstream().await, Gate::new());
    upstream.answers(cut()).answers_at(
        "/messages",
        [
            session(&[]),
            session(&[user("and now?"), calls_a_tool()]),
            Answer::bytes("").waits(&gate).then(session(&[user("and now?"), agent("Late, but here.")])),
        ],
    );
    let gateway = relay(&upstream.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "and now?").await;
    room.shows("Waiting for the answer to be ready there.").await;
    gate.open();
    room.shows("bot   Late, but here.").await;
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn after_a_restart_or_a_crash_the_answer_is_still_found() {
    for crash in [false, true] {
        let (upstream, gate) = (upstream().await, Gate::new());
        upstream
            .answers(Answer::stream().sends(delta("Let me look. ")).waits(&gate).hangs())
            .answers_at("/messages", [session(&[user("and now?"), agent("It is 42.")])]);
        let mut gateway = relay(&upstream.url(), None).await;
        gateway.room().says("@ann", "and now?").await;
        gateway.room().shows("Let me look.").await;
        if crash {
            gateway.kill().await;
        }
        gateway.restart().await;
        let room = gateway.room();
        room.shows("bot   It is 42.").await;
        assert_eq!((upstream.prompts().len(), room.ours().len()), (1, 1), "crash: {crash}");
    }
}

/// A message as hermes-agent stores it for an interrupted agent.
fn interrupted(text: &str) -> Value {
    json!({ "id": 2, "role": "assistant", "content": text, "tool_calls": null, "finish_reason": null })
}

#[tokio::test]
async fn a_part_of_an_answer_is_shown_as_cut_short() {
    let upstream = upstream().await;
    let more = interrupted("Let me look. It is 4");
    upstream.answers(cut()).answers_at("/messages", [session(&[user("and now?"), more])]);
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, &shown(&LOST.replace("look.", "look. It is 4"))).await;
}

#[tokio::test]
async fn a_part_that_is_no_more_than_people_have_read_changes_nothing() {
    // The last message of a turn with tools lacks the text before the tool call.
    for part in ["Let me", "Operation interrupted: the reader of the stream has left."] {
        let upstream = upstream().await;
        upstream.answers(cut()).answers_at("/messages", [session(&[user("and now?"), interrupted(part)])]);
        let gateway = relay(&upstream.url(), None).await;
        asked(&gateway, &upstream, &shown(LOST)).await;
    }
}

#[tokio::test]
async fn after_a_restart_or_a_crash_a_part_is_shown_as_interrupted() {
    for crash in [false, true] {
        let (upstream, gate) = (upstream().await, Gate::new());
        upstream
            .answers(Answer::stream().sends(delta("Let me look. ")).waits(&gate).hangs())
            .answers_at("/messages", [session(&[user("and now?"), interrupted("Let me look. It is 4")])]);
        let mut gateway = relay(&upstream.url(), None).await;
        gateway.room().says("@ann", "and now?").await;
        gateway.room().shows("Let me look.").await;
        if crash {
            gateway.kill().await;
        } else {
            gateway.drain().await;
            gateway.room().shows("(unfinished: the gateway was stopped and goes on when it is back)").await;
        }
        gateway.restart().await;
        let room = gateway.room();
        room.shows(&shown("bot   Let me look. It is 4\n\n(interrupted — /retry runs it again)")).await;
        assert_eq!((upstream.prompts().len(), room.ours().len()), (1, 1), "crash: {crash}");
    }
}

/// hermes-agent dies in the middle of an answer and is started again: its text so far is lost, and nothing continues
/// it.
#[tokio::test]
async fn a_server_that_came_back_without_the_answer_is_not_waited_for() {
    for left in
        [vec![], vec![calls_a_tool()], vec![calls_a_tool(), json!({ "role": "tool", "content": "42" })]]
    {
        let (first, gate) = (upstream().await, Gate::new());
        first.answers(Answer::stream().sends(delta("Let me look. ")).waits(&gate).hangs());
        let gateway = relay(&first.url(), None).await;
        let room = gateway.room();
        room.says("@ann", "and now?").await;
        room.shows("Let me look.").await;
        let address = first.dies().await;
        room.shows("Waiting for the answer to be ready there.").await;
        let second = upstream_at(address).await;
        let messages: Vec<_> = std::iter::once(user("and now?")).chain(left).collect();
        second.answers_at("/messages", [session(&messages)]);
        let back = std::time::Instant::now();
        room.shows(&shown(LOST)).await;
        assert!(back.elapsed().as_secs() < 10, "{:?}", back.elapsed());
        assert_eq!((second.prompts().len(), second.requests_to("/messages").len()), (0, 1));
    }
}

/// hermes-agent closes its port before its agents have ended: the answer may be there when it is back.
#[tokio::test]
async fn a_server_that_came_back_with_the_answer_is_believed() {
    let (first, gate) = (upstream().await, Gate::new());
    first.answers(Answer::stream().sends(delta("Let me look. ")).waits(&gate).hangs());
    let gateway = relay(&first.url(), None).await;
    let room = gateway.room();
    room.says("@ann", "and now?").await;
    room.shows("Let me look.").await;
    let address = first.dies().await;
    room.shows("Waiting for the answer to be ready there.").await;
    let second = upstream_at(address).await;
    second.answers_at("/messages", [session(&[user("and now?"), agent("It is 42.")])]);
    room.shows("bot   It is 42.").await;
    assert_eq!(second.prompts().len(), 0);
}

/// A question as hermes-agent stores it, with this time of its clock.
fn user_at(text: &str, timestamp: f64) -> Value {
    json!({ "id": 1, "role": "user", "content": text, "tool_calls": null, "timestamp": timestamp })
}

/// hermes-agent's report that its API server listens since this time of its clock.
fn health(state: &str, updated_at: &str) -> Answer {
    let server = json!({ "state": state, "updated_at": updated_at });
    let platforms = json!({ "api_server": server });
    Answer::status(200, &json!({ "status": "ok", "pid": 7, "platforms": platforms }).to_string())
}

/// 03:48:30 of the day on which the server starts in the scenes below.
const ASKED_AT: f64 = 1_794_973_710.1;

/// Either hermes-agent was back before the first look, or a relay between us accepts connections: no connection was
/// refused.
#[tokio::test]
async fn a_server_that_started_after_the_question_is_not_waited_for() {
    let (at_once, later) = ("2026-11-18T03:48:30.900000+00:00", "2026-11-18T03:48:34.488867+00:00");
    for (left, started) in [(vec![], later), (vec![calls_a_tool()], later), (vec![], at_once)] {
        let upstream = upstream().await;
        let messages: Vec<_> = std::iter::once(user_at("and now?", ASKED_AT)).chain(left).collect();
        upstream
            .answers(cut())
            .answers_at("/messages", [session(&messages)])
            .answers_at("/health/detailed", [health("connected", started)]);
        let gateway = relay(&upstream.url(), None).await;
        let broke = std::time::Instant::now();
        asked(&gateway, &upstream, &shown(LOST)).await;
        assert!(broke.elapsed().as_secs() < 10, "{:?}", broke.elapsed());
        assert_eq!(upstream.requests_to("/messages").len(), 1);
    }
}

/// The first look comes while the relay between us has no server behind it.
#[tokio::test]
async fn a_server_that_came_back_behind_a_relay_is_not_waited_for() {
    let upstream = upstream().await;
    let started = health("connected", "2026-11-18T03:48:34.488867+00:00");
    upstream
        .answers(cut())
        .answers_at("/messages", [Answer::status(502, ""), session(&[user_at("and now?", ASKED_AT)])])
        .answers_at("/health/detailed", [Answer::status(502, ""), started]);
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, &shown(LOST)).await;
    assert_eq!(upstream.requests_to("/messages").len(), 2);
}

#[tokio::test]
async fn a_server_that_may_still_work_on_the_question_is_waited_for() {
    let before = "2026-11-18T03:48:28.942057+00:00";
    let after = "2026-11-18T03:48:34.488867+00:00";
    for health in [
        health("connected", before),
        // It came up a moment before it was asked.
        health("connected", "2026-11-18T03:48:30.050000+00:00"),
        // The process that got the question ends, and records that.
        health("disconnected", after),
        health("connected", "lately"),
        Answer::unknown(),
        Answer::status(200, "<html>"),
    ] {
        let (upstream, question) = (upstream().await, user_at("and now?", ASKED_AT));
        upstream
            .answers(cut())
            .answers_at(
                "/messages",
                [session(std::slice::from_ref(&question)), session(&[question, agent("Late, but here.")])],
            )
            .answers_at("/health/detailed", [health]);
        let gateway = relay(&upstream.url(), None).await;
        asked(&gateway, &upstream, "bot   Late, but here.").await;
    }
}

#[tokio::test]
async fn a_cut_answer_is_asked_for_again_in_the_same_session() {
    let upstream = upstream().await;
    upstream
        .answers(cut())
        .answers(Answer::says(["It is 42."]))
        .answers_at("/messages", [session(&[user("and now?"), interrupted("Let me look. It")])]);
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, "/retry runs it again").await;
    gateway.room().says("@ann", "/retry").await;
    gateway.room().shows("bot   It is 42.").await;
    let prompts = upstream.prompts();
    let session = |at: usize| prompts[at].header("x-hermes-session-id").map(str::to_owned);
    assert_eq!((prompts.len(), session(0)), (2, session(1)));
    assert_eq!(upstream.messages()[1].last(), Some(&("user".to_owned(), "and now?".to_owned())));
}

/// Restarts the gateway; the next process does not know the server's capabilities yet.
async fn restarts_anew(gateway: &mut TestGateway, url: &str) {
    gateway.setup().agent = Some(proxy(url, None, ""));
    gateway.restart().await;
}

#[tokio::test]
async fn right_after_a_restart_an_answer_is_asked_for_again_in_the_same_session() {
    let upstream = upstream().await;
    upstream.answers(Answer::says(["First."])).answers(Answer::says(["Second."]));
    let mut gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, "First.").await;
    restarts_anew(&mut gateway, &upstream.url()).await;
    gateway.room().says("@ann", "/retry").await;
    gateway.room().shows("bot   Second.").await;
    let prompts = upstream.prompts();
    let session = |at: usize| prompts[at].header("x-hermes-session-id").map(str::to_owned);
    assert_eq!((prompts.len(), session(0)), (2, session(1)));
}

#[tokio::test]
async fn while_the_server_is_away_an_answer_is_asked_for_again_in_the_same_session() {
    let first = upstream().await;
    first.answers(Answer::says(["First."]));
    let mut gateway = relay(&first.url(), None).await;
    asked(&gateway, &first, "First.").await;
    let (url, session) = (first.url(), first.prompt().header("x-hermes-session-id").map(str::to_owned));
    let address = first.dies().await;
    restarts_anew(&mut gateway, &url).await;
    gateway.room().says("@ann", "/retry").await;
    gateway.room().shows("Trying again").await;
    let second = upstream_at(address).await;
    second.answers(Answer::says(["Second."]));
    gateway.room().shows("bot   Second.").await;
    assert_eq!(second.prompt().header("x-hermes-session-id").map(str::to_owned), session);
}

#[tokio::test]
async fn right_after_a_restart_a_server_that_keeps_nothing_forgets_the_first_answer() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["First."])).answers(Answer::says(["Second."]));
    let mut gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, "First.").await;
    restarts_anew(&mut gateway, &upstream.url()).await;
    gateway.room().says("@ann", "/retry").await;
    gateway.room().shows("bot   Second.").await;
    let told = upstream.messages();
    assert_eq!(told[1], told[0], "nothing was said before");
}

#[tokio::test]
async fn right_after_a_restart_nothing_is_undone_that_the_server_remembers() {
    let upstream = upstream().await;
    upstream.answers(Answer::says(["First."]));
    let mut gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, "First.").await;
    restarts_anew(&mut gateway, &upstream.url()).await;
    gateway.room().says("@ann", "/undo").await;
    gateway.room().shows("note").await;
    gateway.room().says("@ann", "thanks").await;
    upstream.has_prompts(2).await;
    let prompts = upstream.prompts();
    let session = |at: usize| prompts[at].header("x-hermes-session-id").map(str::to_owned);
    assert_eq!(session(0), session(1));
}

#[tokio::test]
async fn the_same_question_again_is_told_apart_by_how_often_it_was_answered() {
    let upstream = upstream().await;
    upstream.answers(Answer::says(["First."])).answers(cut()).answers_at(
        "/messages",
        [session(&[user("and now?"), agent("First."), user("and now?"), agent("Second.")])],
    );
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, "First.").await;
    asked(&gateway, &upstream, "bot   Second.").await;
}

#[tokio::test]
async fn an_answer_that_may_be_to_an_earlier_question_is_not_taken() {
    let upstream = upstream().await;
    // The outcome of the first question is unknown, so an answer after the second cannot be assigned.
    upstream
        .answers(cut())
        .answers(cut())
        .answers_at("/messages", [Answer::unknown(), session(&[user("and now?"), agent("Whose?")])]);
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, &shown(LOST)).await;
    gateway.room().says("@ann", "and now?").await;
    let twice = || gateway.room().now().matches("cut short").count() == 2;
    gateway.chat().until("both are given up", || twice().then_some(())).await;
    assert_eq!((upstream.prompts().len(), upstream.requests_to("/messages").len()), (2, 2));
}

#[tokio::test]
async fn what_somebody_else_said_there_makes_it_doubtful() {
    let upstream = upstream().await;
    let elsewhere = session(&[user("and now?"), agent("Whose?"), user("from a phone"), agent("Another.")]);
    upstream.answers(cut()).answers_at("/messages", [elsewhere]);
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, &shown(LOST)).await;
}

#[tokio::test]
async fn hostile_and_missing_answers_end_as_before() {
    let huge = format!("{{\"data\":[\"{}\"]}}", "x".repeat(9 * 1024 * 1024));
    let answers = [
        Answer::unknown(),
        Answer::status(401, ""),
        Answer::status(200, "<html>"),
        Answer::status(200, r#"{"data":{"0":7}}"#),
        Answer::status(200, r#"{"data":[7,null,"x"]}"#),
        Answer::status(200, &huge),
        Answer::reply(302, &[("location", "http://127.0.0.1:1/")], ""),
    ];
    for answer in answers {
        let upstream = upstream().await;
        upstream.answers(cut()).answers_at("/messages", [answer]);
        let gateway = relay(&upstream.url(), None).await;
        asked(&gateway, &upstream, &shown(LOST)).await;
        assert_eq!(upstream.requests_to("/messages").len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_never_gets_ready_is_given_up() {
    let slow =
        || Answer::reply(200, &[("content-type", "application/json")], "").then(Answer::bytes("").hangs());
    for answer in [Answer::bytes("").hangs(), slow(), Answer::status(503, ""), session(&[user("and now?")])] {
        let upstream = upstream().await;
        upstream.answers(cut()).answers_at("/messages", [answer]);
        let yaml = "gateway:\n  first_byte_timeout: 300ms\n  idle_timeout: 1500ms\n";
        let gateway = relay_as(&upstream.url(), None, yaml).await;
        asked(&gateway, &upstream, &shown(LOST)).await;
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_not_asked_for_any() {
    let upstream = Upstream::plain().await;
    upstream.answers(cut());
    let gateway = relay(&upstream.url(), None).await;
    asked(&gateway, &upstream, &shown(LOST)).await;
    assert_eq!(upstream.requests_to("/messages").len(), 0);
}
