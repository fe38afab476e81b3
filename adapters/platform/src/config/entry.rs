//! Reads one entry below `platforms`, for the kind of platform that it names.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer as _, value};

use super::env::EnvVar;
use super::secret_sources::KeySetting;
use super::setting::{GivenValue, SettingReader, SettingSource};
use super::suggest::did_you_mean;
use super::yaml_lines::KeyedMapping;
use super::{ConfigError, Secret, SecretForm};
use crate::{AddressedWhen, RoomId};

/// Keys that the core reads from the entry of every chat network.
pub const NETWORK_KEYS: &[&str] = &["kind", "access", "session", "busy", "places", "limits"];

/// An entry that is being read.
pub struct EntryReader<'a> {
    kind: &'static str,
    name: &'a str,
    settings: SettingReader<'a>,
}

impl<'a> EntryReader<'a> {
    /// A reader of `platforms.<name>`, an entry of this kind.
    pub fn new(kind: &'static str, name: &'a str, settings: SettingReader<'a>) -> Self {
        Self { kind, name, settings }
    }

    /// The entry's name, which is also the account's.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Folder in the state folder for the files of this account.
    pub fn folder(&self) -> PathBuf {
        self.settings.home.join(self.kind).join(self.name)
    }

    /// Parses the network's own keys; the keys that every network has are left to the core. `None` only with an error.
    pub fn parse<T: DeserializeOwned + Default>(&mut self) -> Option<T> {
        self.parse_without(NETWORK_KEYS)
    }

    /// Parses the entry of a kind that has no people: `kind` is the only key that the core reads.
    pub fn parse_alone<T: DeserializeOwned + Default>(&mut self) -> Option<T> {
        self.parse_without(&["kind"])
    }

    fn parse_without<T: DeserializeOwned + Default>(&mut self, keys: &[&str]) -> Option<T> {
        let Some(document) = self.settings.document else { return Some(T::default()) };
        let parsed = document.parse_without(&["platforms", self.name], keys);
        parsed.map_err(|error| self.settings.errors.push(error)).ok()
    }

    /// Whether variables configure this entry: it has the name of its kind.
    pub fn has_variables(&self) -> bool {
        self.name == self.kind
    }

    /// Whether a variable is set and configures this entry.
    pub fn is_set(&self, var: &EnvVar) -> bool {
        self.has_variables() && self.settings.env.get(var).is_some()
    }

    /// A text from the variable, else from the file; blank counts as unset.
    pub fn text(&self, key: &str, var: &EnvVar, written: Option<String>) -> Option<GivenValue> {
        let var = self.has_variables().then_some(var);
        self.settings.text(SettingSource { var, path: &["platforms", self.name, key] }, written)
    }

    /// A secret from the first variable, the file that the second variable names, the configuration file, or the file
    /// that is named there.
    pub fn secret(
        &mut self,
        key: &str,
        vars: (&EnvVar, &EnvVar),
        form: SecretForm,
        (written, written_file): (Option<Secret>, Option<String>),
    ) -> Option<Secret> {
        let vars = self.has_variables().then_some(vars);
        let path = ["platforms", self.name, key];
        self.settings.key(KeySetting { vars, path: &path, form }, written, written_file)
    }

    /// One of some words from a variable.
    pub fn word<T: DeserializeOwned>(&mut self, var: &EnvVar, words: &[&str]) -> Option<T> {
        if !self.has_variables() {
            return None;
        }
        let word = self.settings.env.get(var)?;
        let read: Result<T, value::Error> = T::deserialize(word.as_str().into_deserializer());
        if read.is_err() {
            let known = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let error = ConfigError::new(format!("`{}` must be one of {known}", var.name));
            self.settings.errors.push(match did_you_mean(&word, words.iter().copied()) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
        read.ok()
    }

    /// Rooms of `places` that say whether we must be named in them. Leaves out what cannot be read: the core, which
    /// reads the rest of `places`, reports it.
    pub fn mentions(&self) -> HashMap<RoomId, AddressedWhen> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct MentionSection {
            mention: Option<AddressedWhen>,
        }

        let Some(document) = self.settings.document else { return HashMap::new() };
        let places: BTreeMap<String, Option<KeyedMapping<MentionSection>>> =
            document.parse_at(&["platforms", self.name, "places"]).unwrap_or_default();
        let mention = |(room, place): (String, Option<KeyedMapping<MentionSection>>)| {
            Some((RoomId::new(room), place?.0.mention?))
        };
        places.into_iter().filter_map(mention).collect()
    }

    /// Position of the entry, or of a value in it, with a space before it; empty without a file.
    pub fn place(&self, key: Option<&str>) -> String {
        let path: Vec<&str> = ["platforms", self.name].into_iter().chain(key).collect();
        self.settings.place(&path)
    }

    /// Position of the entry's own name, with a space before it.
    pub fn place_of_name(&self) -> String {
        let document = self.settings.document;
        document
            .map(|document| format!(" {}", document.place_of_key(&["platforms", self.name])))
            .unwrap_or_default()
    }

    /// Reports a fault.
    pub fn refuse(&mut self, error: ConfigError) {
        self.settings.errors.push(error);
    }

    /// Reports a setting that is allowed but probably not meant.
    pub fn warn(&mut self, sentence: String) {
        self.settings.warnings.push(sentence);
    }
}
