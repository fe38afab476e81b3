//! Hostile input: each is answered with an error in our format or with the end of the connection, and the next client
//! is served as usual.

use serde_json::json;

use crate::support::raw::{Answer, Raw};
use crate::support::served::Served;

const HEAD: &str = "host: localhost\r\nauthorization: Bearer a key of the owner, long enough\r\n";

/// The response to these bytes.
async fn answered(served: &Served, bytes: impl AsRef<[u8]>) -> Option<Answer> {
    let mut raw = Raw::to(served.address).await;
    raw.sends(bytes).await;
    raw.answer().await
}

/// A request with a body, as it goes over the wire.
fn asking(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\n{HEAD}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Checks that another client is served.
async fn goes_on(served: &Served) {
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    let answer = answered(served, asking(body)).await.unwrap();
    assert_eq!((answer.status, &answer.json()["choices"][0]["message"]["content"]), (200, &json!("ok")));
}

#[tokio::test]
async fn what_is_no_http_is_answered_in_our_form() {
    let served = Served::start().await;
    for (bytes, status, code) in [
        (&b"hello\r\n\r\n"[..], 400, "invalid_http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/3.0\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nbad header: x\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\nhost: local\0host\r\n\r\n", 400, "invalid_http"),
        (b"GET /h\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http"),
        (b"GE\nT /health HTTP/1.1\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "invalid_host"),
    ] {
        let shown = String::from_utf8_lossy(bytes);
        let answer = answered(&served, bytes).await.unwrap_or_else(|| panic!("{shown}"));
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{shown}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{shown}");
    }
    // HTTP/2, which we do not support.
    assert_eq!(answered(&served, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, None);
    goes_on(&served).await;
}

#[tokio::test]
async fn a_head_has_an_end() {
    let served = Served::start().await;
    let long =
        |length: usize| format!("GET /v1/models HTTP/1.1\r\n{HEAD}x-long: {}\r\n\r\n", "x".repeat(length));
    assert_eq!(answered(&served, long(15_000)).await.unwrap().status, 200);
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    for head in [
        long(17_000),
        long(10_000_000),
        format!("GET /v1/models?{} HTTP/1.1\r\n{HEAD}\r\n", "x".repeat(100_000)),
        format!("GET /v1/models HTTP/1.1\r\n{HEAD}{many}\r\n"),
    ] {
        let answer = answered(&served, &head).await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (431, "headers_too_large"), "{}", head.len());
    }
    goes_on(&served).await;
}

#[tokio::test]
async fn requests_that_break_off_harm_nobody() {
    let served = Served::start().await;
    let whole = asking(r#"{"messages":[{"role":"user","content":"hi"}]}"#);
    for end in (0..whole.len()).step_by(7) {
        // The client stops sending, and closes its side.
        let mut raw = Raw::to(served.address).await;
        raw.sends(&whole[..end]).await;
        raw.is_done().await;
        if let Some(answer) = raw.answer().await {
            assert!((400..500).contains(&answer.status), "{end}: {answer:?}");
            answer.code();
        }
    }
    assert!(served.gateway.agent_itself().heard().is_empty(), "half a question was asked");
    goes_on(&served).await;
}

#[tokio::test]
async fn json_is_read_within_its_bounds() {
    let served = Served::start().await;
    let deep = |open: &str, close: &str, depth: usize| {
        format!(r#"{{"messages":{}{}}}"#, open.repeat(depth), close.repeat(depth))
    };
    for (body, code) in [
        (deep("[", "]", 100).into_bytes(), "invalid_json"),
        (deep("[", "", 1_000_000).into_bytes(), "invalid_json"),
        (deep(r#"{"a":"#, "}", 200_000).into_bytes(), "invalid_json"),
        (b"{".to_vec(), "invalid_json"),
        (b"\xff\xfe{}".to_vec(), "invalid_json"),
        (b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\x28\"}]}".to_vec(), "invalid_json"),
        (br#"{"messages":[{"role":"user","content":"\ud800"}]}"#.to_vec(), "invalid_json"),
        (b"[]".to_vec(), "invalid_request"),
        (b"null".to_vec(), "invalid_request"),
        (br#"{"messages":"hi"}"#.to_vec(), "invalid_request"),
        (br#"{"messages":[{"role":"user","content":"a"}]} x"#.to_vec(), "invalid_json"),
    ] {
        let answer = answered(&served, asking(&body)).await.unwrap();
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{shown}");
        assert!(answer.body.len() < 1000, "an error is short: {shown}");
    }
    assert!(served.gateway.agent_itself().heard().is_empty());
    goes_on(&served).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_while_it_is_still_sent() {
    let served = Served::start().await;
    let post = "POST /v1/chat/completions HTTP/1.1\r\n";
    // The announced length is too large: the server waits for none of it.
    let mut raw = Raw::to(served.address).await;
    raw.sends(format!("{post}{HEAD}content-length: 10000001\r\n\r\n")).await;
    let answer = raw.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));

    // No length is announced, and the client goes on and on. It can still read the response.
    let mut raw = Raw::to(served.address).await;
    raw.sends(format!("{post}{HEAD}transfer-encoding: chunked\r\n\r\n")).await;
    let piece = [b"100000\r\n".as_slice(), &vec![b' '; 0x100000], b"\r\n"].concat();
    for _ in 0..15 {
        raw.sends(&piece).await;
    }
    let answer = raw.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));

    // A body without a key is not even read.
    let mut raw = Raw::to(served.address).await;
    raw.sends(format!("{post}host: localhost\r\ntransfer-encoding: chunked\r\n\r\n")).await;
    for _ in 0..5 {
        raw.sends(&piece).await;
    }
    assert_eq!(raw.answer().await.unwrap().status, 401);

    // As large as allowed.
    let filled =
        format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"padding":"{}"}}"#, "x".repeat(9_999_900));
    assert!(filled.len() <= 10_000_000);
    assert_eq!(answered(&served, asking(filled)).await.unwrap().status, 200);
    goes_on(&served).await;
}

#[tokio::test]
async fn lengths_that_contradict_each_other_smuggle_nothing() {
    let served = Served::start().await;
    let post = format!("POST /v1/chat/completions HTTP/1.1\r\n{HEAD}");
    let hidden = format!("GET /v1/models HTTP/1.1\r\n{HEAD}\r\n");
    for (lines, body) in [
        ("content-length: 5\r\ncontent-length: 6\r\n", "hello"),
        ("content-length: +5\r\n", "hello"),
        ("content-length: 0x5\r\n", "hello"),
        ("content-length: -1\r\n", ""),
        ("content-length: 99999999999999999999999\r\n", ""),
        ("transfer-encoding: gzip\r\n", "hello"),
        ("transfer-encoding: chunked, gzip\r\n", "hello"),
        ("transfer-encoding: chunked\r\n", "zz\r\nhello\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", "5\r\nhelloXX0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ncontent-length: 4\r\n", "0\r\n\r\n"),
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", &format!("0\r\n{}\r\n\r\n", "x: y\r\n".repeat(10_000))),
    ] {
        let mut raw = Raw::to(served.address).await;
        raw.sends(format!("{post}{lines}\r\n{body}{hidden}")).await;
        let first = raw.answer().await;
        if let Some(first) = &first {
            assert!((400..500).contains(&first.status), "{lines}{body}: {first:?}");
            first.code();
        }
        assert!(raw.is_closed().await, "{lines}{body}: something came of what was hidden behind {first:?}");
    }
    // HTTP/1.0 has no chunked encoding.
    let answer = answered(
        &served,
        format!("POST /v1/chat/completions HTTP/1.0\r\n{HEAD}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    );
    assert_eq!(answer.await.map(|answer| answer.status), Some(400));
    assert!(served.gateway.agent_itself().heard().is_empty());
    goes_on(&served).await;
}

#[tokio::test]
async fn requests_behind_each_other_are_answered_in_order() {
    let served = Served::start().await;
    let mut raw = Raw::to(served.address).await;
    let (models, nowhere) =
        (format!("GET /v1/models HTTP/1.1\r\n{HEAD}\r\n"), format!("GET /nowhere HTTP/1.1\r\n{HEAD}\r\n"));
    let question = asking(r#"{"messages":[{"role":"user","content":"hi"}]}"#);
    raw.sends(
        [models.as_bytes(), &question, nowhere.as_bytes(), models.as_bytes(), b"no HTTP\r\n\r\n"].concat(),
    )
    .await;
    let mut statuses = Vec::new();
    while let Some(answer) = raw.answer().await {
        statuses.push(answer.status);
        if answer.status >= 400 {
            answer.code();
        }
    }
    assert_eq!(statuses, [200, 200, 404, 200, 400]);
    goes_on(&served).await;
}

#[tokio::test]
async fn many_that_say_nothing_keep_nobody_out() {
    let served = Served::start().await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut raw = Raw::to(served.address).await;
        if number % 2 == 0 {
            raw.sends("GET /v1/models HTTP/1.1\r\nhost: local").await;
        }
        silent.push(raw);
    }
    goes_on(&served).await;
}

#[tokio::test]
async fn odd_requests_are_refused_and_nothing_breaks() {
    let served = Served::start().await;
    for (first, statuses) in [
        ("CONNECT localhost:80 HTTP/1.1", 400..500),
        ("OPTIONS * HTTP/1.1", 400..500),
        ("TRACE /v1/models HTTP/1.1", 405..406),
        ("BREW /v1/models HTTP/1.1", 405..406),
        ("GET /v1/models?%00%ff=%zz HTTP/1.1", 200..201),
        ("GET /v1/responses/%00%ff HTTP/1.1", 400..500),
        ("GET /v1/../v1/models HTTP/1.1", 404..405),
        ("GET /%2e%2e/etc/passwd HTTP/1.1", 404..405),
    ] {
        let answer = answered(&served, format!("{first}\r\n{HEAD}\r\n")).await.unwrap();
        assert!(statuses.contains(&answer.status), "{first}: {answer:?}");
        if answer.status >= 400 {
            answer.code();
        }
    }
    // A page would have to ask before it upgrades; there is nothing to upgrade to.
    let upgrade =
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n";
    let answer = answered(&served, format!("GET /v1/models HTTP/1.1\r\n{HEAD}{upgrade}\r\n")).await.unwrap();
    assert_eq!(answer.status, 200);
    goes_on(&served).await;
}
