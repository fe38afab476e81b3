//! Answers to input that never becomes a request: too long, too slow, not HTTP, or one connection too many.
//!
//! hyper answers input that it cannot parse by itself, with a status and nothing else. Such an answer is
//! detected and replaced, so that clients get every error in one form.

use std::time::Duration;

use axum::http::StatusCode;
use memchr::memmem;

use super::ApiError;
use super::origin_guard::SECURITY;
use super::sse::SseBuffer;

/// An answer of hyper's own, at the end of the bytes that it writes.
#[derive(Debug, PartialEq, Eq)]
pub struct HyperResponse {
    /// Offset at which it begins.
    pub at: usize,
    /// Its status.
    pub status: StatusCode,
}

/// Finds an answer of hyper's own. Our answers cannot be mistaken for one: they have more headers, and their
/// bodies contain no CRLF.
pub fn automatic(bytes: &[u8]) -> Option<HyperResponse> {
    let at = memmem::rfind(bytes, b"HTTP/1.")?;
    let head = std::str::from_utf8(bytes.get(at..)?).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?;
    let known =
        |line: &str| line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ");
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    (status.is_client_error() && lines.all(known)).then_some(HyperResponse { at, status })
}

/// Our answer in place of hyper's.
pub fn unreadable(status: StatusCode) -> Vec<u8> {
    let (code, message) = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
            "headers_too_large",
            "The head of the request is larger than 16 kB, or has more than 100 headers",
        ),
        StatusCode::URI_TOO_LONG => ("uri_too_long", "The address is too long"),
        _ => ("invalid_http", "The request is not understood: it is no HTTP/1.1"),
    };
    written(&ApiError::new(status, code, message))
}

/// Answer when the head of a request did not arrive in time.
pub fn too_slow() -> Vec<u8> {
    let message = "The head of the request did not come in time";
    written(&ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
}

/// Answer when there are too many connections.
pub fn too_many() -> Vec<u8> {
    let message = "There are too many connections; ask again in a moment";
    let retry_after = Some(Duration::from_secs(2));
    let status = StatusCode::SERVICE_UNAVAILABLE;
    written(&ApiError { retry_after, ..ApiError::new(status, "too_many_connections", message) })
}

/// Serialises the whole answer, after which the connection is closed.
fn written(problem: &ApiError) -> Vec<u8> {
    let ApiError { status, retry_after, .. } = problem;
    let body = serde_json::json!({ "error": problem.object(&mut SseBuffer::default()) }).to_string();
    let mut head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\n",
        body.len()
    );
    let retry_after = retry_after.map(|after| after.as_secs().max(1).to_string());
    let more = retry_after.iter().map(|after| ("retry-after", after.as_str()));
    for (name, value) in SECURITY.into_iter().chain(more) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    format!("{head}\r\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_of_hypers_own_are_replaced() {
        let own =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                    date: Mon, 16 Nov 2026 11:40:39 GMT\r\n\r\n";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        assert_eq!(automatic(own), Some(HyperResponse { at: 0, status }));
        let behind = [b"b\r\nthe rest of it\r\n0\r\n\r\n", own.as_slice()].concat();
        assert_eq!(automatic(&behind), Some(HyperResponse { at: 24, status }));
        for other in [
            own.strip_suffix(b"\r\n").unwrap(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\nx-frame-options: DENY\r\ncontent-length: 0\r\n\r\n",
            b"{\"text\":\"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"}",
            b"HTTP/1.",
            b"",
        ] {
            assert_eq!(automatic(other), None, "{}", String::from_utf8_lossy(other));
        }
        assert_eq!(automatic(&unreadable(status)), None);
    }

    #[test]
    fn an_answer_is_whole() {
        insta::assert_snapshot!(String::from_utf8(too_many()).unwrap().replace('\r', ""), @r#"
        HTTP/1.1 503 Service Unavailable
        connection: close
        content-type: application/json
        content-length: 142
        cache-control: no-store
        x-content-type-options: nosniff
        x-frame-options: DENY
        referrer-policy: no-referrer
        content-security-policy: default-src 'none'; frame-ancestors 'none'
        cross-origin-resource-policy: same-origin
        retry-after: 2

        {"error":{"code":"too_many_connections","message":"There are too many connections; ask again in a moment","param":null,"type":"server_error"}}
        "#);
    }
}
