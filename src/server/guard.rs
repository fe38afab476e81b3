//! What every request must pass, and what every answer carries, whoever asks.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use super::host::{self, Entrance};
use super::listen::Peer;
use super::{Problem, Server, Settings, cors};
use crate::config::Origin;

/// Where a browser says that a request comes from, even if it does not say from whom.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Said with every answer, streams too.
pub const SECURITY: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Turns away what a web page or a forged name sends, and says how answers are to be treated.
pub async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let settings = &server.settings;
    let entrance = request.extensions().get::<Peer>().map(|peer| peer.entrance);
    let (mut response, page) = match admit(settings, request.uri(), request.headers(), entrance) {
        Ok(Some(page)) if cors::is_preflight(&request) => (cors::preflight(request.headers()), Some(page)),
        // Whatever breaks in a handler is one answer, not the connection with all that is asked on it.
        Ok(page) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => (response, page),
            Err(_) => (Problem::mistake("its handler panicked").into_response(), page),
        },
        Err(problem) => (problem.into_response(), None),
    };
    let headers = response.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // What is said here is for whoever asks, not for who asks next.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    cors::allow(headers, &settings.origins, page);
    response
}

/// Whether a request may come in at all; and if a listed page sends it, which.
fn admit(
    settings: &Settings,
    uri: &Uri,
    headers: &HeaderMap,
    entrance: Option<Entrance>,
) -> Result<Option<HeaderValue>, Problem> {
    let host = only(headers, &HOST).ok_or_else(no_host)?;
    check_host(settings, host, entrance)?;
    if let Some(authority) = uri.authority() {
        // The whole address in the first line counts for more than `Host`; both must be right.
        check_host(settings, authority.as_str(), entrance)?;
    }
    if headers.contains_key(ORIGIN) {
        let origin = only(headers, &ORIGIN).ok_or_else(wrong_page)?;
        let listed = Origin::parse(origin).is_ok_and(|origin| settings.origins.contains(&origin));
        return match (listed, host::is_own(origin, host)) {
            (true, _) => Ok(headers.get(ORIGIN).cloned()),
            (false, true) => Ok(None),
            (false, false) => Err(wrong_page()),
        };
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        // What people type themselves comes from nowhere.
        None | Some(b"same-origin" | b"none") => Ok(None),
        Some(_) => Err(linked()),
    }
}

fn check_host(settings: &Settings, host: &str, entrance: Option<Entrance>) -> Result<(), Problem> {
    let host = host::read(host).ok_or_else(no_host)?;
    // Without a connection there is only this machine.
    let here = Entrance { address: std::net::Ipv4Addr::LOCALHOST.into(), everywhere: false };
    match host::is_ours(&host, &settings.hosts, entrance.unwrap_or(here)) {
        true => Ok(()),
        false => {
            let message = "The server is not called that; add the name to server.hosts in the configuration";
            Err(Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
        }
    }
}

/// A header that must not be there twice: everybody on the way has to read the same.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.to_str().ok()).flatten()
}

fn no_host() -> Problem {
    let message = "The request must say once, in its Host header, what the server is called";
    Problem::new(StatusCode::BAD_REQUEST, "invalid_host", message)
}

fn wrong_page() -> Problem {
    let message = "Pages of this origin may not ask; add it to API_SERVER_CORS_ORIGINS";
    Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", message)
}

/// A browser that follows a link or loads a picture says no origin that could be listed.
fn linked() -> Problem {
    let message = "A page elsewhere may not lead here; open the address by itself";
    Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", message)
}
