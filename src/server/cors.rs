//! What browsers want to be told before a listed page may ask and read. Without a listed page none of it is said.

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

/// What a page may do.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH, DELETE");

/// What it may say, unless it asks for something else.
const SAYS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, last-event-id, x-hermes-session-id, x-hermes-session-key",
);

/// What it may read of the answer, besides what every page may.
const READS: HeaderValue = HeaderValue::from_static(
    "retry-after, x-hermes-run-id, x-hermes-session-id, x-hermes-session-key, x-talaria-ignored",
);

/// For how many seconds it need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Whether a browser asks, before a page does.
pub fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that. Nobody has a key yet: it says nothing but what may be asked.
pub fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, says(asked));
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    // From a public page to a private address.
    let private = HeaderName::from_static("access-control-allow-private-network");
    headers.insert(private, HeaderValue::from_static("true"));
    response
}

/// Clients send headers of their own, such as those of OpenAI's. None of them is worth anything by itself: a listed page
/// may send what it asks for.
fn says(asked: &HeaderMap) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    let asked = asked.get(ACCESS_CONTROL_REQUEST_HEADERS);
    asked.filter(|asked| asked.as_bytes().iter().all(plain)).cloned().unwrap_or(SAYS)
}

/// Lets a listed page read an answer, and says that others get another one.
pub fn allow(headers: &mut HeaderMap, listed: &[WebOrigin], page: Option<HeaderValue>) {
    if !listed.is_empty() {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(page) = page {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READS);
    }
}
