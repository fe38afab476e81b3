//! A folder that nothing leaves: regular files are read and replaced below it, and no link leads out.
//!
//! Every path is resolved by the operating system against the open folder (`cap-std`), so a link or a folder that is
//! swapped between two calls leads at most to another file of the same folder. Devices, pipes and sockets are never
//! opened for reading or writing, because that could wait for ever. All calls block.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags, fchmod};
use rustix::io::Errno;

use crate::util::random_hex;

/// Permissions that a replaced file keeps. Never setuid or setgid: new content must not inherit another identity.
const KEPT_MODE: u32 = 0o777;

/// An open folder.
#[derive(Debug)]
pub struct ConfinedDir {
    dir: Dir,
}

/// Identity and state of a file at one moment. Every change of its content changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Condition under which a file is replaced.
#[derive(Clone, Copy, Debug)]
pub enum ReplaceCondition {
    /// Always; a file that is missing is created.
    Always,
    /// Only if the file is still the one that was read.
    Unchanged(FileVersion),
}

/// The state of a path before its file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenFile {
    /// There was nothing.
    Created,
    /// There was a file.
    Replaced,
}

/// The reason why a file cannot be read or written. Displayed as the end of a sentence that begins with its name.
#[derive(Debug)]
pub enum FileProblem {
    /// There is nothing at the path.
    Missing,
    /// The path, or a link on it, leads out of the folder.
    Outside,
    /// Links on the path lead in a circle, or into the process table.
    LinkLoop,
    /// A link to a file that does not exist.
    Dangling,
    /// A folder, where a file is needed.
    Folder,
    /// A part of the path is a file, where a folder is needed.
    NotFolder,
    /// A device, a pipe or a socket.
    Special,
    /// The file has no write permission.
    ReadOnly,
    /// A name is longer than the file system takes.
    NameTooLong,
    /// The file is larger than this many bytes.
    TooLarge(u64),
    /// Another content came while the call was under way.
    Changed,
    /// The caller gave up before anything was replaced.
    Cancelled,
    /// The operating system says no.
    Io(io::Error),
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("does not exist"),
            Self::Outside => f.write_str("leads out of the folder, which is not allowed"),
            Self::LinkLoop => f.write_str("is a link that cannot be followed"),
            Self::Dangling => f.write_str("is a link to a file that does not exist"),
            Self::Folder => f.write_str("is a folder, not a file"),
            Self::NotFolder => f.write_str("cannot exist, because a part of its path is a file"),
            Self::Special => f.write_str("is a device, a pipe or a socket, not a file"),
            Self::ReadOnly => f.write_str("is read-only"),
            Self::NameTooLong => f.write_str("has a name that is too long"),
            Self::TooLarge(limit) => write!(f, "is too large: at most {limit} bytes are possible"),
            Self::Changed => f.write_str("was changed by something else at this moment; read it again"),
            Self::Cancelled => f.write_str("was left as it is, because the task was stopped"),
            Self::Io(error) => write!(f, "cannot be used: {error}"),
        }
    }
}

impl From<io::Error> for FileProblem {
    fn from(error: io::Error) -> Self {
        let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            // `cap-std` reports a way out as this kind, without a number of the operating system.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::Outside,
            io::ErrorKind::IsADirectory => Self::Folder,
            io::ErrorKind::NotADirectory => Self::NotFolder,
            _ if is(Errno::XDEV) => Self::Outside,
            _ if is(Errno::LOOP) => Self::LinkLoop,
            _ if is(Errno::NAMETOOLONG) => Self::NameTooLong,
            _ if is(Errno::NXIO) => Self::Special,
            _ => Self::Io(error),
        }
    }
}

impl From<Errno> for FileProblem {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl ConfinedDir {
    /// Opens a folder of the operator's choice; links on the way to it are followed.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { dir: Dir::open_ambient_dir(root, ambient_authority())? })
    }

    /// Opens a folder below this one as a folder of its own, which then nothing leaves either. Not through a link.
    pub fn subfolder(&self, name: &str) -> Result<Self, FileProblem> {
        match self.dir.symlink_metadata(name)?.is_dir() {
            true => Ok(Self { dir: self.dir.open_dir(name)? }),
            false => Err(FileProblem::NotFolder),
        }
    }

