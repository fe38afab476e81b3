//! Configuration of the console: `kind: console`, which has no keys of its own.

use std::any::Any;
use std::sync::Arc;

use serde::Deserialize;
use talaria_platform::config::EntryReader;
use talaria_platform::{AccountPlatform, AccountSettings, PeopleTraits, PlatformKind};

/// The terminal of this process, or prompts on standard input.
pub struct ConsoleKind;

/// The console as it is configured: there is nothing to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleSettings;

/// The entry as written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConsoleSection {}

impl PlatformKind for ConsoleKind {
    fn name(&self) -> &'static str {
        "console"
    }

    fn title(&self) -> &'static str {
        "console"
    }

    fn people(&self) -> Option<PeopleTraits> {
        None
    }

    fn read(&self, entry: &mut EntryReader<'_>) -> Option<Arc<dyn AccountSettings>> {
        let ConsoleSection {} = entry.parse_alone()?;
        Some(Arc::new(ConsoleSettings))
    }
}

impl AccountSettings for ConsoleSettings {
    fn same_as(&self, other: &dyn AccountSettings) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn open(&self) -> AccountPlatform {
        AccountPlatform::Terminal
    }
}
