//! F21, F23, F25: responses that are no stream, and streams with odd bytes.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta};

/// F21, F23: neither HTML nor a compressed body is shown.
#[tokio::test]
async fn what_is_no_stream_is_not_shown() {
    const HTML: &[(&str, &str)] = &[("content-type", "text/html")];
    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
    const PLAIN: &[(&str, &str)] = &[("content-type", "text/plain")];
    const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const GZIP: &[(&str, &str)] = &[("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    const BROTLI: &[(&str, &str)] = &[("content-type", "text/event-stream"), ("content-encoding", "br")];
    let stream = delta("canary") + DONE;
    let completion = r#"{"choices":[{"message":{"content":"canary"}}]}"#;
    for (code, headers, body) in [
        (200, HTML, "<html>canary</html>"),
        (200, JSON, completion),
        (200, PLAIN, stream.as_str()),
        (200, &[], stream.as_str()),
        (200, HTML, ""),
        (200, &[], ""),
        (201, STREAM, stream.as_str()),
        (200, GZIP, stream.as_str()),
        (200, BROTLI, stream.as_str()),
        (200, GZIP, "\u{1f}\u{8b}\u{8}canary"),
    ] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::reply(code, headers, body));
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        let words = format!("⚠️ Proxy error ({code}): it did not answer with an event stream.\n");
        ended.failed_with("").said(&words);
        assert!(!ended.err.contains("canary"), "{headers:?}: {}", ended.err);
        assert_eq!(upstream.prompt().header("accept-encoding"), Some("identity"));
    }
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::bytes("HTTP/1.1 204 No Content\r\n\r\n"));
    let ended = Talaria::to(&upstream).reads("hi\n").await;
    ended.failed_with("").said("⚠️ Proxy error (204): it did not answer with an event stream.\n");
}

/// F21: an empty stream has not reported that it is whole.
#[tokio::test]
async fn an_empty_stream_is_no_answer() {
    let upstream = Upstream::plain().await;
    upstream.answers(Answer::events(""));
    let ended = Talaria::to(&upstream).reads("hi\n").await;
    ended
        .failed_with("")
        .said("⚠️ the answer broke off. It may have run all the same; /retry runs it again.");
}

#[tokio::test]
async fn what_is_no_http_is_a_connection_error() {
    for bytes in ["SSH-2.0-OpenSSH_9.2\r\n", "\0\0\0\0", "HTTP/1.1 banana\r\n\r\n"] {
        let upstream = Upstream::plain().await;
        upstream.answers(Answer::bytes(bytes).closes());
        let ended = Talaria::to(&upstream).reads("hi\n").await;
        ended.failed_with("").said("⚠️ Proxy connection error: the connection was lost.");
        assert_eq!(upstream.prompts().len(), 1, "{bytes:?}");
    }
}

/// F25: all in one process, because one odd stream must not spoil the next.
#[tokio::test]
async fn odd_streams_are_read_like_any_other() {
    let whole = delta("é1") + &*delta(" 2") + DONE;
    let bytewise = whole.bytes().fold(Answer::stream(), |answer, byte| answer.sends([byte])).ends();
    let mut broken = b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xfe\xc3\"}}]}\n\n".to_vec();
    broken.extend_from_slice(whole.as_bytes());
    let upstream = Upstream::plain().await;
    for answer in [
        Answer::events(whole.replace('\n', "\r\n")),
        Answer::events(whole.replace('\n', "\r")),
        Answer::events(format!("\u{feff}{whole}")),
        Answer::events(format!("data\n\ndata:\n\n:\0\nretry: x\nnul\0: y\n{whole}")),
        Answer::events(format!("data: nonsense\n\ndata: {{\n\ndata: []\n\ndata: null\n\n{whole}")),
        bytewise,
    ] {
        upstream.answers(answer);
    }
    upstream.answers(Answer::events(broken));
    let ended = Talaria::to(&upstream).reads(&"hi\n".repeat(7)).await;
    ended.showed(&("é1 2\n".repeat(6) + "\u{fffd}\u{fffd}\u{fffd}é1 2\n"));
}