    /// Makes a folder below this one, unless it is there.
    pub fn make_subfolder(&self, name: &str) -> Result<(), FileProblem> {
        match self.dir.create_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => Ok(made?),
        }
    }

    /// The open folder, for listing.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The path without links, if there is something at it.
    pub fn real_path(&self, path: &Path) -> Result<PathBuf, FileProblem> {
        Ok(self.dir.canonicalize(path)?)
    }

    /// Version of a regular file, without opening it.
    pub fn version(&self, path: &Path) -> Result<FileVersion, FileProblem> {
        let metadata = self.dir.metadata(path)?;
        must_be_regular(&metadata)?;
        Ok(FileVersion::of(&metadata))
    }

    /// Opens a regular file for reading. Never waits for a pipe: its kind is looked at before and after it is opened.
    pub fn open_file(&self, path: &Path) -> Result<(File, FileVersion), FileProblem> {
        must_be_regular(&self.dir.metadata(path)?)?;
        let mut options = OpenOptions::new();
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
        let file = self.dir.open_with(path, &options)?;
        let metadata = file.metadata()?;
        must_be_regular(&metadata)?;
        Ok((file, FileVersion::of(&metadata)))
    }

    /// Reads a whole regular file of at most `limit` bytes.
    pub fn read_file(&self, path: &Path, limit: u64) -> Result<(Vec<u8>, FileVersion), FileProblem> {
        let (file, version) = self.open_file(path)?;
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content)?;
        match u64::try_from(content.len()).is_ok_and(|bytes| bytes <= limit) {
            true => Ok((content, version)),
            false => Err(FileProblem::TooLarge(limit)),
        }
    }

    /// Replaces or creates a regular file, with the folders above it. Readers see the old content or the new one, never
    /// a part: the content goes to a new file beside it, which then takes its name. A link below the folder stays, and
    /// the file that it names is replaced. `is_cancelled` is asked for the last time just before the file is replaced.
    pub fn replace_file(
        &self,
        path: &Path,
        content: &[u8],
        condition: ReplaceCondition,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<WrittenFile, FileProblem> {
        let path = self.target(path)?;
        let name = path.file_name().ok_or(FileProblem::Folder)?;
        let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.dir.open_dir(parent)?,
            None => self.dir.try_clone()?,
        };
        let mode = replaceable(&parent, Path::new(name), condition)?;
        let part = PartFile::create(&parent, mode, content)?;
        // Once more, because writing took its time.
        replaceable(&parent, Path::new(name), condition)?;
        if is_cancelled() {
            return Err(FileProblem::Cancelled);
        }
        part.take_name(Path::new(name))?;
        Ok(if mode.is_some() { WrittenFile::Replaced } else { WrittenFile::Created })
    }

    /// The path of the file to write, without links. Makes the missing folders above it.
    fn target(&self, path: &Path) -> Result<PathBuf, FileProblem> {
        let missing = match self.dir.canonicalize(path) {
            Ok(real) => return Ok(real),
            Err(error) => FileProblem::from(error),
        };
        let FileProblem::Missing = missing else { return Err(missing) };
        if self.dir.symlink_metadata(path).is_ok() {
            return Err(FileProblem::Dangling);
        }
        let name = path.file_name().ok_or(FileProblem::Folder)?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => {
                self.dir.create_dir_all(parent)?;
                Ok(self.dir.canonicalize(parent)?.join(name))
            }
            None => Ok(PathBuf::from(name)),
        }
    }
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A new file beside the one that it will replace. Removed unless it takes that one's name.
struct PartFile<'a> {
    parent: &'a Dir,
    name: Option<String>,
}

impl<'a> PartFile<'a> {
    fn create(parent: &'a Dir, mode: Option<u32>, content: &[u8]) -> Result<Self, FileProblem> {
        let name = format!(".talaria-{}.tmp", random_hex(8));
        let mut options = OpenOptions::new();
        // Nobody may read the new content of a private file before it has that file's permissions.
        options.write(true).create_new(true).mode(if mode.is_some() { 0o600 } else { 0o666 });
        let mut file = parent.open_with(&name, &options)?;
        let part = Self { parent, name: Some(name) };
        file.write_all(content)?;
        if let Some(mode) = mode {
            fchmod(&file, Mode::from_raw_mode(mode & KEPT_MODE))?;
        }
        file.sync_data()?;
        Ok(part)
    }

    fn take_name(mut self, name: &Path) -> Result<(), FileProblem> {
        if let Some(part) = &self.name {
            self.parent.rename(part, self.parent, name)?;
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for PartFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.parent.remove_file(name);
        }
    }
}

/// The permissions of the file that is about to be replaced; `None` if there is none.
fn replaceable(parent: &Dir, name: &Path, condition: ReplaceCondition) -> Result<Option<u32>, FileProblem> {
    let metadata = match parent.symlink_metadata(name) {
        Ok(metadata) => metadata,
        Err(error) => {
            return match (FileProblem::from(error), condition) {
                (FileProblem::Missing, ReplaceCondition::Always) => Ok(None),
                (FileProblem::Missing, ReplaceCondition::Unchanged(_)) => Err(FileProblem::Changed),
                (other, _) => Err(other),
            };
        }
    };
    if metadata.is_symlink() {
        return Err(FileProblem::Changed);
    }
    must_be_regular(&metadata)?;
    if metadata.permissions().readonly() {
        return Err(FileProblem::ReadOnly);
    }
    match condition {
        ReplaceCondition::Unchanged(version) if version != FileVersion::of(&metadata) => {
            Err(FileProblem::Changed)
        }
        ReplaceCondition::Unchanged(_) | ReplaceCondition::Always => Ok(Some(metadata.mode())),
    }
}

fn must_be_regular(metadata: &Metadata) -> Result<(), FileProblem> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (false, true) => Err(FileProblem::Folder),
        (false, false) => Err(FileProblem::Special),
    }
}
