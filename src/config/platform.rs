//! The entries below `platforms`, one struct for each kind of chat network.
//!
//! A new kind is a variant of [`PlatformConfig`], a line in [`KINDS`] and one in `read`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ConfigError;
use super::document::Document;
use super::hint::did_you_mean;
#[cfg(feature = "testing")]
use super::people;
#[cfg(feature = "testing")]
pub use super::test_platform::TestConfig;
use crate::rules::AccountRules;

/// One chat account.
#[derive(Clone, Debug, PartialEq)]
pub enum PlatformConfig {
    /// A person at a terminal, or prompts on standard input.
    Console,
    /// A chat network over a socket, for tests that kill the real binary.
    #[cfg(feature = "testing")]
    Test(TestConfig),
}

/// The kinds that are compiled in.
pub const KINDS: &[&str] = &[
    "console",
    #[cfg(feature = "testing")]
    "test",
];

impl PlatformConfig {
    /// What is written as `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Console => "console",
            #[cfg(feature = "testing")]
            Self::Test(_) => "test",
        }
    }

    /// What `platforms.<name>` says about people. Nothing for a terminal, which belongs to whoever sits there: that
    /// is no rule a file can write, but known of a terminal that was really opened.
    #[cfg_attr(
        not(feature = "testing"),
        allow(unused_variables, reason = "the console has no lists; the first network with lists is Matrix")
    )]
    pub(super) fn people(
        &self,
        document: &Document,
        name: &str,
    ) -> Result<Option<AccountRules>, ConfigError> {
        match self {
            Self::Console => Ok(None),
            #[cfg(feature = "testing")]
            Self::Test(_) => people::read(document, name, super::test_platform::is_id).map(Some),
        }
    }

    /// Reads `platforms.<name>` as an entry of this kind.
    pub(super) fn read(document: &Document, name: &str, kind: Option<&str>) -> Result<Self, ConfigError> {
        let path = ["platforms", name];
        match kind.unwrap_or(name) {
            "console" => document.parse_at(&path).map(|Console { .. }| Self::Console),
            #[cfg(feature = "testing")]
            "test" => super::test_platform::read(document, name).map(Self::Test),
            other => Err(unknown_kind(document, name, kind, other)),
        }
    }
}

/// Names are used in ids, in the store and in logs, so they are plain.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

/// `kind: console` has no keys of its own.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Console {
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
}

fn unknown_kind(document: &Document, name: &str, written: Option<&str>, kind: &str) -> ConfigError {
    let known = KINDS.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
    let (what, place) = if written.is_some() {
        (format!("`platforms.{name}.kind` is not a known kind"), document.place(&["platforms", name, "kind"]))
    } else {
        let what = format!("`platforms.{name}` has no `kind`, and its name is not one");
        (what, document.place_of_key(&["platforms", name]))
    };
    let hint = match did_you_mean(kind, KINDS.iter().copied()) {
        Some(hint) => format!("{hint} (known kinds: {known})"),
        None => format!("known kinds: {known}"),
    };
    ConfigError::new(format!("{what} {place}")).hint(hint)
}
