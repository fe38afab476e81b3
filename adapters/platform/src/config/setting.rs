//! Looks up single settings: the environment first, then the file.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::document::ConfigDocument;
use super::env::{EnvReader, EnvVar};

/// Reads settings, and collects everything that is wrong, so that a person can correct it in one go.
pub struct SettingReader<'a> {
    /// The configuration file, if there is one.
    pub document: Option<&'a ConfigDocument>,
    /// The environment.
    pub env: EnvReader<'a>,
    /// The state folder.
    pub home: &'a Path,
    /// Faults that keep the gateway from starting.
    pub errors: &'a mut Vec<ConfigError>,
    /// Files that keys were read from. Tools of agents must not reach them.
    pub secret_files: &'a mut Vec<PathBuf>,
    /// Settings that are allowed but probably not meant; one sentence each.
    pub warnings: &'a mut Vec<String>,
}

/// Where a value can come from.
pub struct SettingSource<'a> {
    /// The variable, which wins; `None` for an entry that only the file can configure.
    pub var: Option<&'a EnvVar>,
    /// The keys that lead to the value in the file.
    pub path: &'a [&'a str],
}

/// A value, and the place it came from, for messages.
pub struct GivenValue {
    /// The value without white space around it.
    pub value: String,
    /// The variable or the path of keys, in backticks.
    pub name: String,
    /// ` (talaria.yaml, line 7)`, or empty for the environment.
    pub place: String,
}

impl SettingReader<'_> {
    /// A text from the environment, else from the file; blank counts as unset.
    pub fn text(&self, source: SettingSource<'_>, written: Option<String>) -> Option<GivenValue> {
        if let Some(var) = source.var
            && let Some(value) = self.env.get(var)
        {
            return Some(GivenValue { value, name: format!("`{}`", var.name), place: String::new() });
        }
        let value = filled(written)?;
        let place = self.place(source.path);
        Some(GivenValue { value, name: format!("`{}`", source.path.join(".")), place })
    }

    /// Position of the value at `path`, with a space before it: ` (talaria.yaml, line 7)`. Empty without a file.
    pub fn place(&self, path: &[&str]) -> String {
        self.document.map(|document| format!(" {}", document.place(path))).unwrap_or_default()
    }
}

/// A text without white space around it; `None` if nothing is left.
pub fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
