//! Finds keys: in the environment, in a file of their own, or in the configuration file if that is private.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use super::document::FileAccess;
use super::env::EnvVar;
use super::secret::SecretForm;
use super::setting::SettingReader;
use super::{ConfigError, Secret};

/// The longest file that a key is read from; the rest of a larger one would not be a key.
const LARGEST: u64 = 64 * 1024;

/// Sources of a key.
pub struct KeySetting<'a> {
    /// The variable that holds it, and the one that names a file. None for an entry that only the file can configure.
    pub vars: Option<(&'a EnvVar, &'a EnvVar)>,
    /// The keys that lead to it in the configuration file.
    pub path: &'a [&'a str],
    /// Form that it must have.
    pub form: SecretForm,
}

impl SettingReader<'_> {
    /// A key from the environment, else from the file that the environment names, else from the
    /// configuration file if that is private, else from the file that is named there.
    pub fn key(
        &mut self,
        setting: KeySetting<'_>,
        written: Option<Secret>,
        written_file: Option<String>,
    ) -> Option<Secret> {
        let KeySetting { vars, path, form } = setting;
        let key = path.join(".");
        let written_file = written_file.filter(|file| !file.trim().is_empty());
        if written.is_some() {
            let instead = match vars {
                Some((_, file_var)) => file_var.name.to_owned(),
                None => format!("{key}_file"),
            };
            self.guard_inline(path, &instead);
        }
        let (direct, named) = match vars {
            Some((var, file_var)) => (self.env.get(var), self.env.get(file_var)),
            None => (None, None),
        };
        let by = vars.map(|(var, file_var)| (var.name, file_var.name));
        let (name, file_name) = by.unwrap_or_default();
        let (text, source) = match (direct, named, written_file) {
            (Some(_), Some(_), _) => return self.both(name, file_name),
            (Some(text), None, _) => (text, format!("`{name}`")),
            (None, Some(path), _) => (self.content(&path, file_name)?, in_file(file_name)),
            (None, None, Some(_)) if written.is_some() => return self.both(&key, &format!("{key}_file")),
            (None, None, Some(path)) => {
                let by = format!("{key}_file");
                (self.content(&path, &by)?, in_file(&by))
            }
            (None, None, None) => return written,
        };
        match Secret::parse(&text, form) {
            Ok(secret) => secret,
            Err(expected) => {
                self.errors.push(
                    ConfigError::new(format!("{source} must be {expected}"))
                        .hint("copy the key again, without line breaks or quotes around it"),
                );
                None
            }
        }
    }

    fn both(&mut self, name: &str, file_name: &str) -> Option<Secret> {
        self.errors.push(
            ConfigError::new(format!("`{name}` and `{file_name}` are both set"))
                .hint("unset one of them, so that it is clear which key is used"),
        );
        None
    }

    /// The content of a file that holds a key. `None` only with an error.
    fn content(&mut self, path: &str, by: &str) -> Option<String> {
        self.secret_files.push(Path::new(path).to_owned());
        read(Path::new(path))
            .map_err(|reason| {
                self.errors.push(
                    ConfigError::new(format!("the file `{path}`, which `{by}` names, {reason}"))
                        .hint("put it into that file, readable for this user, or correct the path"),
                );
            })
            .ok()
    }

    /// Refuses a key in a configuration file that others can read or have written.
    fn guard_inline(&mut self, path: &[&str], instead: &str) {
        let Some(document) = self.document else { return };
        let what = format!("`{}` holds a key, but the file", path.join("."));
        let place = document.place(path);
        let name = document.name();
        match document.access() {
            FileAccess::Private => {}
            FileAccess::Shared => self.errors.push(
                ConfigError::new(format!("{what} is open to other users {place}")).hint(format!(
                    "run `chmod 600 {name}`, or put the key into a file of its own and name that in `{instead}`"
                )),
            ),
            FileAccess::Foreign => self.errors.push(
                ConfigError::new(format!("{what} belongs to another user {place}")).hint(format!(
                    "put the key into a file of its own and name that in `{instead}`; or make this user the \
                     owner and run `chmod 600 {name}`"
                )),
            ),
        }
    }
}

fn in_file(by: &str) -> String {
    format!("the content of the file that `{by}` names")
}

/// The content of a file that holds a key. The error is a phrase that follows the file's name.
pub fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    match read {
        Ok(_) if text.trim().is_empty() => Err("is empty".to_owned()),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err("is not text".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("is not there".to_owned()),
        Err(error) => Err(format!("cannot be read: {}", error.kind())),
    }
}
