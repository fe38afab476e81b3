//! What every request must pass, and what every answer carries, whoever asks.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{Problem, Server};

/// Names of this machine, by which it may always be called.
const OURS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"];

/// Said with every answer, streams too.
const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
];

/// Turns away what a web page or a forged name sends, and says how answers are to be treated.
pub async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&server, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in SECURITY {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn admit(server: &Server, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| match port.bytes().all(|b| b.is_ascii_digit()) {
            true => name,
            false => host,
        });
    let known = |ours: &str| ours.eq_ignore_ascii_case(name);
    if !OURS.iter().copied().any(known) && !server.settings.hosts.iter().any(|host| known(host)) {
        let message = "The server is not called that; add the name to server.hosts in the configuration";
        return Err(Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", message));
    }
    if let Some(origin) = headers.get(ORIGIN)
        && !server.settings.origins.iter().any(|listed| origin.as_bytes() == listed.as_bytes())
    {
        let message = "Pages of this origin may not ask; add it to API_SERVER_CORS_ORIGINS";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", message));
    }
    Ok(())
}
