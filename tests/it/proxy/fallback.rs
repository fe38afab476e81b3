//! The fallback with the real proxy and the real model agent, on real sockets: the upstream refuses, hangs before the
//! first byte, dies in the middle of an answer, and comes back. The tests see the room as a person at a pipe does:
//! answers on standard output, the gateway's own notices on standard error.

use std::time::Duration;

use talaria::agent::{AgentErrorKind, SharedAgent};
use talaria::config::{AgentsConfig, Config, ConfigSources};
use talaria::rules::{LiveRules, Rules};

use crate::support::binary::{Process, Talaria};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::relay::services;
use crate::support::upstream::{Answer, DONE, Gate, Nobody, Request, Upstream, delta, finish};

const AWAY: &str = "The agent is away. Until it is back, model small is asked instead.";
const BACK: &str = "The agent is back and answers again.";

/// A relay to `url` with a model as the fallback.
fn relay(url: &str, model: &Upstream) -> Talaria {
    Talaria::new()
        .var("GATEWAY_PROXY_URL", url)
        .var("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .var("OPENAI_MODEL", "small")
        .config("gateway:\n  fallback: local\n  first_byte_timeout: 300ms\n")
}

/// Asks and waits for the end of the answer. Within one test no answer occurs twice.
async fn ask(process: &mut Process, prompt: &str, answer: &str) {
    process.types(&format!("{prompt}\n"));
    process.shows(answer).await;
}

/// The gateway's notices in the room, in order, without its log.
fn said(err: &str) -> Vec<&str> {
    let mut said: Vec<_> = [AWAY, BACK].into_iter().flat_map(|line| err.match_indices(line)).collect();
    said.sort();
    said.into_iter().map(|(_, line)| line).collect()
}

#[tokio::test]
async fn an_upstream_that_refuses_is_stood_in_for_until_it_is_there() {
    let (nobody, model) = (Nobody::new(), Upstream::plain().await);
    model.answers(Answer::says(["I stand in."]));
    let talaria = relay(&nobody.url(), &model);
    let mut process = talaria.starts();
    ask(&mut process, "hello?", "I stand in.\n").await;

    // One failure does not open the breaker, so the next prompt reaches the upstream.
    let upstream = nobody.becomes_an_upstream();
    upstream.answers(Answer::says(["I am the agent."]));
    ask(&mut process, "and now?", "I am the agent.\n").await;
    process.leaves();
    let ended = process.ended().await;

    ended.showed("I stand in.\nI am the agent.\n");
    assert_eq!(said(&ended.err), [AWAY, BACK], "{}", ended.err);
    let heard = upstream.prompt();
    assert_eq!(
        heard.messages(),
        [("user", "hello?"), ("assistant", "I stand in."), ("user", "and now?")]
            .map(|(role, content)| (role.to_owned(), content.to_owned()))
    );
    let session = heard.header("x-hermes-session-id").unwrap_or_default();
    assert!(!session.contains('.'), "a session that it has never heard of anyway: {session}");
    assert!(!ended.err.contains("It does not know"), "it was told everything: {}", ended.err);
    let asked = model.prompt();
    assert_eq!(asked.json()["model"], "small");
    assert_eq!(asked.header("idempotency-key"), None, "what is for the upstream is not told to the model");
}

#[tokio::test]
async fn an_upstream_that_is_not_available_is_stood_in_for_and_one_that_is_busy_is_not() {
    let (upstream, model) = (Upstream::plain().await, Upstream::plain().await);
    upstream
        .answers(Answer::reply(429, &[("retry-after", "1")], ""))
        // Without a time the upstream is still busy, and three refusals in a row are no reason to use the fallback.
        .answers(Answer::status(429, ""))
        .answers(Answer::status(503, ""))
        .answers(Answer::says(["I was busy."]))
        .answers(Answer::reply(503, &[("retry-after", "3600")], ""));
    model.answers(Answer::says(["I stand in."]));
    let ended = relay(&upstream.url(), &model).reads("one\ntwo\n").await;

    ended.showed("I was busy.\nI stand in.\n");
    assert_eq!(said(&ended.err), [AWAY], "{}", ended.err);
    assert_eq!((upstream.prompts().len(), model.prompts().len()), (5, 1));
}

#[tokio::test]
async fn an_upstream_that_hangs_before_the_first_byte_is_not_asked_by_the_next_but_one() {
    let (upstream, model) = (Upstream::plain().await, Upstream::plain().await);
    upstream.answers(Answer::bytes("").hangs()).answers(Answer::stream().hangs());
    let ended = relay(&upstream.url(), &model).reads("one\ntwo\nthree\nfour\n").await;

    // The first two may have run: they are neither repeated nor given to the model.
    ended.failed_with("ok\nok\n").said("It may have run all the same; /retry runs it again.");
    assert_eq!(said(&ended.err), [AWAY], "{}", ended.err);
    assert_eq!(asked(&upstream), ["one", "two"]);
    assert_eq!(asked(&model), ["three", "four"]);
}

#[tokio::test]
async fn an_upstream_that_dies_in_the_middle_keeps_what_it_said_and_then_is_stood_in_for() {
    let (upstream, model) = (Upstream::plain().await, Upstream::plain().await);
    upstream
        .answers(Answer::stream().sends(delta("Half an")).closes())
        .answers(Answer::stream().sends(delta("Half a")).closes());
    model.answers(Answer::says(["I stand in."]));
    let ended = relay(&upstream.url(), &model).reads("one\ntwo\nthree\n").await;

    ended.failed_with("Half an\nHalf a\nI stand in.\n");
    let cut = "(cut short: the connection was lost — /retry runs it again)\n";
    assert_eq!(ended.err.matches(cut).count(), 2, "{}", ended.err);
    assert_eq!(said(&ended.err), [AWAY], "{}", ended.err);
    assert_eq!(asked(&upstream), ["one", "two"]);
}

#[tokio::test]
async fn an_upstream_that_can_resume_is_asked_for_the_same_run_and_the_model_for_nothing() {
    let (upstream, model) = (Upstream::idempotent().await, Upstream::plain().await);
    upstream
        .answers(Answer::stream().sends(delta("Half an")).closes())
        .answers(Answer::status(503, ""))
        .answers(Answer::says(["Half an", " answer."]));
    let ended = relay(&upstream.url(), &model).reads("one\n").await;

    ended.showed("Half an answer.\n");
    assert_eq!(said(&ended.err), [""; 0], "{}", ended.err);
    let sent = upstream.prompts();
    let again = |prompt: &Request| prompt.header("idempotency-key") == sent[0].header("idempotency-key");
    assert!(sent.len() == 3 && sent.iter().all(again));
    assert!(model.prompts().is_empty());
}

#[tokio::test]
async fn when_the_model_fails_too_its_failure_is_what_is_said() {
    let (nobody, model) = (Nobody::new(), Upstream::plain().await);
    model.answers(Answer::status(401, ""));
    let ended = relay(&nobody.url(), &model).reads("one\n").await;
    ended.failed_with("").said("⚠️ Model error (401): it does not accept the key, or wants one");
}

/// On the real clock, so a wait in vain must end by a timeout.
#[tokio::test]
async fn a_room_sees_the_agent_go_away_and_come_back() {
    tokio::time::timeout(Duration::from_secs(90), goes_away_and_comes_back()).await.expect("in time");
}

async fn goes_away_and_comes_back() {
    let (upstream, model) = (Upstream::plain().await, Upstream::plain().await);
    let gateway =
        TestGateway::with(Setup { agent: Some(agent(&upstream, &model)), ..Setup::default() }).await;
    let room = gateway.room();
    let asks = async |prompt: &str, answer: &str| {
        room.says("@ann", prompt).await;
        room.shows(&format!("bot   {answer}\n")).await;
    };
    let gate = Gate::new();
    upstream
        .answers(Answer::says(["I am the agent."]))
        .answers(Answer::reply(503, &[("retry-after", "3600")], ""))
        .answers(Answer::stream().sends(delta("Let me")).closes());
    model
        .answers(Answer::stream().waits(&gate).sends(delta("I stand in.") + &*finish("stop") + DONE).ends())
        .answers(Answer::says(["I still do."]));

    asks("one", "I am the agent.").await;
    room.says("@ann", "two").await;
    room.shows(AWAY).await;
    gate.open();
    room.shows("bot   I stand in.\n").await;
    room.says("@ann", "three").await;
    room.shows("cut short").await;
    asks("four", "I still do.").await;
    assert_eq!(upstream.prompts().len(), 3, "after two failures in a row nobody waits for it");

    // The only way to skip the breaker's pause on a real socket without waiting for it.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    upstream.answers(Answer::says(["Here I am."]));
    asks("five", "Here I am.").await;
    room.shows(BACK).await;

    insta::assert_snapshot!(room.now(), @r"
    @ann  one
    bot   I am the agent.
    @ann  two
    note  The agent is away. Until it is back, model small is asked instead.
    bot   I stand in.
    @ann  three
    bot   Let me
          (cut short: the connection was lost — /retry runs it again)
    @ann  four
    bot   I still do.
    @ann  five
    bot   Here I am.
    note  The agent is back and answers again.
    ");
    assert_eq!(asked(&upstream), ["one", "two", "three", "five"]);
    assert_eq!(asked(&model), ["two", "four"]);
}

#[tokio::test]
async fn a_server_is_there_if_it_answers_anything_but_a_failure() {
    for (code, there) in [(200, true), (401, true), (404, true), (429, true), (500, false), (502, false)] {
        let upstream = Upstream::with_capabilities(Answer::status(code, "{}")).await;
        let reached = proxy(&upstream).reachable().await;
        let refused = reached.as_ref().is_err_and(|error| error.kind == AgentErrorKind::Refused);
        assert_eq!(reached.is_ok() || refused, there, "{code}");
        assert_eq!(refused, code == 401, "{code}");
    }
}

/// With a paused clock, which ends the time for the request at once.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_in_time_is_not_there() {
    let upstream = Upstream::with_capabilities(Answer::bytes("").hangs()).await;
    let asked = tokio::time::Instant::now();
    assert!(proxy(&upstream).reachable().await.is_err());
    assert!(asked.elapsed() <= Duration::from_secs(6), "somebody waits for it: {:?}", asked.elapsed());
}

/// The configuration of a relay to `upstream` with `model` as its fallback.
fn configured(upstream: &Upstream, model: &Upstream) -> AgentsConfig {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("talaria.yaml"), "gateway: {fallback: local}\n").unwrap();
    let sources = ConfigSources { config: None, folder: folder.path().to_owned(), serve: false };
    let vars = |name: &str| match name {
        "GATEWAY_PROXY_URL" => Some(upstream.url()),
        "OPENAI_BASE_URL" => Some(format!("{}/v1", model.url())),
        "OPENAI_MODEL" => Some("small".to_owned()),
        "TALARIA_HOME" => Some(folder.path().display().to_string()),
        _ => None,
    };
    Config::load(&sources, &vars).unwrap().agents
}

/// The real proxy agent alone.
fn proxy(upstream: &Upstream) -> SharedAgent {
    let alone = AgentsConfig { fallback: None, ..configured(upstream, upstream) };
    built(&alone)
}

/// The default agent of a configuration.
fn built(config: &AgentsConfig) -> SharedAgent {
    let live = LiveRules::new(Rules::default());
    talaria::agents::build(config, &live, &services(), None).unwrap().default_agent().clone()
}

/// The real proxy agent with the real model agent as its fallback.
fn agent(upstream: &Upstream, model: &Upstream) -> SharedAgent {
    built(&configured(upstream, model))
}

/// The last message of every request so far.
fn asked(server: &Upstream) -> Vec<String> {
    server.messages().into_iter().filter_map(|messages| messages.last().map(|last| last.1.clone())).collect()
}
