//! Addresses of servers, and whether a key may be sent to them without encryption.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use url::Url;

/// The address of a server in its normal form: `http` or `https`, a host, perhaps a path; no trailing slash, no user
/// name, no query. An address that is written in an odd way (an IP as one number, upper case) is plain here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    encrypted: bool,
    host: UrlHost,
    port: u16,
}

/// A machine, by its address or its name, each in its normal form. `Display` writes IPv6 in brackets, as in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlHost {
    /// An IPv4 address inside an IPv6 one is IPv4 here, unless it came in a URL.
    Address(IpAddr),
    /// A name in lower case.
    Name(String),
}

impl UrlHost {
    /// Parses a machine as a person wrote it, without a port. `0` and `127.1` become the addresses that a resolver
    /// makes of them, so that the server listens only where the check judged it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if text.is_empty() || !text.bytes().all(plain) {
            return None;
        }
        let url = Url::parse(&format!("http://{text}/")).ok()?;
        let host = url.host_str()?;
        Some(match host.parse::<IpAddr>() {
            Ok(address) => Self::Address(address.to_canonical()),
            Err(_) => Self::Name(host.to_owned()),
        })
    }

    /// Removes the final dot of a fully qualified name.
    #[must_use]
    pub fn without_dot(self) -> Self {
        match self {
            Self::Name(name) => Self::Name(name.strip_suffix('.').unwrap_or(&name).to_owned()),
            Self::Address(address) => Self::Address(address),
        }
    }
}

impl fmt::Display for UrlHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl BaseUrl {
    /// The address without a slash at its end, to append `/…` to.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// The host, by address or name.
    pub fn host(&self) -> &UrlHost {
        &self.host
    }

    /// The port, also if the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether a key may go there in the clear, as far as the address tells. A name may still resolve to a public
    /// address, so the code that connects checks the peer with [`is_private`].
    pub fn is_near(&self) -> bool {
        match &self.host {
            UrlHost::Address(address) => is_private(*address),
            UrlHost::Name(name) => is_near_name(name),
        }
    }

    /// Removes `/v1` from the end, for callers that append it themselves.
    pub fn without_version(mut self) -> Self {
        // A host may be called `v1` too.
        let base = self.text.strip_suffix("/v1").map(|base| base.trim_end_matches('/'));
        if let Some(base) = base.filter(|base| base.contains("://")) {
            self.text = base.to_owned();
        }
        self
    }

    /// Parses an address as a person wrote it. The error is a phrase that follows its name; it does not repeat the
    /// address, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be an address such as `http://192.168.1.10:8642`";
        let url = Url::parse(text.trim()).map_err(|_| FORM)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FORM);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold a user name or password; the key has a setting of its own");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must end with the path: no `?` and no `#`");
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(FORM)?;
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self {
            text: url.as_str().trim_end_matches('/').to_owned(),
            encrypted: url.scheme() == "https",
            port: url.port_or_known_default().ok_or(FORM)?,
            host: match address.parse() {
                Ok(address) => UrlHost::Address(address),
                Err(_) => UrlHost::Name(host.to_owned()),
            },
        })
    }
}

/// Whether an address is on this machine or in a private network: loopback, RFC 1918, link-local, shared (100.64/10, as
/// used by Tailscale) and IPv6 unique local addresses. An IPv4 address inside an IPv6 one is judged as IPv4.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_shared(v4),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
}

/// Whether only a local resolver knows the name. Compared by whole labels: `localhost.example.com` and
/// `127.example.com` are not near.
pub fn is_near_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.rsplit_once('.') {
        None => true,
        Some((_, last)) => matches!(last, "localhost" | "local" | "internal" | "lan"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_at_the_end_may_be_left_out() {
        for (text, without) in [
            ("http://host:8642/v1", "http://host:8642"),
            ("http://host:8642/v1/", "http://host:8642"),
            ("http://host:8642//v1", "http://host:8642"),
            ("https://host/agent/v1", "https://host/agent"),
            ("https://host/agentv1", "https://host/agentv1"),
            ("https://host/v1/agent", "https://host/v1/agent"),
            ("http://v1", "http://v1"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().without_version().as_str(), without, "{text}");
        }
    }

    #[test]
    fn addresses_are_brought_into_their_normal_form() {
        for (text, normal) in [
            ("http://host:8642/", "http://host:8642"),
            ("  http://host:8642//  ", "http://host:8642"),
            ("HTTPS://Agent.Example.com/base/", "https://agent.example.com/base"),
            ("http://0x7f.1:8642", "http://127.0.0.1:8642"),
            ("http://[::1]:8642/", "http://[::1]:8642"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().as_str(), normal, "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused_without_being_repeated() {
        for text in [
            "host",
            "host:8642",
            "ftp://host",
            "http://",
            "http://:80",
            "file:///etc/passwd",
            "http://ann:canary@host",
            "http://canary@host",
            "http://host?key=canary",
            "http://host#canary",
            "http://ho st",
        ] {
            let phrase = BaseUrl::parse(text).unwrap_err();
            assert!(phrase.starts_with("must "), "{text}: {phrase}");
        }
    }

    #[test]
    fn near_is_decided_by_the_whole_address() {
        for near in [
            "http://localhost:8642",
            "http://a.localhost",
            "http://127.0.0.1",
            "http://2130706433",
            "http://0177.0.0.1",
            "http://10.1.2.3",
            "http://172.31.0.1",
            "http://192.168.1.100:8642",
            "http://169.254.1.1",
            "http://100.64.0.1",
            "http://100.127.255.254",
            "http://[::1]",
            "http://[fd00::1]",
            "http://[fe80::1]",
            "http://[::ffff:10.0.0.1]",
            "http://host.docker.internal:8642",
            "http://agent",
            "http://nas.local",
            "http://nas.lan.",
        ] {
            assert!(BaseUrl::parse(near).unwrap().is_near(), "{near}");
        }
        for far in [
            "http://8.8.8.8",
            "http://134744072",
            "http://172.32.0.1",
            "http://100.128.0.1",
            "http://0.0.0.0",
            "http://[2001:db8::1]",
            "http://[::ffff:8.8.8.8]",
            "http://127.evil.com",
            "http://localhost.evil.com",
            "http://10.0.0.1.evil.com",
            "http://evillocal.com",
            "http://agent.example.com.",
        ] {
            assert!(!BaseUrl::parse(far).unwrap().is_near(), "{far}");
        }
    }
}
