//! Reads and replaces config.toml, complete or not at all.
//!
//! codex writes the file as we do, by renaming, and neither takes a lock. So the file is compared with what was read
//! right before it is replaced, and the caller reads again if somebody was quicker.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Uid, fchown};

use crate::util::random_hex;

/// Name of the file in codex' folder.
const NAME: &str = "config.toml";

/// Largest file that is read. A person writes some kilobytes; one of a megabyte is something else.
const LARGEST: u64 = 1024 * 1024;

/// Links that are followed to a file that does not exist yet. More of them are a circle.
const MOST_LINKS: usize = 8;

/// Beginning and end of a temporary file's name.
const TEMPORARY: (&str, &str) = (".config.toml.talaria-", ".tmp");

/// Age at which a temporary file is left over: a process was killed while it wrote. A write takes milliseconds.
const LEFT_OVER: Duration = Duration::from_secs(60 * 60);

/// Reason why the file cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileProblem {
    /// The file is larger than any configuration.
    TooLarge,
    /// Something else has the name.
    NotAFile,
    /// The user protected the file from writing.
    Protected,
    /// The file belongs to somebody else, and would not any more.
    Owner,
    /// Somebody changes the file all the time.
    Busy,
    /// The operating system refused; its words are for the log.
    Io(String),
}

impl From<io::Error> for FileProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<rustix::io::Errno> for FileProblem {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.to_string())
    }
}

/// The file as it was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// The file itself, behind all links.
    path: PathBuf,
    /// Its content; empty if there is no file.
    pub bytes: Vec<u8>,
    /// `None` if there is no file.
    metadata: Option<Metadata>,
}

/// Result of replacing the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplaceOutcome {
    /// The file has the new content.
    Done,
    /// Somebody changed the file after it was read.
    Changed,
}

impl ConfigFile {
    /// Reads the file of this folder. Neither needs to exist.
    pub(super) fn read(folder: &Path) -> Result<Self, FileProblem> {
        let path = resolve_links(&folder.join(NAME))?;
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, bytes: Vec::new(), metadata: None });
            }
            Err(error) => return Err(error.into()),
        };
        if !metadata.is_file() {
            return Err(FileProblem::NotAFile);
        }
        let file = File::open(&path)?;
        // Of the opened file: another one may have taken the name by now.
        let metadata = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(FileProblem::TooLarge);
        }
        Ok(Self { path, bytes, metadata: Some(metadata) })
    }

    /// Replaces the file. Its permissions and its owner stay; a new one is private. `before_rename` is for tests.
    pub(super) fn replace(
        &self,
        bytes: &[u8],
        before_rename: &mut dyn FnMut(),
    ) -> Result<ReplaceOutcome, FileProblem> {
        if self.metadata.as_ref().is_some_and(|metadata| metadata.mode() & 0o200 == 0) {
            return Err(FileProblem::Protected);
        }
        let folder = self.path.parent().ok_or(FileProblem::NotAFile)?;
        remove_left_over(folder);
        let temporary = TemporaryFile::write(folder, bytes, self.metadata.as_ref())?;
        if !self.is_current()? {
            return Ok(ReplaceOutcome::Changed);
        }
        before_rename();
        temporary.take_name(&self.path)?;
        // The file is there already; only a power cut could still undo that.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(ReplaceOutcome::Done)
    }

    /// Whether the file still is as it was read.
    fn is_current(&self) -> Result<bool, FileProblem> {
        let now = match fs::metadata(&self.path) {
            Ok(now) => Some(now),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let stamp = |metadata: &Metadata| {
            let changed = (metadata.ctime(), metadata.ctime_nsec());
            (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec(), changed)
        };
        if now.as_ref().map(stamp) != self.metadata.as_ref().map(stamp) {
            return Ok(false);
        }
        // Times of some file systems are coarse.
        Ok(now.is_none() || fs::read(&self.path)? == self.bytes)
    }
}

/// Makes codex' folder if it is missing, for the user alone.
pub(super) fn make_folder(folder: &Path) -> Result<(), FileProblem> {
    Ok(DirBuilder::new().recursive(true).mode(0o700).create(folder)?)
}

/// The file behind all links. Its folder exists, unless the path is no link at all.
fn resolve_links(path: &Path) -> Result<PathBuf, FileProblem> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::canonicalize(&path) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        // A link to a file that is yet to be made.
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        path = match path.parent() {
            Some(folder) => folder.join(next),
            None => next,
        };
    }
    Err(FileProblem::NotAFile)
}

/// Removes temporary files of processes that were killed.
fn remove_left_over(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours =
            name.to_str().is_some_and(|name| name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1));
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours && age().is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A new file beside the one that it will replace. Removed unless it takes that one's name.
struct TemporaryFile {
    path: Option<PathBuf>,
}

impl TemporaryFile {
    fn write(folder: &Path, bytes: &[u8], old: Option<&Metadata>) -> Result<Self, FileProblem> {
        let path = folder.join(format!("{}{}{}", TEMPORARY.0, random_hex(8), TEMPORARY.1));
        // Private at first: nobody may read the content before the file has the permissions of the old one.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let temporary = Self { path: Some(path) };
        file.write_all(bytes)?;
        if let Some(old) = old {
            let new = file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                let (owner, group) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
                fchown(&file, Some(owner), Some(group)).map_err(|_| FileProblem::Owner)?;
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.sync_all()?;
        Ok(temporary)
    }

    fn take_name(mut self, path: &Path) -> Result<(), FileProblem> {
        if let Some(temporary) = &self.path {
            fs::rename(temporary, path)?;
            self.path = None;
        }
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}
