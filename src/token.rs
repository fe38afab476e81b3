//! Tokens of apps: `tlr_<8 hex: which one>_<64 hex: the secret>`.
//!
//! A token is shown once, when it is made; kept is its SHA-256, and the part that says which one it is. With 256
//! random bits there is nothing to guess, so a plain digest is enough.

use std::io;

use sha2::{Digest, Sha256};

use crate::util::{hex, random_bytes};

/// How every token begins, so that people and the log recognise one.
pub const PREFIX: &str = "tlr_";

/// Digits of the part that says which one it is.
const ID: usize = 8;

/// Digits of the secret: 256 bits.
const SECRET: usize = 64;

/// Characters of an app's name.
const LONGEST_NAME: usize = 40;

/// What of a token may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDigest {
    /// Which one it is; no secret.
    pub id: String,
    /// SHA-256 of the whole token. Compare it in constant time.
    pub digest: [u8; 32],
}

impl TokenDigest {
    /// What is kept of a token; `None` if it is none.
    pub fn of(token: &str) -> Option<Self> {
        Some(Self { id: id(token)?.to_owned(), digest: digest(token.as_bytes()) })
    }
}

/// Which token it is; `None` if it is none. How long that takes says nothing about the secret.
pub fn id(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let fits = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (fits(id, ID) && fits(secret, SECRET)).then_some(id)
}

/// What is kept and compared of a token or a key.
pub fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// A new token. Whoever asked for it is shown it, and nobody ever again.
pub fn make() -> io::Result<String> {
    let hex = random_hex((ID + SECRET) / 2)?;
    let (id, secret) = hex.split_at(ID);
    Ok(format!("{PREFIX}{id}_{secret}"))
}

/// `bytes` random bytes as hex, from the operating system. Nothing is made of fewer.
pub fn random_hex(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0_u8; bytes];
    random_bytes(&mut buffer)?;
    Ok(hex(&buffer))
}

/// Whether an app may be called so: it stands in ids of sessions, before a `/`.
pub fn is_app_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(plain)
        && name.starts_with(|first: char| first.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_which_one_it_is_and_nothing_of_its_secret_is_kept() {
        let (one, other) = (make().unwrap(), make().unwrap());
        let kept = TokenDigest::of(&one).unwrap();
        assert_eq!((one.len(), &one[4..12]), (77, kept.id.as_str()));
        assert_eq!(kept.digest, <[u8; 32]>::from(Sha256::digest(&one)));
        assert_ne!(TokenDigest::of(&other).unwrap().digest, kept.digest);
        assert_ne!(TokenDigest::of(&other).unwrap().id, kept.id);
        let secret = &one[13..];
        assert!(!format!("{kept:?}").contains(&secret[..8]));
    }

    #[test]
    fn what_is_no_token_is_not_looked_up() {
        let token = make().unwrap();
        let (id, secret) = (&token[4..12], &token[13..]);
        for text in [
            "",
            "tlr_",
            "tlr__",
            &token[..76],
            &format!("{token}0"),
            &format!(" {token}"),
            &token.to_uppercase(),
            &format!("tlr_{}_{secret}", &id[..7]),
            &format!("tlr_{id}_{}", secret.replace(|_| true, "g")),
            &format!("tlr_{id}_{secret}_"),
            &format!("xyz_{id}_{secret}"),
        ] {
            assert_eq!(TokenDigest::of(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_apps_are_plain() {
        for name in ["a", "forge", "phone-2", &"a".repeat(40)] {
            assert!(is_app_name(name), "{name}");
        }
        for name in ["", "2phone", "-a", "Forge", "a_b", "a/b", "a b", "ä", "@http", &"a".repeat(41)] {
            assert!(!is_app_name(name), "{name}");
        }
    }
}
