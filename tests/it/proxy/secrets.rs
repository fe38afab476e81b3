//! The key goes to the server, and nowhere else.

use std::fs;

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Nobody, Upstream, delta};

const CANARY: &str = "canary-5f1e0c77d2";

/// Logs everything that can be logged, whatever happens to the turn.
fn watched(talaria: Talaria) -> Talaria {
    talaria.var("GATEWAY_PROXY_KEY", CANARY).var("TALARIA_LOG", "trace")
}

#[tokio::test]
async fn the_key_is_in_no_output_and_no_file() {
    let upstream = Upstream::plain().await;
    upstream
        .answers(Answer::says(["fine"]))
        .answers(Answer::status(401, &format!("no such key: {CANARY}")))
        .answers(Answer::stream().sends(delta("Half")).resets())
        .answers(Answer::reply(302, &[("location", &format!("/{CANARY}"))], ""));
    let talaria = watched(Talaria::to(&upstream));
    let ended = talaria.reads("one\ntwo\nthree\nfour\n").await;
    assert_eq!(upstream.prompts().len(), 4);
    assert!(upstream.prompts().iter().all(|prompt| prompt.header("authorization").is_some()));
    assert!(ended.err.contains("TRACE"), "everything should be logged");
    assert!(!ended.out.contains(CANARY) && !ended.err.contains(CANARY), "{}{}", ended.out, ended.err);
    for file in fs::read_dir(talaria.home()).unwrap().map(|file| file.unwrap().path()) {
        let bytes = fs::read(&file).unwrap();
        assert!(memchr::memmem::find(&bytes, CANARY.as_bytes()).is_none(), "{}", file.display());
    }
}

#[tokio::test]
async fn the_key_is_in_no_error_before_a_connection() {
    let nobody = Nobody::new();
    let talaria =
        Talaria::new().var("GATEWAY_PROXY_URL", &nobody.url()).config("gateway:\n  retry_for: 0s\n");
    let ended = watched(talaria).reads("hi\n").await;
    ended.said("Proxy connection error");
    assert!(!ended.out.contains(CANARY) && !ended.err.contains(CANARY), "{}", ended.err);
}

#[tokio::test]
async fn our_own_log_lines_do_not_even_try_to_say_the_key() {
    let upstream = Upstream::plain().await;
    let ended = watched(Talaria::to(&upstream)).reads("hi\n").await;
    ended.showed("ok\n");
    assert!(!ended.err.contains("[redacted]"), "the second net had to catch it: {}", ended.err);
}
