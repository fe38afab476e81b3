//! Accepted host names, allowed browser origins, and the headers of every response.

use reqwest::Method;
use serde_json::json;
use talaria::config::{UrlHost, WebOrigin};
use talaria::server::ServerSettings;

use crate::support::gateway::Setup;
use crate::support::raw::{Answer, Raw};
use crate::support::served::{KEY, Served, settings};

const SECURITY: [&str; 6] = [
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "content-security-policy",
    "cross-origin-resource-policy",
    "cache-control",
];

async fn with(hosts: &[&str], origins: &[&str]) -> Served {
    let hosts = hosts.iter().map(|host| UrlHost::parse(host).unwrap()).collect();
    let origins = origins.iter().map(|origin| WebOrigin::parse(origin).unwrap()).collect();
    Served::with(Setup::default(), ServerSettings { hosts, origins, ..settings() }).await
}

/// Requests the models, with these header lines.
async fn asks(served: &Served, first: &str, lines: &[&str]) -> Answer {
    let mut raw = Raw::to(served.address).await;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    raw.sends(format!("{first}\r\nauthorization: Bearer {KEY}\r\n{lines}\r\n")).await;
    raw.answer().await.unwrap()
}

const MODELS: &str = "GET /v1/models HTTP/1.1";

#[tokio::test]
async fn a_name_that_the_server_does_not_have_is_refused() {
    let served = with(&["relay.example"], &[]).await;
    let port = served.address.port();
    for host in ["localhost", "localhost.", "127.0.0.1", "[::1]", "host.docker.internal", "Relay.Example"] {
        for host in [host.to_owned(), format!("{host}:{port}"), format!("{host}:443")] {
            let answer = asks(&served, MODELS, &[&format!("host: {host}")]).await;
            assert_eq!(answer.status, 200, "{host}");
        }
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.7",
        "other.example:80",
    ] {
        let answer = asks(&served, MODELS, &[&format!("host: {host}")]).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "host_not_allowed"), "{host}");
    }
    for lines in [
        &[][..],
        &["host:"],
        &["host: localhost", "host: localhost"],
        &["host: a@localhost"],
        &["host: l\u{e4}"],
    ] {
        let answer = asks(&served, MODELS, lines).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_host"), "{lines:?}");
    }
    // Also for endpoints without a key: a page must not even learn that a server is here.
    let answer = asks(&served, "GET /health HTTP/1.1", &["host: evil.example"]).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn the_whole_address_in_the_first_line_counts_too() {
    let served = with(&[], &[]).await;
    let ours = asks(&served, "GET http://localhost/v1/models HTTP/1.1", &["host: localhost"]).await;
    assert_eq!(ours.status, 200);
    for (first, host) in [
        ("GET http://evil.example/v1/models HTTP/1.1", "host: localhost"),
        ("GET http://localhost/v1/models HTTP/1.1", "host: evil.example"),
        ("GET http://localhost@evil.example/v1/models HTTP/1.1", "host: localhost"),
    ] {
        let answer = asks(&served, first, &[host]).await;
        assert!((400..404).contains(&answer.status), "{first}: {answer:?}");
        answer.code();
    }
}

#[tokio::test]
async fn pages_that_are_not_listed_may_not_ask() {
    let served = with(&[], &["https://chat.example"]).await;
    let host = format!("host: localhost:{}", served.address.port());
    let own = format!("origin: http://localhost:{}", served.address.port());
    for line in
        [own.as_str(), "origin: https://chat.example", "sec-fetch-site: same-origin", "sec-fetch-site: none"]
    {
        assert_eq!(asks(&served, MODELS, &[&host, line]).await.status, 200, "{line}");
    }
    for line in [
        "origin: null",
        "origin:",
        "origin: http://localhost",
        "origin: http://localhost:3000",
        "origin: https://evil.example",
        "origin: https://chat.example.evil.example",
        "origin: http://chat.example",
        "origin: https://chat.example\r\norigin: https://chat.example",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
        "sec-fetch-site: anything",
    ] {
        let answer = asks(&served, MODELS, &[&host, line]).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "origin_not_allowed"), "{line}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{line}");
    }
}

