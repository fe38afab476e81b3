//! The HTTP client that talks to agent and model servers, and nothing else.
//!
//! It follows no redirect, keeps no cookie, uses no proxy from the environment, unpacks nothing, and
//! sends a key in the clear only to a private address, judged by the address that is really dialled.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;

use crate::config::{BaseUrl, Secret, UpstreamTimeouts, is_private};

/// Interval at which an idle connection is checked for a living peer.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Builds a client for one server.
pub fn build(
    url: &BaseUrl,
    key: Option<&Secret>,
    allow_cleartext: bool,
    timeouts: &UpstreamTimeouts,
) -> Result<reqwest::Client, reqwest::Error> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("talaria/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .connect_timeout(timeouts.connect)
        .tcp_keepalive(KEEPALIVE);
    if key.is_some() && !url.is_encrypted() && !allow_cleartext {
        builder = builder.dns_resolver(Arc::new(PrivateOnly));
    }
    builder.build()
}

/// A bearer key as a header value that logs redact.
pub fn bearer(key: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Adds a label as a header: control characters are left out, and a value that is still not valid is not sent.
pub fn label(headers: &mut HeaderMap, name: &'static str, text: Option<&str>) {
    let Some(text) = text else { return };
    if let Ok(value) = HeaderValue::from_bytes(crate::util::one_line(text, 200).as_bytes()) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Resolves to private addresses only, so that no key is sent to a name that suddenly points elsewhere.
struct PrivateOnly;

impl Resolve for PrivateOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let private: Vec<SocketAddr> = all.filter(|address| is_private(address.ip())).collect();
            if private.is_empty() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, PUBLIC).into());
            }
            Ok(Box::new(private.into_iter()) as Addrs)
        })
    }
}

/// Found again in the error chain, to name this cause in the room's error text.
pub const PUBLIC: &str = "the key would go in the clear to a public address";
