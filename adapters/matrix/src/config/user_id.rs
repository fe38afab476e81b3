//! Full Matrix ids, by the rules of the specification. Pure.

use std::net::Ipv6Addr;

/// The longest id, in bytes, with its `@` and its server.
const LONGEST: usize = 255;

/// Whether a text is the full id of one person: `@local:server`.
///
/// A `*` is refused although old ids could have it: a person who writes one means a pattern, and a list that silently
/// names nobody would be found out late.
pub(crate) fn is_user(id: &str) -> bool {
    // Characters that old accounts may have; new ones have fewer.
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b':' | b'*');
    id.len() <= LONGEST
        && id.strip_prefix('@').and_then(|rest| rest.split_once(':')).is_some_and(|(local, server)| {
            !local.is_empty() && local.bytes().all(is_plain) && is_server(server)
        })
}

/// Whether a text is the name of a server: a host or an address, and perhaps a port.
fn is_server(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || is_port_part(port));
    }
    let (host, port) = match name.find(':') {
        Some(colon) => name.split_at(colon),
        None => (name, ""),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !host.is_empty() && host.bytes().all(is_host) && (port.is_empty() || is_port_part(port))
}

/// `:8448`
fn is_port_part(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| {
        (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_ids_are_known() {
        for id in [
            "@ann:example.org",
            "@a:b",
            "@ann:example.org:8448",
            "@ann:127.0.0.1",
            "@ann:127.0.0.1:80",
            "@ann:[::1]",
            "@ann:[2001:db8::1]:8448",
            "@_irc_ann=7c/x+y.z-1:example.org",
            // Old ids.
            "@Ann!#$:example.org",
            &format!("@{}:example.org", "a".repeat(255 - "@:example.org".len())),
        ] {
            assert!(is_user(id), "{id}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for id in [
            "",
            "@",
            "ann",
            "@ann",
            "@ann:",
            "@:example.org",
            "ann:example.org",
            "#ann:example.org",
            "@ann:example.org:",
            "@ann:example.org:x",
            "@ann:example.org:123456",
            "@ann:example.org:80:80",
            "@ann:exa mple.org",
            "@ann:example.org ",
            " @ann:example.org",
            "@ann:example_org",
            "@ann:[::1",
            "@ann:[::1]8448",
            "@ann:[::1]:",
            "@ann:[example.org]",
            "@änn:example.org",
            "@an n:example.org",
            "@an\u{0}n:example.org",
            "@ann:example.org\n",
            "@*:example.org",
            "@ann:*",
            "*",
            &format!("@{}:example.org", "a".repeat(256 - "@:example.org".len())),
        ] {
            assert!(!is_user(id), "{id:?}");
        }
    }
}
