//! Configuration of the test network: `kind: test`.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use serde::Deserialize;
use talaria_platform::config::value::WholeNumber;
use talaria_platform::config::yaml_lines::KeyedMapping;
use talaria_platform::config::{ConfigError, EntryReader};
use talaria_platform::{
    AccountLink, AccountPlatform, AccountSettings, BoxFuture, CommandFailure, CommandReport, PeopleTraits,
    PlatformKind, RateLimit, ShowMode,
};

use super::{TestNetwork, commands};

/// A chat network over a socket, for tests that kill the real binary.
pub struct TestKind;

/// Capabilities that the test platform claims to have, and where it connects.
#[derive(Clone, Debug, PartialEq)]
pub struct TestConfig {
    /// The Unix socket that the test listens on.
    pub socket: PathBuf,
    /// The longest message in bytes.
    pub max_text: usize,
    /// Rate that the network is said to allow; `None` is no limit.
    pub rate: Option<RateLimit>,
    /// How a growing answer is shown.
    pub show: ShowMode,
}

/// The entry as written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TestSection {
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

impl PlatformKind for TestKind {
    fn name(&self) -> &'static str {
        "test"
    }

    fn title(&self) -> &'static str {
        "test"
    }

    fn people(&self) -> Option<PeopleTraits> {
        Some(PeopleTraits { is_id, examples: ["@ann:example.org", "@bob:example.org"], variable: None })
    }

    fn command(&self) -> Option<clap::Command> {
        Some(commands::command())
    }

    fn run_command<'a>(
        &'a self,
        arguments: &'a ArgMatches,
        account: &'a dyn AccountLink,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(commands::run_there(arguments, account))
    }

    fn read(&self, entry: &mut EntryReader<'_>) -> Option<Arc<dyn AccountSettings>> {
        let written: TestSection = entry.parse()?;
        let name = entry.name();
        let Some(socket) = written.socket else {
            let place = entry.place_of_name();
            entry.refuse(ConfigError::new(format!("`platforms.{name}` has no `socket`{place}")));
            return None;
        };
        let rate = written
            .rate
            .map(|KeyedMapping(rate)| RateLimit { per_second: rate.per_second, burst: rate.burst });
        if rate.is_some_and(|rate| !is_positive(rate.per_second) || !is_positive(rate.burst)) {
            let place = entry.place(Some("rate"));
            let what = format!("`platforms.{name}.rate` must be of numbers above zero{place}");
            entry.refuse(ConfigError::new(what));
            return None;
        }
        let pause = Duration::from_millis(written.pause_ms.map_or(50, |pause| pause.0) as u64);
        Some(Arc::new(TestConfig {
            socket,
            max_text: written.max_text.map_or(4000, |length| length.0),
            rate,
            show: match written.show.unwrap_or_default() {
                WrittenShow::Edit => ShowMode::Edit { pause },
                WrittenShow::Append => ShowMode::Append,
                WrittenShow::Once => ShowMode::Once,
            },
        }))
    }
}

impl AccountSettings for TestConfig {
    fn same_as(&self, other: &dyn AccountSettings) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn open(&self) -> AccountPlatform {
        AccountPlatform::Network(Arc::new(TestNetwork::new(self.clone())))
    }

    fn run_command<'a>(
        &'a self,
        arguments: &'a ArgMatches,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(commands::run_here(arguments, self))
    }
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// Whether a text is an id of the test network: `@name:server`.
fn is_id(id: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
    id.strip_prefix('@')
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(name, server)| plain(name) && plain(server))
}
