//! When a request is sent again: always with the same bytes and key, and only if that cannot run the turn twice. The
//! rest of defect 12.

use std::time::Duration;

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, BlackHole, Nobody, Request, Upstream, delta};

/// Checks that every request so far repeats the first one.
fn repeated(upstream: &Upstream, times: usize) -> Vec<Request> {
    let prompts = upstream.prompts();
    assert_eq!(prompts.len(), times);
    for prompt in &prompts {
        assert_eq!(prompt.body, prompts[0].body);
        for name in ["idempotency-key", "x-hermes-session-id"] {
            assert_eq!(prompt.header(name), prompts[0].header(name));
        }
    }
    prompts
}

#[tokio::test]
async fn an_idempotent_server_is_sent_the_same_bytes_again() {
    let upstream = Upstream::idempotent().await;
    upstream
        .answers(Answer::stream().sends(delta("Hello, ") + &*delta("wor")).resets())
        .answers(Answer::status(502, "<html>bad gateway</html>"))
        .answers(Answer::says(["Hell", "o, world", "!"]));
    Talaria::to(&upstream).reads("hi\n").await.showed("Hello, world!\n");
    repeated(&upstream, 3);
}

#[tokio::test]
async fn a_plain_server_is_not_asked_twice_when_it_may_have_run() {
    for (answer, words) in [
        (Answer::bytes("").resets(), "⚠️ Proxy connection error: the connection was "),
        (Answer::bytes("").closes(), "⚠️ Proxy connection error: the connection was "),
        (Answer::stream().resets(), "⚠️ the connection was lost. It may have run all the same"),
        (
            Answer::status(502, ""),
            "⚠️ Proxy error (502): the server behind it did not answer. It may have run",
        ),
        (
            Answer::status(504, ""),
            "⚠️ Proxy error (504): the server behind it did not answer. It may have run",
        ),
    ] {
        let upstream = Upstream::plain().await;
        upstream.answers(answer);
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended.failed_with("").said(words).said("/retry runs it again.");
        repeated(&upstream, 1);
    }
}

#[tokio::test]
async fn any_server_is_asked_again_when_it_says_that_it_did_nothing() {
    for code in [429, 503] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::status(code, "{}"));
        Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
        repeated(&upstream, 2);
    }
}

/// Our own server answers 409 for a run that nobody reads, until that run has ended.
#[tokio::test]
async fn a_server_that_is_just_stopping_the_same_turn_is_asked_how_it_ended() {
    let upstream = Upstream::idempotent().await;
    upstream.answers(Answer::reply(409, &[("retry-after", "1")], ""));
    Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
    repeated(&upstream, 2);
}

#[tokio::test]
async fn a_server_that_comes_up_late_gets_the_prompt() {
    let nobody = Nobody::new();
    let talaria = Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url());
    let mut process = talaria.starts();
    process.types("hi\n");
    process.logs("a try failed").await;
    let upstream = nobody.becomes_an_upstream();
    process.leaves();
    process.ended().await.showed("ok\n");
    repeated(&upstream, 1);
}

#[tokio::test]
async fn a_server_is_given_the_time_that_it_asks_for() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::reply(429, &[("retry-after", "2")], ""));
    Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
    let prompts = repeated(&upstream, 2);
    let pause = prompts[1].at - prompts[0].at;
    assert!(pause >= Duration::from_secs(2), "came back after {pause:?}");
}

#[tokio::test]
async fn a_server_that_stays_busy_is_given_up_in_time() {
    let upstream = Upstream::plain().await;
    for _ in 0..10 {
        upstream.answers(Answer::status(503, ""));
    }
    let ended = Talaria::to(&upstream).config("gateway:\n  retry_for: 1s\n").reads("hi\n").await;
    ended.failed_with("").said("⚠️ Proxy error (503): it is not available right now.");
    assert!((1..10).contains(&upstream.prompts().len()));
}

#[tokio::test]
async fn a_connection_that_is_never_made_is_given_up() {
    let hole = BlackHole::new().await;
    let talaria = Talaria::new()
        .var("GATEWAY_PROXY_URL", &hole.url())
        .config("gateway:\n  connect_timeout: 300ms\n  retry_for: 0s\n");
    talaria.reads("hi\n").await.failed_with("").said("⚠️ Proxy connection error: no connection in time.");
}

#[tokio::test]
async fn a_refused_session_header_is_explained() {
    let upstream = Upstream::plain().await;
    upstream
        .answers(Answer::status(403, r#"{"error":{"message":"X-Hermes-Session-Id needs API_SERVER_KEY"}}"#));
    let ended = Talaria::to(&upstream).reads("hi\n").await;
    ended.failed_with("").said("Set API_SERVER_KEY there and GATEWAY_PROXY_KEY here.");
    repeated(&upstream, 1);
}