#[tokio::test]
async fn a_browser_is_told_what_a_listed_page_may_do() {
    let served = with(&[], &["https://chat.example"]).await;
    let asked = [
        "host: localhost",
        "access-control-request-method: POST",
        "access-control-request-headers: authorization, x-stainless-retry-count, content-type",
    ];
    let preflight = |origin: &'static str| {
        let lines = [asked.as_slice(), &[origin]].concat();
        let served = &served;
        async move { asks(served, "OPTIONS /v1/chat/completions HTTP/1.1", &lines).await }
    };
    let answer = preflight("origin: https://chat.example").await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://chat.example"));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
    assert!(
        answer
            .header("access-control-allow-headers")
            .unwrap()
            .contains("authorization, x-stainless-retry-count")
    );
    assert_eq!(answer.header("vary"), Some("Origin"));
    assert_eq!(
        answer.header("access-control-allow-credentials"),
        None,
        "there is nothing that comes by itself"
    );

    let other = preflight("origin: https://evil.example").await;
    assert_eq!(other.status, 403);
    assert!(!other.headers.keys().any(|name| name.starts_with("access-control")), "{other:?}");

    // The page can read errors too, otherwise it could not say what is wrong.
    let mut raw = Raw::to(served.address).await;
    raw.sends("GET /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: https://chat.example\r\n\r\n").await;
    let answer = raw.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (401, Some("https://chat.example"))
    );
    assert!(answer.header("access-control-expose-headers").unwrap().contains("x-hermes-run-id"));
    // A client that is no page gets no CORS header, but caches in between must not mix the responses up.
    let answer = asks(&served, MODELS, &["host: localhost"]).await;
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (None, Some("Origin")));
}

#[tokio::test]
async fn without_listed_pages_nothing_is_said_to_browsers() {
    let served = Served::start().await;
    let lines = ["host: localhost", "origin: http://localhost:3000", "access-control-request-method: POST"];
    let answer = asks(&served, "OPTIONS /v1/chat/completions HTTP/1.1", &lines).await;
    assert_eq!(answer.status, 403);
    let answer = asks(&served, "OPTIONS /v1/chat/completions HTTP/1.1", &["host: localhost"]).await;
    assert_eq!(answer.status, 405);
    let answer = asks(&served, MODELS, &["host: localhost"]).await;
    assert!(
        !answer.headers.keys().any(|name| name.starts_with("access-control") || name == "vary"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn every_answer_says_how_it_is_to_be_treated() {
    let served = Served::start().await;
    let mut answers = Vec::new();
    for (first, lines) in [
        (MODELS, &["host: localhost"][..]),
        ("GET /health HTTP/1.1", &["host: localhost"]),
        ("GET /nowhere HTTP/1.1", &["host: localhost"]),
        ("PUT /v1/models HTTP/1.1", &["host: localhost"]),
        (MODELS, &["host: evil.example"]),
        (MODELS, &["host: localhost", "origin: https://evil.example"]),
        ("POST /v1/chat/completions HTTP/1.1", &["host: localhost", "content-length: 10000001"]),
        ("this is no HTTP", &[]),
    ] {
        answers.push((first, asks(&served, first, lines).await));
    }
    let mut raw = Raw::to(served.address).await;
    raw.sends(format!("{MODELS}\r\nhost: localhost\r\n\r\n")).await;
    answers.push(("without a key", raw.answer().await.unwrap()));
    let statuses: Vec<u16> = answers.iter().map(|(_, answer)| answer.status).collect();
    assert_eq!(statuses, [200, 200, 404, 405, 403, 403, 413, 400, 401]);
    for (what, answer) in answers {
        for name in SECURITY {
            assert!(answer.header(name).is_some(), "{what}: {name} is missing in {answer:?}");
        }
        assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    }
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    let stream = served.post("/v1/chat/completions", &body).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    for name in SECURITY {
        assert!(stream.headers().contains_key(name), "{name} is missing on a stream");
    }
    assert_eq!(stream.headers()["cache-control"], "no-cache");
}

#[tokio::test]
async fn what_is_sent_as_something_else_than_json_is_not_read() {
    let served = Served::start().await;
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    for (kind, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ] {
        let request = served.request(Method::POST, "/v1/chat/completions").header("content-type", kind);
        assert_eq!(request.body(body.clone()).send().await.unwrap().status(), status, "{kind}");
    }
}

/// Recorded like wrong keys: either an attack through a browser, or a missing setting.
#[tokio::test]
async fn a_wrong_name_and_a_page_that_is_not_listed_are_written_down_once_a_minute() {
    let served = with(&[], &["https://chat.example"]).await;
    for _ in 0..3 {
        for line in ["host: evil.example", "host: localhost\r\norigin: https://evil.example"] {
            assert_eq!(asks(&served, MODELS, &[line]).await.status, 403, "{line}");
        }
        let linked = asks(&served, MODELS, &["host: localhost", "sec-fetch-site: cross-site"]).await;
        assert_eq!(linked.status, 403);
        // A malformed request is not worth a row, and an accepted one gets none.
        assert_eq!(asks(&served, MODELS, &["host: a@localhost"]).await.status, 400);
        assert_eq!(asks(&served, MODELS, &["host: localhost"]).await.status, 200);
    }
    // Another refusal comes after all of these in the audit.
    assert_eq!(served.bare(Method::GET, "/v1/models").send().await.unwrap().status(), 401);
    let rows = served.turned_away(3).await;
    let mut rows: Vec<_> = rows.iter().map(|row| (row.rule.as_str(), row.actor.as_str())).collect();
    rows.sort_unstable();
    let address = "127.0.0.1";
    assert_eq!(rows, [("no key", address), ("unknown host", address), ("unknown origin", address)]);
}
