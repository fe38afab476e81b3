//! The gateway requests a server's capabilities, once per connection, unless the configuration names them.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Gate, Upstream, delta};

#[tokio::test]
async fn a_server_is_asked_once_what_it_can_do() {
    let upstream = Upstream::idempotent().await;
    Talaria::to(&upstream).reads("one\ntwo\nthree\n").await.showed("ok\nok\nok\n");
    assert_eq!((upstream.questions(), upstream.prompts().len()), (1, 3));
}

#[tokio::test]
async fn a_server_is_asked_again_after_a_lost_connection() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::says(["one"])).answers(Answer::stream().resets());
    Talaria::to(&upstream).reads("1\n2\n3\n4\n").await.failed_with("one\nok\nok\n");
    assert_eq!((upstream.questions(), upstream.prompts().len()), (2, 4));
}

#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_asked_again() {
    let upstream = Upstream::idempotent().await;
    upstream.now_says_of_itself(Answer::status(401, "{}"));
    Talaria::to(&upstream).reads("one\ntwo\n").await.showed("ok\nok\n");
    assert_eq!((upstream.questions(), upstream.prompts().len()), (2, 2), "it has not said what it can do");
}

#[tokio::test]
async fn the_question_carries_the_key() {
    let upstream = Upstream::plain().await;
    Talaria::to(&upstream).var("GATEWAY_PROXY_KEY", "the-key-itself").reads("hi\n").await.showed("ok\n");
    let [question] = upstream.requests_to("/v1/capabilities").try_into().expect("one question");
    assert_eq!(
        (question.method.as_str(), question.header("authorization")),
        ("GET", Some("Bearer the-key-itself"))
    );
}

#[tokio::test]
async fn usage_is_asked_for_only_where_the_server_knows_what_that_is() {
    for (upstream, asks) in [(Upstream::plain().await, false), (Upstream::idempotent().await, true)] {
        Talaria::to(&upstream).reads("hi\n").await.showed("ok\n");
        assert_eq!(upstream.prompt().json()["stream_options"]["include_usage"] == true, asks);
    }
}

#[tokio::test]
async fn the_configuration_can_say_that_a_server_is_plain() {
    let upstream = Upstream::idempotent().await;
    upstream.answers(Answer::stream().sends(delta("Half")).closes());
    let ended = Talaria::to(&upstream).config("gateway:\n  upstream: plain\n").reads("hi\n").await;
    ended.failed_with("Half\n").said("(cut short: the connection was lost — /retry runs it again)\n");
    assert_eq!((upstream.questions(), upstream.prompts().len()), (0, 1));
}

#[tokio::test]
async fn the_configuration_can_say_that_a_server_is_like_ours() {
    let upstream = Upstream::plain().await;
    upstream
        .answers(Answer::stream().sends(delta("Half")).closes())
        .answers(Answer::says(["Half and half."]));
    let ended = Talaria::to(&upstream).config("gateway:\n  upstream: talaria\n").reads("hi\n").await;
    ended.showed("Half and half.\n");
    assert_eq!((upstream.questions(), upstream.prompts().len()), (0, 2));
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_counts_as_plain() {
    for answer in ["", "null", "[]", "<html>", r#"{"features":{"idempotency":false}}"#, r#"{"features":7}"#] {
        let upstream = Upstream::with_capabilities(Answer::status(200, answer)).await;
        upstream.answers(Answer::stream().sends(delta("Half")).closes());
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended.failed_with("Half\n").said("(cut short");
        assert_eq!(upstream.prompts().len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_server_that_was_replaced_by_a_plain_one_is_not_asked_twice() {
    let upstream = Upstream::idempotent().await;
    let gate = Gate::new();
    upstream.answers(Answer::stream().sends(delta("Half")).waits(&gate).closes());
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    process.types("hi\n");
    gate.is_reached().await;
    upstream.now_says_of_itself(Answer::unknown());
    gate.open();
    process.leaves();
    let ended = process.ended().await;
    ended.failed_with("Half\n").said("cannot resume");
    assert_eq!(upstream.prompts().len(), 1);
}
