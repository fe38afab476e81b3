//! Tokens of apps: `tlr_<8 hex: id>_<64 hex: secret>`, or `cf_…` with the same parts; and tokens of files, `ff_<64 hex>`.
//!
//! Both kinds of app tokens are equal: programs that use the sessions of `/sessions` expect the second prefix.
//!
//! A token is shown once, when it is made; its SHA-256 and its id are stored. With 256 random bits it cannot be
//! guessed, so a plain digest is enough.

use std::io;

use sha2::{Digest, Sha256};

use crate::util::{hex, random_bytes};

/// Prefix of tokens that the operator makes at the command line.
pub const PREFIX: &str = "tlr_";

/// Prefix of tokens that are made over HTTP.
pub const FORGE_PREFIX: &str = "cf_";

/// Prefixes of the tokens of apps, so that people and the log recognise one.
pub const PREFIXES: [&str; 2] = [PREFIX, FORGE_PREFIX];

/// Prefix of the token of an uploaded file.
pub const FILE_PREFIX: &str = "ff_";

/// Hex digits of the id.
const ID: usize = 8;

/// Hex digits of the secret: 256 bits.
const SECRET: usize = 64;

/// Most characters of an app's name.
const LONGEST_NAME: usize = 64;

/// The parts of a token that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDigest {
    /// Id of the token; not secret.
    pub id: String,
    /// SHA-256 of the whole token. Compare it in constant time.
    pub digest: [u8; 32],
}

impl TokenDigest {
    /// The storable parts of a token; `None` if it is malformed.
    pub fn of(token: &str) -> Option<Self> {
        Some(Self { id: id(token)?.to_owned(), digest: digest(token.as_bytes()) })
    }
}

/// Id of a token; `None` if it is malformed. The time this takes reveals nothing about the secret.
pub fn id(token: &str) -> Option<&str> {
    let token = PREFIXES.iter().find_map(|prefix| token.strip_prefix(prefix))?;
    let (id, secret) = token.split_once('_')?;
    (is_hex(id, ID) && is_hex(secret, SECRET)).then_some(id)
}

/// SHA-256 of a token or a key, as stored and compared.
pub fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Makes a new token with one of [`PREFIXES`]. It is shown to the owner once and never again.
pub fn make(prefix: &str) -> io::Result<String> {
    let hex = random_hex((ID + SECRET) / 2)?;
    let (id, secret) = hex.split_at(ID);
    Ok(format!("{prefix}{id}_{secret}"))
}

/// Makes the token of an uploaded file.
pub fn make_for_file() -> io::Result<String> {
    Ok(format!("{FILE_PREFIX}{}", random_hex(SECRET / 2)?))
}

/// The name under which a file is kept: the digest of its token, as hex. `None` if the token is malformed.
pub fn file_name(token: &str) -> Option<String> {
    is_hex(token.strip_prefix(FILE_PREFIX)?, SECRET).then(|| hex(&digest(token.as_bytes())))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// `bytes` random bytes as hex, from the operating system. Fails rather than return fewer.
pub fn random_hex(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0_u8; bytes];
    random_bytes(&mut buffer)?;
    Ok(hex(&buffer))
}

/// Whether an app may have this name: it is the part of session ids before a `/`.
pub fn is_app_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_which_one_it_is_and_nothing_of_its_secret_is_kept() {
        let (one, other) = (make(PREFIX).unwrap(), make(PREFIX).unwrap());
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
        let token = make(PREFIX).unwrap();
        let (id, secret) = (&token[4..12], &token[13..]);
        assert_eq!(super::id(&format!("cf_{id}_{secret}")), Some(id));
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
    fn a_file_is_kept_under_a_name_that_does_not_tell_its_token() {
        let token = make_for_file().unwrap();
        let name = file_name(&token).unwrap();
        assert_eq!((token.len(), name.len()), (67, 64));
        assert!(!token.contains(&name));
        for wrong in ["", "ff_", &token[..66], &token.to_uppercase(), &format!("ff_../{}", &token[6..])] {
            assert_eq!(file_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_apps_are_plain() {
        for name in ["a", "forge", "phone-2", "2phone", "a_b", "_", &"a".repeat(64)] {
            assert!(is_app_name(name), "{name}");
        }
        for name in ["", "Forge", "a/b", "a.b", "a b", "ä", "@http", &"a".repeat(65)] {
            assert!(!is_app_name(name), "{name}");
        }
    }
}
