//! `kind: test`, a chat network over a socket. Only with the feature `testing`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use talaria_platform::{RateLimit, ShowMode};

use super::ConfigError;
use super::document::ConfigDocument;
use super::value::WholeNumber;
use super::yaml_lines::KeyedMapping;

/// What the test platform claims to be able to do, and where it listens.
#[derive(Clone, Debug, PartialEq)]
pub struct TestConfig {
    /// The Unix socket the test listens on.
    pub socket: PathBuf,
    /// The longest message in bytes.
    pub max_text: usize,
    /// What the network is said to allow; `None` is no limit.
    pub rate: Option<RateLimit>,
    /// How a growing answer is shown.
    pub show: ShowMode,
}

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TestSection {
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    // Read by `access_rules`.
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    #[serde(rename = "session")]
    _session: Option<IgnoredAny>,
    #[serde(rename = "busy")]
    _busy: Option<IgnoredAny>,
    #[serde(rename = "places")]
    _places: Option<IgnoredAny>,
    #[serde(rename = "limits")]
    _limits: Option<IgnoredAny>,
    /// No default: needed.
    socket: Option<PathBuf>,
    /// Default: 4000.
    max_text: Option<WholeNumber<200, 1_000_000>>,
    /// Default: no limit.
    rate: Option<KeyedMapping<WrittenRate>>,
    /// Default: 50.
    pause_ms: Option<WholeNumber<0, 60_000>>,
    /// Default: `edit`.
    show: Option<WrittenShow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRate {
    per_second: f64,
    burst: f64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenShow {
    #[default]
    Edit,
    Append,
    Once,
}

pub(super) fn read(document: &ConfigDocument, name: &str) -> Result<TestConfig, ConfigError> {
    let path = ["platforms", name];
    let written: TestSection = document.parse_at(&path)?;
    let Some(socket) = written.socket else {
        return Err(ConfigError::new(format!(
            "`platforms.{name}` has no `socket` {}",
            document.place_of_key(&path)
        )));
    };
    let rate =
        written.rate.map(|KeyedMapping(rate)| RateLimit { per_second: rate.per_second, burst: rate.burst });
    if rate.is_some_and(|rate| !is_positive(rate.per_second) || !is_positive(rate.burst)) {
        let place = document.place(&["platforms", name, "rate"]);
        return Err(ConfigError::new(format!(
            "`platforms.{name}.rate` must be of numbers above zero {place}"
        )));
    }
    let pause = Duration::from_millis(written.pause_ms.map_or(50, |pause| pause.0) as u64);
    Ok(TestConfig {
        socket,
        max_text: written.max_text.map_or(4000, |length| length.0),
        rate,
        show: match written.show.unwrap_or_default() {
            WrittenShow::Edit => ShowMode::Edit { pause },
            WrittenShow::Append => ShowMode::Append,
            WrittenShow::Once => ShowMode::Once,
        },
    })
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// An id of the test network: `@name:server`, as Matrix has them.
pub(super) fn is_id(id: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
    id.strip_prefix('@')
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(name, server)| plain(name) && plain(server))
}
