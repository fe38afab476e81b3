//! The entries below `platforms`. Each is read by its kind; the keys about people are the same for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use talaria_platform::config::EntryReader;
use talaria_platform::{AccountId, AccountSettings, PlatformKind};

use super::access_rules::{self, NetworkTraits};
use super::document::ConfigDocument;
use super::file::PlatformSection;
use super::resolve::ConfigResolver;
use super::setting::filled;
use super::suggest::did_you_mean;
use super::yaml_lines::KeyedMapping;
use super::{ConfigError, access_lint};
use crate::platforms::{self, KINDS, LEFT_OUT, LeftOutKind};
use crate::rules::Rules;

/// One configured account.
#[derive(Clone)]
pub struct PlatformConfig {
    kind: &'static dyn PlatformKind,
    settings: Arc<dyn AccountSettings>,
}

impl PlatformConfig {
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

/// The entries below `platforms` as written.
type WrittenPlatforms = BTreeMap<String, Option<KeyedMapping<PlatformSection>>>;

impl ConfigResolver<'_> {
    /// Reads all entries, and the rules about people in them.
    pub(super) fn platforms(
        &mut self,
        mut written: WrittenPlatforms,
        rules: &mut Rules,
    ) -> BTreeMap<AccountId, PlatformConfig> {
        let mut platforms = BTreeMap::new();
        self.add_by_variables(&mut written);
        let absent = ConfigDocument::absent();
        let document = self.document.unwrap_or(&absent);
        for (name, entry) in written {
            if !is_name(&name) {
                let place = document.place_of_key(&["platforms", &name]);
                // A key that got there by a slip is not shown; those are seldom a few plain words.
                let plain = |c: char| c.is_alphabetic() || matches!(c, ' ' | '.');
                let word = name.len() <= 32 && name.chars().all(plain) && name.contains(char::is_lowercase);
                let name = if word { format!("the name `{name}`, which") } else { "a name that".to_owned() };
                self.errors.push(
                    ConfigError::new(format!("`platforms` has {name} cannot be used {place}"))
                        .hint("names are 1 to 32 of `a`–`z`, `0`–`9`, `_` and `-`"),
                );
                continue;
            }
            let written = entry.and_then(|KeyedMapping(entry)| filled(entry.kind));
            match kind_of(document, &name, written.as_deref()) {
                Ok(kind) => self.read_account(document, kind, &name, &mut platforms, rules),
                Err(error) => self.errors.push(error),
            }
        }
        for kind in KINDS.iter().filter(|kind| kind.people().is_none()) {
            let same = |platform: &&PlatformConfig| platform.kind().name() == kind.name();
            if platforms.values().filter(same).count() > 1 {
                let (kind, place) = (kind.name(), document.place(&["platforms"]));
                let what = format!("`platforms` has more than one entry of the kind `{kind}` {place}");
                self.errors.push(ConfigError::new(what).hint("there is one terminal; keep one of them"));
            }
        }
        platforms
    }

    /// Reads one entry: the kind reads its own keys, the keys about people are the same for all networks.
    fn read_account(
        &mut self,
        document: &ConfigDocument,
        kind: &'static dyn PlatformKind,
        name: &str,
        platforms: &mut BTreeMap<AccountId, PlatformConfig>,
        rules: &mut Rules,
    ) {
        let before = self.errors.len();
        let Some(settings) = kind.read(&mut EntryReader::new(kind.name(), name, self.reader())) else {
            return;
        };
        let account = AccountId::from(name);
        if let Some(people) = kind.people() {
            let network = NetworkTraits::new(self.env, kind, name, people, settings.author_proof());
            // Read even if the kind has found faults, so that all of them are reported at once.
            match access_rules::read(document, name, network) {
                Ok(people) if self.errors.len() == before => {
                    self.warnings.extend(access_lint::warnings(name, &people.access));
                    rules.accounts.insert(account.clone(), Arc::new(people));
                }
                Ok(_) => {}
                Err(error) => self.errors.push(error),
            }
        }
        if self.errors.len() == before {
            platforms.insert(account, PlatformConfig { kind, settings });
        }
    }

    /// Adds the entries that variables configure, where the file has none.
    fn add_by_variables(&mut self, written: &mut WrittenPlatforms) {
        for left_out in LEFT_OUT {
            let LeftOutKind { title, feature, variable, .. } = left_out;
            if self.env.get(variable).is_some() {
                let variable = variable.name;
                self.errors.push(
                    ConfigError::new(format!(
                        "`{variable}` is set, but this Talaria was built without {title}"
                    ))
                    .hint(format!(
                        "unset it, or build Talaria with the feature `{feature}`, which is on by default"
                    )),
                );
            }
        }
        for kind in KINDS {
            let Some(var) = kind.variables().iter().find(|var| self.env.get(var).is_some()) else { continue };
            let (variable, name) = (var.name, kind.name());
            let entry = written.entry(name.to_owned()).or_default();
            let other = entry.as_ref().and_then(|KeyedMapping(entry)| filled(entry.kind.clone()));
            if other.is_some_and(|other| other != name) {
                let place = self.place(&["platforms", name, "kind"]);
                self.errors.push(
                    ConfigError::new(format!(
                        "`{variable}` configures `platforms.{name}`, which is of another kind{place}"
                    ))
                    .hint(format!(
                        "give that entry another name, or unset the variables that begin with `{}_`",
                        name.to_uppercase()
                    )),
                );
            }
        }
    }
}

/// Whether an account may have this name. Names are used in ids, in the store and in logs, so they are plain.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

/// The kind of `platforms.<name>`; without a `kind`, the entry's name is its kind.
fn kind_of(
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
