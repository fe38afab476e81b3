//! Checks the host name of a request, and whether a web page belongs to this server. Pure.
//!
//! A page that makes its own name resolve to this machine (DNS rebinding) still sends that name, so names that
//! are not ours are refused. Everything is parsed as a browser parses it, and compared in its normal form.

use std::net::IpAddr;

use reqwest::Url;

use crate::config::UrlHost;

/// Names of this machine that are always accepted.
const OURS: [&str; 2] = ["localhost", "host.docker.internal"];

/// The local end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct EntryAddress {
    /// The address that the client connected to.
    pub address: IpAddr,
    /// The server listens on all addresses, so it may be reachable by one that it does not know.
    pub everywhere: bool,
}

/// Reads `name`, `name:port`, `192.168.1.7:port` or `[::1]:port`.
pub fn read(text: &str) -> Option<UrlHost> {
    of(&url("http", text)?)
}

fn of(url: &Url) -> Option<UrlHost> {
    match UrlHost::parse(url.host_str()?)?.without_dot() {
        UrlHost::Name(name) if name.is_empty() => None,
        host => Some(host),
    }
}

/// Whether the server may be addressed by this host.
pub fn is_ours(host: &UrlHost, listed: &[UrlHost], entrance: EntryAddress) -> bool {
    let ours = match host {
        UrlHost::Address(address) => {
            // An address was not looked up in DNS, so it cannot have been rebound.
            address.is_loopback() || entrance.everywhere || *address == entrance.address.to_canonical()
        }
        UrlHost::Name(name) => OURS.contains(&name.as_str()),
    };
    ours || listed.contains(host)
}

/// Whether a page's origin is this server itself, as named in the `Host` header: same name and same port.
pub fn is_own(origin: &str, host: &str) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    if !matches!(scheme, "http" | "https") {
        return false;
    }
    let (Some(page), Some(server)) = (url(scheme, rest), url(scheme, host)) else { return false };
    of(&page) == of(&server) && page.port_or_known_default() == server.port_or_known_default()
}

/// Parses a host as a URL of nothing else: no user, no path, no hidden characters.
fn url(scheme: &str, host: &str) -> Option<Url> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) {
        return None;
    }
    Url::parse(&format!("{scheme}://{host}/")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_LOOPBACK: EntryAddress =
        EntryAddress { address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), everywhere: false };

    fn ours(host: &str, listed: &[&str], entrance: EntryAddress) -> bool {
        let listed: Vec<UrlHost> = listed.iter().map(|host| UrlHost::parse(host).unwrap()).collect();
        read(host).is_some_and(|host| is_ours(&host, &listed, entrance))
    }

    #[test]
    fn this_machine_is_known_however_it_is_written() {
        for host in [
            "localhost",
            "LocalHost",
            "localhost.",
            "localhost:8642",
            "localhost.:8642",
            "localhost:",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1.:80",
            "127.1:8642",
            "127.9.8.7",
            "0x7f.1",
            "2130706433",
            "[::1]",
            "[::1]:8642",
            "[0:0:0:0:0:0:0:1]:8642",
            "[::ffff:127.0.0.1]",
            "host.docker.internal",
            "Host.Docker.Internal.:8642",
        ] {
            assert!(ours(host, &[], ON_LOOPBACK), "{host}");
        }
    }

    #[test]
    fn every_other_name_is_not_ours() {
        for host in [
            "",
            "evil.example",
            "127.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "localhost..",
            "evil@localhost",
            "localhost@evil.example",
            "localhost/..",
            "localhost#x",
            "localhost?x",
            "localhost\\x",
            "local host",
            "local\thost",
            "loc%61lhost",
            "localhost:port",
            "localhost:99999",
            "localhost:80:80",
            "[::1",
            "::1",
            "[::2]",
            "10.0.0.1",
            "0.0.0.0",
            "ⓛocalhost",
        ] {
            assert!(!ours(host, &[], ON_LOOPBACK), "{host}");
        }
    }

    #[test]
    fn what_is_listed_and_where_it_listens_is_ours_too() {
        let at = |address: &str, everywhere| EntryAddress { address: address.parse().unwrap(), everywhere };
        assert!(ours("Relay.Example:443", &["relay.example"], ON_LOOPBACK));
        assert!(ours("relay.example.", &["RELAY.example"], ON_LOOPBACK));
        assert!(!ours("other.example", &["relay.example"], ON_LOOPBACK));
        assert!(ours("192.168.1.7:8642", &[], at("192.168.1.7", false)));
        assert!(ours("192.168.1.7:8642", &[], at("::ffff:192.168.1.7", false)));
        assert!(!ours("192.168.1.8:8642", &[], at("192.168.1.7", false)));
        assert!(ours("[2001:DB8::1]", &[], at("2001:db8::1", false)));
        // In a container the address of the host machine is not known.
        assert!(ours("192.168.1.7:8642", &[], at("172.17.0.2", true)));
        assert!(!ours("evil.example", &[], at("172.17.0.2", true)));
    }

    #[test]
    fn a_page_of_our_own_has_the_same_name_and_port() {
        for (origin, host) in [
            ("http://localhost:8642", "localhost:8642"),
            ("http://LOCALHOST:8642", "localhost.:8642"),
            ("http://127.0.0.1:8642", "127.1:8642"),
            ("http://localhost", "localhost:80"),
            ("https://relay.example", "relay.example"),
            ("https://relay.example:443", "relay.example"),
        ] {
            assert!(is_own(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost:8642"),
            ("http://localhost:3000", "localhost:8642"),
            ("http://localhost", "localhost:8642"),
            ("http://127.0.0.1:8642", "localhost:8642"),
            ("http://localhost:8642/", "localhost:8642"),
            ("http://evil@localhost:8642", "localhost:8642"),
            ("ftp://localhost:8642", "localhost:8642"),
            ("http://", ""),
            ("", ""),
        ] {
            assert!(!is_own(origin, host), "{origin} {host}");
        }
    }
}
