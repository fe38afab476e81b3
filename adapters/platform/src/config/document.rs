//! The configuration file as text: reads it with bounds, and finds the lines of its keys and values.

use std::fs::{File as Handle, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::ConfigError;
use super::yaml_error::{explain, position};
use super::yaml_lines::{self, KeyedMapping};

/// Largest file that is read. Ours are a few kilobytes; anything near this is another file.
const LARGEST: u64 = 1024 * 1024;

/// The text of a configuration file.
pub struct ConfigDocument {
    path: PathBuf,
    /// The path as messages show it.
    name: String,
    text: String,
    access: FileAccess,
}

/// Which other users may have read or written the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Nobody: the file is ours, and closed to group and others.
    Private,
    /// The file is ours, but group or others have rights.
    Shared,
    /// The file belongs to another user.
    Foreign,
}

impl ConfigDocument {
    /// Reads the file; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let name = path.strip_prefix(".").unwrap_or(path).display().to_string();
        let unreadable = |error: io::Error| {
            ConfigError::new(format!("cannot read the configuration file `{name}`: {}", error.kind()))
                .hint("check that it is a file and that this user may read it")
        };
        let handle = match Handle::open(path) {
            Ok(handle) => handle,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        // Read from the open file, so that nobody can put another one there in between.
        let access = handle.metadata().map(|metadata| FileAccess::of(&metadata)).map_err(unreadable)?;
        let mut bytes = Vec::new();
        handle.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > LARGEST {
            return Err(ConfigError::new(format!("the configuration file `{name}` is larger than 1 MiB"))
                .hint("check that this is really Talaria's configuration"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
            ConfigError::new(format!("the file is not UTF-8 text ({name}, line {line})"))
                .hint("save it again with the encoding UTF-8")
        })?;
        if let Some(offset) = text.find(is_forbidden) {
            let line = line_at(text.as_bytes(), offset);
            return Err(ConfigError::new(format!("there is a control character ({name}, line {line})"))
                .hint("remove it, or type the line again"));
        }
        Ok(Some(Self { path: path.to_owned(), name, text, access }))
    }

    /// An empty document, for a run without a configuration file.
    pub fn absent() -> Self {
        Self {
            path: PathBuf::new(),
            name: "no configuration file".to_owned(),
            text: String::new(),
            access: FileAccess::Private,
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as messages show it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which other users may have read or written the file.
    pub fn access(&self) -> FileAccess {
        self.access
    }

    /// Checks the syntax of the whole file, and parses it; an empty file counts as none.
    pub fn parse<T: DeserializeOwned + Default>(&self) -> Result<T, ConfigError> {
        yaml_lines::check(&self.text).map_err(|error| self.explain(&error))?;
        self.parse_at(&[])
    }

    /// Parses the part at `path`; the default if it is absent or blank.
    pub fn parse_at<T: DeserializeOwned + Default>(&self, path: &[&str]) -> Result<T, ConfigError> {
        match yaml_lines::read_at::<KeyedMapping<T>>(&self.text, path) {
            Ok(found) => Ok(found.unwrap_or_default().0),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Parses the part at `path`, except the keys in `without`, which another reader knows.
    pub fn parse_without<T: DeserializeOwned + Default>(
        &self,
        path: &[&str],
        without: &[&str],
    ) -> Result<T, ConfigError> {
        match yaml_lines::read_without(&self.text, path, without) {
            Ok(found) => Ok(found.unwrap_or_default()),
            Err(error) => Err(explain(&error, &self.name, &self.text, (&path.join("."), without))),
        }
    }

    /// Position of the value at `path`, as it follows a message: `(talaria.yaml, line 7)`.
    pub fn place(&self, path: &[&str]) -> String {
        position(&self.name, self.line(yaml_lines::line_of(&self.text, path)))
    }

    /// Position of the last key of `path`, as it follows a message: for a fault of a whole entry and not of a value in
    /// it.
    pub fn place_of_key(&self, path: &[&str]) -> String {
        position(&self.name, self.line(yaml_lines::line_of_key(&self.text, path)))
    }

    /// An empty document has no lines.
    fn line(&self, line: Option<usize>) -> Option<usize> {
        line.filter(|_| !self.text.is_empty())
    }

    fn explain(&self, error: &serde_yaml::Error) -> ConfigError {
        explain(error, &self.name, &self.text, ("", &[]))
    }
}

impl FileAccess {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;

        Self::judge(metadata.uid(), rustix::process::geteuid().as_raw(), metadata.mode())
    }

    #[cfg(unix)]
    fn judge(owner: u32, us: u32, mode: u32) -> Self {
        if owner != us {
            Self::Foreign
        } else if mode & 0o077 != 0 {
            Self::Shared
        } else {
            Self::Private
        }
    }

    /// Other systems have access lists, which we do not read; a person's own folders are closed to others there.
    #[cfg(not(unix))]
    fn of(_metadata: &Metadata) -> Self {
        Self::Private
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Characters that YAML does not allow anywhere; its parser would report them without a line.
fn is_forbidden(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\r' | '\t' | '\u{85}')
}

fn line_at(bytes: &[u8], offset: usize) -> usize {
    bytes.iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_if_it_is_ours_and_closed() {
        for (owner, mode, access) in [
            (7, 0o100600, FileAccess::Private),
            (7, 0o100400, FileAccess::Private),
            (7, 0o100640, FileAccess::Shared),
            (7, 0o100604, FileAccess::Shared),
            (7, 0o100620, FileAccess::Shared),
            (0, 0o100600, FileAccess::Foreign),
            (8, 0o100644, FileAccess::Foreign),
        ] {
            assert_eq!(FileAccess::judge(owner, 7, mode), access, "{owner} {mode:o}");
        }
    }
}
