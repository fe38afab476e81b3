//! An agent without tools: its one request is sent again if it broke before any text, and never after.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::json;

use super::support::{agent_with, shown};
use crate::support::logged::Logged;
use crate::support::upstream::{Answer, DONE, Upstream, delta, event};

#[tokio::test]
async fn a_request_that_breaks_before_any_text_is_sent_again() {
    let upstream = Upstream::plain().await;
    let busy = event(&json!({ "error": { "message": "busy", "code": 429 } }));
    upstream
        .answers(Answer::stream().closes())
        .answers(Answer::events(busy + DONE))
        .answers(Answer::says(["It works."]));
    let gateway = agent_with(&upstream, &[]).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "It works.").await, @r"
    @ann  go
    bot   It works.
    ");
    let prompts = upstream.prompts();
    assert_eq!(prompts.len(), 3);
    assert!(prompts.iter().all(|prompt| prompt.body == prompts[0].body), "the same bytes each time");
}

#[tokio::test]
async fn a_request_that_breaks_after_text_or_a_thought_is_not_repeated() {
    let thought = event(&json!({ "choices": [{ "index": 0, "delta": { "reasoning_content": "Hm." } }] }));
    for (sent, shows) in [(delta("It w"), "It w"), (thought, "the connection was lost")] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::stream().sends(sent).closes());
        let gateway = agent_with(&upstream, &[]).await;
        gateway.room().says("@ann", "go").await;
        gateway.room().says("@ann", "and?").await;
        shown(&gateway, "ok").await;
        let room = gateway.room().now();
        assert_eq!(upstream.prompts().len(), 2, "{room}");
        assert!(room.contains(shows), "{room}");
    }
}

#[tokio::test]
async fn a_request_that_always_breaks_is_given_up() {
    let upstream = Upstream::plain().await;
    for _ in 0..4 {
        upstream.answers(Answer::stream().closes());
    }
    let gateway = agent_with(&upstream, &[]).await;
    gateway.room().says("@ann", "go").await;
    gateway.room().says("@ann", "and?").await;
    shown(&gateway, "ok").await;
    assert_eq!(upstream.prompts().len(), 5, "four tries, and the next question");
}

#[tokio::test]
async fn a_stop_ends_the_pause() {
    let logged = Logged::listen();
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::stream().closes());
    let gateway = agent_with(&upstream, &[]).await;
    gateway.room().says("@ann", "go").await;
    while logged.with("a request to the model broke and is sent again").is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    gateway.room().says("@ann", "/stop").await;
    shown(&gateway, "(stopped)").await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(upstream.prompts().len(), 1);
}
