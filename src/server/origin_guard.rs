//! Middleware around all routes: rejects foreign host names and web pages, catches panics, and adds security
//! headers.

use std::net::Ipv4Addr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use super::host::{self, EntryAddress};
use super::listen::ClientPeer;
use super::rejection_log::RejectedRequest;
use super::{ApiError, Server, ServerSettings, cors};
use crate::config::WebOrigin;

/// Header in which a browser classifies the origin of a request, even if it does not name it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers of every response, streams included.
pub const SECURITY: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Rejects requests that a web page or a rebound name sends, and adds the security headers.
pub async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let settings = &server.settings;
    let peer = request.extensions().get::<ClientPeer>().copied();
    let entrance = peer.map(|peer| peer.entrance);
    let (mut response, page) = match admit(settings, request.uri(), request.headers(), entrance) {
        Ok(Some(page)) if cors::is_preflight(&request) => (cors::preflight(request.headers()), Some(page)),
        // A panic in a handler becomes one error response and does not end the connection with its other
        // requests.
        Ok(page) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => (response, page),
            Err(_) => (ApiError::mistake("its handler panicked").into_response(), page),
        },
        Err(wrong) => {
            if let Some(sent) = wrong.sent() {
                server.turned_away(peer.map_or(Ipv4Addr::LOCALHOST.into(), |peer| peer.address), sent);
            }
            (wrong.problem().into_response(), None)
        }
    };
    let headers = response.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // Answers are for one caller; a cache must not give them to the next.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    cors::allow(headers, &settings.origins, page);
    response
}

/// Reason for rejecting a request.
#[derive(Clone, Copy)]
enum OriginRefusal {
    /// The `Host` header is missing, repeated or malformed.
    Head,
    /// The host name is not ours.
    Name,
    /// A page sent it whose origin is not listed.
    Page,
    /// A browser sent it for a link or an embedded resource, without an origin that could be listed.
    Link,
}

impl OriginRefusal {
    fn problem(self) -> ApiError {
        let (status, code, message) = match self {
            Self::Head => (
                StatusCode::BAD_REQUEST,
                "invalid_host",
                "The request must say once, in its Host header, what the server is called",
            ),
            Self::Name => (
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                "The server is not called that; add the name to server.hosts in the configuration",
            ),
            Self::Page => (
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                "Pages of this origin may not ask; add it to API_SERVER_CORS_ORIGINS",
            ),
            Self::Link => (
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                "A page elsewhere may not lead here; open the address by itself",
            ),
        };
        ApiError::new(status, code, message)
    }

    /// Reason for the operator's log. A malformed request is not worth one.
    fn sent(self) -> Option<RejectedRequest> {
        match self {
            Self::Head => None,
            Self::Name => Some(RejectedRequest::Name),
            Self::Page | Self::Link => Some(RejectedRequest::Page),
        }
    }
}

/// Whether a request is admitted; returns its origin if a listed page sent it.
fn admit(
    settings: &ServerSettings,
    uri: &Uri,
    headers: &HeaderMap,
    entrance: Option<EntryAddress>,
) -> Result<Option<HeaderValue>, OriginRefusal> {
    let host = only(headers, &HOST).ok_or(OriginRefusal::Head)?;
    check_host(settings, host, entrance)?;
    if let Some(authority) = uri.authority() {
        // A whole URL in the request line takes precedence over `Host`; both must be right.
        check_host(settings, authority.as_str(), entrance)?;
    }
    if headers.contains_key(ORIGIN) {
        let origin = only(headers, &ORIGIN).ok_or(OriginRefusal::Page)?;
        let listed = WebOrigin::parse(origin).is_ok_and(|origin| settings.origins.contains(&origin));
        return match (listed, host::is_own(origin, host)) {
            (true, _) => Ok(headers.get(ORIGIN).cloned()),
            (false, true) => Ok(None),
            (false, false) => Err(OriginRefusal::Page),
        };
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        // An address that a person typed has no origin.
        None | Some(b"same-origin" | b"none") => Ok(None),
        Some(_) => Err(OriginRefusal::Link),
    }
}

fn check_host(
    settings: &ServerSettings,
    host: &str,
    entrance: Option<EntryAddress>,
) -> Result<(), OriginRefusal> {
    let host = host::read(host).ok_or(OriginRefusal::Head)?;
    // Without a connection, as in tests, the client is this machine.
    let here = EntryAddress { address: Ipv4Addr::LOCALHOST.into(), everywhere: false };
    match host::is_ours(&host, &settings.hosts, entrance.unwrap_or(here)) {
        true => Ok(()),
        false => Err(OriginRefusal::Name),
    }
}

/// Value of a header that must occur only once: proxies and servers disagree on which of two counts.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.to_str().ok()).flatten()
}
