//! The entries below `platforms`. Each is read by its kind; the keys about people are the same for all of them.

use std::fmt;
use std::sync::Arc;

use talaria_platform::{AccountSettings, PlatformKind};

use super::ConfigError;
use super::document::ConfigDocument;
use super::suggest::did_you_mean;
use crate::platforms::{self, KINDS, LEFT_OUT};

/// One configured account.
#[derive(Clone)]
pub struct PlatformConfig {
    kind: &'static dyn PlatformKind,
    settings: Arc<dyn AccountSettings>,
}

impl PlatformConfig {
    /// An account of this kind.
    pub(super) fn new(kind: &'static dyn PlatformKind, settings: Arc<dyn AccountSettings>) -> Self {
        Self { kind, settings }
    }

    /// The kind of its platform.
    pub fn kind(&self) -> &'static dyn PlatformKind {
        self.kind
    }

    /// Its settings.
    pub fn settings(&self) -> &dyn AccountSettings {
        &*self.settings
    }
}

impl fmt::Debug for PlatformConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.kind.name()).field(&self.settings).finish()
    }
}

impl PartialEq for PlatformConfig {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name() == other.kind.name() && self.settings.same_as(&*other.settings)
    }
}

/// Whether an account may have this name. Names are used in ids, in the store and in logs, so they are plain.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

/// The kind of `platforms.<name>`; without a `kind`, the entry's name is its kind.
pub(super) fn kind_of(
    document: &ConfigDocument,
    name: &str,
    written: Option<&str>,
) -> Result<&'static dyn PlatformKind, ConfigError> {
    let kind = written.unwrap_or(name);
    if let Some(known) = platforms::find(kind) {
        return Ok(known);
    }
    if let Some(left_out) = LEFT_OUT.iter().find(|left_out| left_out.name == kind) {
        let (title, place) = (left_out.title, document.place_of_key(&["platforms", name]));
        let what = format!("`platforms.{name}` needs {title}, which this Talaria was built without {place}");
        let hint = format!("build Talaria with the feature `{}`, which is on by default", left_out.feature);
        return Err(ConfigError::new(what).hint(hint));
    }
    Err(unknown_kind(document, name, written, kind))
}

fn unknown_kind(document: &ConfigDocument, name: &str, written: Option<&str>, kind: &str) -> ConfigError {
    let known = KINDS.iter().map(|kind| format!("`{}`", kind.name())).collect::<Vec<_>>().join(", ");
    let (what, place) = if written.is_some() {
        (format!("`platforms.{name}.kind` is not a known kind"), document.place(&["platforms", name, "kind"]))
    } else {
        let what = format!("`platforms.{name}` has no `kind`, and its name is not one");
        (what, document.place_of_key(&["platforms", name]))
    };
    let hint = match did_you_mean(kind, KINDS.iter().map(|kind| kind.name())) {
        Some(hint) => format!("{hint} (known kinds: {known})"),
        None => format!("known kinds: {known}"),
    };
    ConfigError::new(format!("{what} {place}")).hint(hint)
}
