//! Ranges of network addresses, as in `10.0.0.0/8`: the places from which a token may be used. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bits of an IPv6 address before the IPv4 address that is written in it (`::ffff:10.0.0.1`).
const MAPPED: u8 = 96;

/// A range of addresses of one family. An IPv4 address that is written as IPv6 (`::ffff:…`) counts as IPv4, as in a range
/// so in a request.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpRange {
    /// The first address of the range.
    first: IpAddr,
    /// Number of leading bits that all addresses of the range share.
    bits: u8,
}

/// The text is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a range is written like 192.168.1.0/24, fd00::/8 or 192.168.1.7")]
pub struct NotARange;

impl IpRange {
    /// Whether an address lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => first == masked_v4(address, self.bits),
            (IpAddr::V6(first), IpAddr::V6(address)) => first == masked_v6(address, self.bits),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = NotARange;

    /// Reads a range, or a single address. Bits behind the shared ones do not matter: `10.1.2.3/8` is `10.0.0.0/8`.
    fn from_str(text: &str) -> Result<Self, NotARange> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotARange)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // Digits alone: `parse` would also take a sign.
            Some(bits) if !bits.bytes().all(|byte| byte.is_ascii_digit()) => return Err(NotARange),
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or(NotARange)?,
            None => most,
        };
        Ok(match address {
            IpAddr::V4(address) => Self { first: masked_v4(address, bits).into(), bits },
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(mapped) if bits >= MAPPED => {
                    let bits = bits - MAPPED;
                    Self { first: masked_v4(mapped, bits).into(), bits }
                }
                Some(_) | None => Self { first: masked_v6(address, bits).into(), bits },
            },
        })
    }
}

impl TryFrom<String> for IpRange {
    type Error = NotARange;

    fn try_from(text: String) -> Result<Self, NotARange> {
        text.parse()
    }
}

impl From<IpRange> for String {
    fn from(range: IpRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl fmt::Debug for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn masked_v4(address: Ipv4Addr, bits: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn masked_v6(address: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> IpRange {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_holds_what_shares_its_first_bits() {
        for (text, inside, outside) in [
            ("192.168.1.0/24", ["192.168.1.0", "192.168.1.255"], ["192.168.2.0", "::1"]),
            ("10.1.2.3/8", ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "9.255.255.255"]),
            ("192.168.1.7", ["192.168.1.7", "::ffff:192.168.1.7"], ["192.168.1.8", "::c0a8:107"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "fd00::1"]),
            ("fd00::/8", ["fd00::", "fdff:ffff::1"], ["fc00::1", "10.0.0.1"]),
            ("::1", ["::1", "0:0::1"], ["::2", "127.0.0.1"]),
            ("::/0", ["::", "fe80::1"], ["10.0.0.1", "::ffff:10.0.0.1"]),
            // A range in mapped form is one of IPv4.
            ("::ffff:10.0.0.0/104", ["10.1.2.3", "::ffff:10.9.9.9"], ["11.0.0.1", "::a00:1"]),
            ("::ffff:10.0.0.1", ["10.0.0.1", "::ffff:a00:1"], ["10.0.0.2", "::1"]),
        ] {
            for inside in inside {
                assert!(range(text).contains(address(inside)), "{inside} in {text}");
            }
            for outside in outside {
                assert!(!range(text).contains(address(outside)), "{outside} in {text}");
            }
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "/",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "10.0.0/8",
            "10.0.0.256",
            "::/129",
            "fe80::1%eth0",
            "host/8",
            "10.0.0.0/0x8",
            "10.0.0.0 /8",
            "010.0.0.0/8",
            "*",
        ] {
            assert_eq!(text.parse::<IpRange>(), Err(NotARange), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_range_is_read_as_it_was_written_and_holds_its_own_address(raw: u128, v4: bool, bits in 0_u8..=128) {
            let (address, bits) = match v4 {
                true => (IpAddr::V4(Ipv4Addr::from_bits(raw as u32)), bits % 33),
                false => (IpAddr::V6(Ipv6Addr::from_bits(raw)), bits),
            };
            let written: IpRange = format!("{address}/{bits}").parse().unwrap();
            prop_assert_eq!(written.to_string().parse::<IpRange>(), Ok(written));
            // A range of IPv6 that reaches beyond the mapped addresses holds none of those.
            let is_mapped = address.to_canonical().is_ipv4() != address.is_ipv4();
            prop_assert!(written.contains(address) || is_mapped && bits < MAPPED);
        }

        #[test]
        fn an_address_beyond_the_last_shared_bit_is_outside(raw: u32, bits in 1_u8..=32) {
            let range: IpRange = format!("{}/{bits}", Ipv4Addr::from_bits(raw)).parse().unwrap();
            let flipped = raw ^ (1 << (32 - u32::from(bits)));
            prop_assert!(!range.contains(Ipv4Addr::from_bits(flipped).into()));
            prop_assert!(range.contains(Ipv4Addr::from_bits(raw).to_ipv6_mapped().into()));
        }

        #[test]
        fn no_text_makes_it_fail(text: String) {
            let _ = text.parse::<IpRange>();
        }
    }
}
