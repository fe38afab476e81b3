//! F27, F28, F30: servers that stop sending. Each test makes one timeout short and leaves the others long, so that
//! only the right timeout can end it.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta};

/// Runs one turn with one short timeout.
async fn asked(answer: Answer, short: &str) -> (String, String) {
    let upstream = Upstream::plain().await;
    upstream.answers(answer);
    let talaria =
        Talaria::to(&upstream).config(&format!("gateway:\n  {short}: 700ms\n")).var("TALARIA_LOG", "off");
    let ended = talaria.reads("hi\n").await;
    assert_eq!((ended.code, upstream.prompts().len()), (1, 1));
    (ended.out, ended.err)
}

const NOT_ANSWERED: &str =
    "⚠️ the agent server did not answer. It may have run all the same; /retry runs it again.\n";
const SILENT: &str = "⚠️ the agent went silent. It may have run all the same; /retry runs it again.\n";
const CUT_SHORT: &str = "(cut short: the agent went silent — /retry runs it again)\n";

/// F27: the server never begins to answer.
#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    for answer in [
        Answer::bytes("").hangs(),
        Answer::bytes("HTTP/1.1 200 OK\r\ncontent-type: text/ev").hangs(),
        Answer::bytes("HTTP/1.1 200 OK\r\n".to_owned() + &*"x-more: and more\r\n".repeat(20)).hangs(),
    ] {
        assert_eq!(asked(answer, "first_byte_timeout").await, (String::new(), NOT_ANSWERED.to_owned()));
    }
}

#[tokio::test]
async fn a_stream_that_never_begins_is_given_up() {
    let shown = asked(Answer::stream().hangs(), "first_byte_timeout").await;
    assert_eq!(shown, (String::new(), SILENT.to_owned()));
}

/// F28: to us, a peer that has vanished is one that is silent.
#[tokio::test]
async fn a_stream_that_falls_silent_is_given_up() {
    let shown = asked(Answer::stream().sends(delta("Half")).hangs(), "idle_timeout").await;
    assert_eq!(shown, ("Half\n".to_owned(), CUT_SHORT.to_owned()));
}

/// F27: a server that has sent keep-alives gets less time once it stops.
#[tokio::test]
async fn keep_alives_that_stop_mean_more_than_silence() {
    let answer = Answer::stream().sends(delta("Half")).sends(": alive\n\n").hangs();
    assert_eq!(asked(answer, "keepalive_idle_timeout").await, ("Half\n".to_owned(), CUT_SHORT.to_owned()));
}

#[tokio::test]
async fn a_refusal_that_does_not_end_is_a_refusal() {
    let answer = Answer::bytes("HTTP/1.1 401 Scripted\r\ncontent-length: 100\r\n\r\nnot all of it").hangs();
    let (_, err) = asked(answer, "connect_timeout").await;
    assert_eq!(
        err,
        "⚠️ Proxy error (401): it does not accept the key, or wants one; set the same key at both ends.\n"
    );
}

/// F30: no timeout is short here: only the end mark can end the turn.
#[tokio::test]
async fn nothing_is_waited_for_after_the_end() {
    for answer in [
        Answer::stream().sends(delta("All.") + DONE).hangs(),
        Answer::stream().sends(delta("All.")).sends(DONE).sends(delta("More?")).hangs(),
    ] {
        let upstream = Upstream::plain().await;
        upstream.answers(answer);
        Talaria::to(&upstream).reads("hi\nagain\n").await.showed("All.\nok\n");
    }
}

#[tokio::test]
async fn a_server_that_does_not_say_what_it_can_do_is_given_up() {
    let upstream = Upstream::with_capabilities(Answer::bytes("HTTP/1.1 200 OK\r\n").hangs()).await;
    let talaria = Talaria::to(&upstream).config("gateway:\n  retry_for: 0s\n  first_byte_timeout: 700ms\n");
    talaria.reads("hi\n").await.failed_with("").said("⚠️ Proxy connection error: no connection in time.");
    assert!(upstream.prompts().is_empty());
}
