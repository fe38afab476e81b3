//! CORS headers for the web pages that the configuration lists. Without a listed page, none are sent.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::config::WebOrigin;

/// Methods that a page may use.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH, DELETE");

/// Request headers that a page may send, unless it asks for others.
const SAYS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, last-event-id, x-hermes-session-id, x-hermes-session-key",
);

/// Response headers that a page may read, besides those that every page may.
const READS: HeaderValue = HeaderValue::from_static(
    "retry-after, x-hermes-run-id, x-hermes-session-id, x-hermes-session-key, x-talaria-ignored",
);

/// Seconds for which a browser may cache the preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Whether a request is a CORS preflight.
pub fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight. It carries no key yet, so the answer only says what may be asked.
pub fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, says(asked));
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    // A public page may call a server on a private address.
    let private = HeaderName::from_static("access-control-allow-private-network");
    headers.insert(private, HeaderValue::from_static("true"));
    response
}

/// Allows the headers that a listed page asks for. Clients send headers of their own, such as OpenAI's, and no
/// header grants anything by itself.
fn says(asked: &HeaderMap) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    let asked = asked.get(ACCESS_CONTROL_REQUEST_HEADERS);
    asked.filter(|asked| asked.as_bytes().iter().all(plain)).cloned().unwrap_or(SAYS)
}

/// Lets a listed page read an answer, and tells caches that the answer depends on the origin.
pub fn allow(headers: &mut HeaderMap, listed: &[WebOrigin], page: Option<HeaderValue>) {
    if !listed.is_empty() {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(page) = page {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READS);
    }
}
