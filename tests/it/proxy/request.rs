//! The contents of a request to the agent server.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Gate, Upstream, delta};

/// Defect 2.
#[tokio::test]
async fn what_was_said_before_goes_along_but_a_new_pipe_begins_anew() {
    let upstream = Upstream::plain().await;
    for answer in ["Hello Ann.", "You are Ann.", "Still Ann."] {
        upstream.answers(Answer::says([answer]));
    }
    let talaria = Talaria::to(&upstream);
    talaria.reads("I am Ann\nWho am I?\n").await.showed("Hello Ann.\nYou are Ann.\n");
    talaria.reads("And now?\n").await.showed("Still Ann.\n");

    let user = |text: &str| ("user".to_owned(), text.to_owned());
    let agent = |text: &str| ("assistant".to_owned(), text.to_owned());
    let whole = [user("I am Ann"), agent("Hello Ann."), user("Who am I?")];
    assert_eq!(upstream.messages(), [&whole[..1], &whole[..], &[user("And now?")]]);
}

/// The other half of defect 2.
#[tokio::test]
async fn a_question_can_be_asked_again_or_taken_back() {
    let upstream = Upstream::plain().await;
    for answer in ["Heads.", "Tails.", "Nothing."] {
        upstream.answers(Answer::says([answer]));
    }
    let ended = Talaria::to(&upstream).reads("Toss a coin\n/retry\n/undo\nWhat was it?\n").await;
    ended.showed("Heads.\nTails.\nNothing.\n");
    let question = |text: &str| vec![("user".to_owned(), text.to_owned())];
    let asked = [question("Toss a coin"), question("Toss a coin"), question("What was it?")];
    assert_eq!(upstream.messages(), asked);

    let prompts = upstream.prompts();
    let header =
        |name: &str| prompts.iter().map(|prompt| prompt.header(name).unwrap().to_owned()).collect::<Vec<_>>();
    let (sessions, keys) = (header("x-hermes-session-id"), header("idempotency-key"));
    assert_ne!(keys[0], keys[1], "another try has another key");
    assert_eq!(sessions[1], format!("{}.1", sessions[0]), "the server must forget what was taken back");
    assert_eq!(sessions[2], format!("{}.2", sessions[0]));
}

#[tokio::test]
async fn only_the_newest_history_goes_along() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream).config("gateway:\n  history_messages: 2\n");
    talaria.reads("one\ntwo\nthree\n").await.showed("ok\nok\nok\n");
    let contents: Vec<_> = upstream.messages()[2].iter().map(|(_, content)| content.clone()).collect();
    assert_eq!(contents, ["two", "ok", "three"]);
}

#[tokio::test]
async fn the_model_can_be_chosen() {
    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
    Talaria::to(&upstream).config("gateway:\n  model: other\n").reads("hi\n").await.showed("ok\n");
    let models: Vec<_> = upstream.prompts().iter().map(|prompt| prompt.json()["model"].clone()).collect();
    assert_eq!(models, ["hermes-agent", "other"]);
}

#[tokio::test]
async fn the_server_is_told_who_asks_only_where_that_is_configured() {
    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
    Talaria::to(&upstream).config("gateway:\n  identity: true\n").reads("hi\n").await.showed("ok\n");
    let told = upstream.prompts().into_iter().map(|prompt| {
        let ours =
            |(name, _): &(String, String)| name.starts_with("x-hermes-") && name != "x-hermes-session-id";
        // Each pipe's room has a unique name.
        let plain = |(name, value): (String, String)| match value.starts_with("pipe-") {
            true => (name, "pipe".to_owned()),
            false => (name, value),
        };
        let mut told: Vec<_> = prompt.headers.into_iter().filter(ours).map(plain).collect();
        told.sort();
        told
    });
    let header = |name: &str, value: &str| (format!("x-hermes-{name}"), value.to_owned());
    // The console has no names and no threads, so those headers are absent.
    let everything = [header("chat-id", "pipe"), header("chat-type", "direct"), header("user-id", "owner")];
    assert_eq!(told.collect::<Vec<_>>(), [vec![], everything.to_vec()]);
}

/// A part of defect 12.
#[tokio::test]
async fn one_connection_serves_many_turns() {
    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).reads("one\ntwo\nthree\nfour\nfive\n").await.showed("ok\nok\nok\nok\nok\n");
    few_connections(&upstream);
}

/// Most servers end a body a moment after the end mark, and some later.
#[tokio::test]
async fn a_connection_is_kept_though_its_body_ends_after_the_answer() {
    let upstream = Upstream::plain().await;
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    for number in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
        let gate = Gate::new();
        upstream.answers(Answer::stream().sends(delta(number) + DONE).waits(&gate).ends());
        process.types(number);
        process.shows(number).await;
        gate.open();
    }
    process.leaves();
    process.ended().await.showed("one\ntwo\nthree\nfour\nfive\n");
    few_connections(&upstream);
}

/// Checks for one connection for five prompts. One more is fair, because a prompt may come before the end of the body
/// before it.
fn few_connections(upstream: &Upstream) {
    assert_eq!(upstream.prompts().len(), 5);
    assert!(upstream.connections() <= 2, "{} connections", upstream.connections());
}
