//! The entries below `platforms`, one struct for each kind of chat network.
//!
//! A new kind is a variant of [`PlatformConfig`], a line in [`KINDS`] and one in `read`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ConfigError;
#[cfg(feature = "testing")]
use super::access_rules;
use super::document::ConfigDocument;
use super::env::EnvReader;
use super::resolve::ConfigResolver;
use super::suggest::did_you_mean;
#[cfg(feature = "testing")]
pub use super::test_platform::TestConfig;
use crate::rules::AccountRules;

/// One chat account.
#[derive(Clone, Debug, PartialEq)]
pub enum PlatformConfig {
    /// A person at a terminal, or prompts on standard input.
    Console,
    /// An account on a Matrix homeserver.
    #[cfg(feature = "matrix")]
    Matrix(Box<talaria_matrix::MatrixSettings>),
    /// A chat network over a socket, for tests that kill the real binary.
    #[cfg(feature = "testing")]
    Test(TestConfig),
}

/// The kinds that are compiled in.
pub const KINDS: &[&str] = &[
    "console",
    #[cfg(feature = "matrix")]
    "matrix",
    #[cfg(feature = "testing")]
    "test",
];

impl PlatformConfig {
    /// What is written as `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Console => "console",
            #[cfg(feature = "matrix")]
            Self::Matrix(_) => "matrix",
            #[cfg(feature = "testing")]
            Self::Test(_) => "test",
        }
    }

    /// What `platforms.<name>` says about people. Nothing for a terminal, which belongs to whoever sits there: that
    /// is no rule a file can write, but known of a terminal that was really opened.
    #[cfg_attr(
        not(any(feature = "testing", feature = "matrix")),
        allow(unused_variables, reason = "the console has no lists; the first network with lists is Matrix")
    )]
    #[cfg_attr(not(feature = "matrix"), allow(unused_variables, reason = "only Matrix has variables"))]
    pub(super) fn people(
        &self,
        env: EnvReader<'_>,
        document: &ConfigDocument,
        name: &str,
    ) -> Result<Option<AccountRules>, ConfigError> {
        match self {
            Self::Console => Ok(None),
            #[cfg(feature = "matrix")]
            Self::Matrix(settings) => super::matrix::people(env, document, name, settings).map(Some),
            #[cfg(feature = "testing")]
            Self::Test(_) => {
                let is_id = super::test_platform::is_id;
                let network =
                    access_rules::NetworkTraits { is_id, variable: None, trust: None, secure_only: false };
                access_rules::read(document, name, network).map(Some)
            }
        }
    }

    /// Reads `platforms.<name>` as an entry of this kind. `None` only with an error.
    pub(super) fn read(
        resolver: &mut ConfigResolver<'_>,
        document: &ConfigDocument,
        name: &str,
        kind: Option<&str>,
    ) -> Option<Self> {
        let path = ["platforms", name];
        let read = match kind.unwrap_or(name) {
            "console" => document.parse_at(&path).map(|ConsoleSection { .. }| Self::Console),
            #[cfg(feature = "matrix")]
            "matrix" => return super::matrix::read(resolver, document, name).map(Box::new).map(Self::Matrix),
            #[cfg(not(feature = "matrix"))]
            "matrix" => {
                let place = document.place_of_key(&path);
                let what =
                    format!("`platforms.{name}` needs Matrix, which this Talaria was built without {place}");
                Err(ConfigError::new(what)
                    .hint("build Talaria with the feature `matrix`, which is on by default"))
            }
            #[cfg(feature = "testing")]
            "test" => super::test_platform::read(document, name).map(Self::Test),
            other => Err(unknown_kind(document, name, kind, other)),
        };
        read.map_err(|error| resolver.errors.push(error)).ok()
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
pub(super) struct ConsoleSection {
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
}

fn unknown_kind(document: &ConfigDocument, name: &str, written: Option<&str>, kind: &str) -> ConfigError {
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
