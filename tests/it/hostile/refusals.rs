//! F19, F20: servers that refuse, or ask to wait.

use std::time::{Duration, Instant};

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, Upstream};

/// F19: only the operator can mend it, so it is not tried again.
#[tokio::test]
async fn a_refusal_is_said_once_and_not_repeated() {
    let page = "<html><body>secret-canary</body></html>";
    for (code, words) in [
        (400, "it did not understand the request"),
        (401, "it does not accept the key, or wants one; set the same key at both ends"),
        (403, "it does not accept the key, or wants one; set the same key at both ends"),
        (404, "there is no such service at this address, or no such model"),
        (413, "the conversation is too long for it; /new begins another one"),
        (418, "it refused the request"),
        (500, "it failed. It may have run all the same; /retry runs it again"),
    ] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::reply(code, &[("content-type", "text/html")], page));
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended.failed_with("").said(&format!("⚠️ Proxy error ({code}): {words}.\n"));
        assert!(!ended.err.contains("canary"), "{}", ended.err);
        assert_eq!(upstream.prompts().len(), 1, "{code}");
    }
}

/// F20: a server cannot make us wait longer than a turn may take.
#[tokio::test]
async fn a_wait_of_ten_years_is_not_waited_for() {
    for code in [429, 503] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::reply(code, &[("retry-after", "315360000")], ""));
        let started = Instant::now();
        let talaria = Talaria::to(&upstream).config("gateway:\n  retry_for: 2m\n");
        talaria.reads("hi\n").await.failed_with("").said(&format!("⚠️ Proxy error ({code}): it is "));
        assert_eq!(upstream.prompts().len(), 1);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

/// F20: without a valid number of seconds our own pauses apply.
#[tokio::test]
async fn a_wait_that_makes_no_sense_is_one_of_ours() {
    let upstream = Upstream::plain().await;
    let waits = ["-5", "soon", "1e3", "99999999999999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "0"];
    for wait in waits {
        upstream.answers(Answer::reply(503, &[("retry-after", wait)], "")).answers(Answer::says([wait]));
    }
    let prompts: String = waits.iter().map(|wait| format!("{wait}\n")).collect();
    Talaria::to(&upstream).reads(&prompts).await.showed(&prompts);
    assert_eq!(upstream.prompts().len(), 2 * waits.len());
}
