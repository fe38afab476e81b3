//! What every request must pass, and what every answer carries, whoever asks.

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
    let peer = request.extensions().get::<ClientPeer>().copied();
    let entrance = peer.map(|peer| peer.entrance);
    let (mut response, page) = match admit(settings, request.uri(), request.headers(), entrance) {
        Ok(Some(page)) if cors::is_preflight(&request) => (cors::preflight(request.headers()), Some(page)),
        // Whatever breaks in a handler is one answer, not the connection with all that is asked on it.
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
    // What is said here is for whoever asks, not for who asks next.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    cors::allow(headers, &settings.origins, page);
    response
}

/// Why a request may not come in.
#[derive(Clone, Copy)]
enum OriginRefusal {
    /// It does not say what the server is called, or not once.
    Head,
    /// The server is not called that.
    Name,
    /// A page sends it that is not listed.
    Page,
    /// A browser that follows a link or loads a picture sends it, and says no origin that could be listed.
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

    /// What the operator is told of it. What is no proper request is not worth it.
    fn sent(self) -> Option<RejectedRequest> {
        match self {
            Self::Head => None,
            Self::Name => Some(RejectedRequest::Name),
            Self::Page | Self::Link => Some(RejectedRequest::Page),
        }
    }
}

/// Whether a request may come in at all; and if a listed page sends it, which.
fn admit(
    settings: &ServerSettings,
    uri: &Uri,
    headers: &HeaderMap,
    entrance: Option<EntryAddress>,
) -> Result<Option<HeaderValue>, OriginRefusal> {
    let host = only(headers, &HOST).ok_or(OriginRefusal::Head)?;
    check_host(settings, host, entrance)?;
    if let Some(authority) = uri.authority() {
        // The whole address in the first line counts for more than `Host`; both must be right.
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
        // What people type themselves comes from nowhere.
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
    // Without a connection there is only this machine.
    let here = EntryAddress { address: Ipv4Addr::LOCALHOST.into(), everywhere: false };
    match host::is_ours(&host, &settings.hosts, entrance.unwrap_or(here)) {
        true => Ok(()),
        false => Err(OriginRefusal::Name),
    }
}

/// A header that must not be there twice: everybody on the way has to read the same.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.to_str().ok()).flatten()
}
