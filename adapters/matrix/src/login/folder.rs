//! The account's folder: private, used by one process at a time, and written so that a crash leaves the old file or
//! the new.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use talaria_platform::{PlatformError, PlatformErrorKind};
use tokio::time::Instant;

use crate::operator_error::{fatal, trouble};

/// Name of the lock file. It contains the id of the process that holds the lock, for error messages.
const LOCK: &str = "lock";

/// Longest wait for the lock. A process that holds it longer is a gateway: our own commands hold it for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two tries to take the lock.
const TRY: Duration = Duration::from_millis(50);

/// Bytes of the longest file that is read. A session takes less than a kilobyte.
const LONGEST: u64 = 64 * 1024;

/// An account's folder, locked by us while this lives.
pub(crate) struct AccountFolder {
    path: PathBuf,
    /// Locked; the kernel releases it when the process ends, however that happens.
    _lock: File,
}

impl AccountFolder {
    /// Makes the folder if there is none, makes it private, and takes its lock.
    pub async fn take(path: &Path) -> Result<Self, PlatformError> {
        make_private(path).map_err(|error| {
            fatal(
                format!("the folder {} cannot be used: {error}", path.display()),
                "it must belong to the user that runs talaria, on a disk that can be written",
            )
        })?;
        let mut file = open_lock(path).map_err(|error| {
            fatal(
                format!("the lock in {} cannot be opened: {error}", path.display()),
                "check the rights of the folder and the free space",
            )
        })?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => tokio::time::sleep(TRY).await,
                Err(TryLockError::WouldBlock) => return Err(taken(path, &mut file)),
                Err(TryLockError::Error(error)) => {
                    return Err(fatal(
                        format!("the folder {} cannot be locked: {error}", path.display()),
                        "put the state folder on a file system that knows locks; some network file systems do not",
                    ));
                }
            }
        }
        // The process id is only for people: a lock without it locks too.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = write!(file, "{}", std::process::id());
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Path of a file in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a small file; `None` if there is none.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        read(&self.path, name)
    }

    /// Writes a small private file. After a crash it is the old one or the new one; when this returns, it is the new
    /// one.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let new = self.at(&format!("{name}.new"));
        remove(&new)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, self.at(name))?;
        self.sync()
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        remove(&self.at(name))?;
        self.sync()
    }

    /// Removes a folder with everything in it, if it is there.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.at(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => self.sync(),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Reads a small file without the lock: the file is always whole.
pub(crate) fn read(folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut content = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LONGEST {
        return Err(io::Error::other("the file is far too long"));
    }
    Ok(Some(content))
}

/// Makes a folder, or makes an existing one private, because it holds keys.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let about = fs::metadata(path)?;
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if about.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn open_lock(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(folder.join(LOCK))
}

/// The error for a lock that is held: by another process, or by an earlier attempt of this one.
fn taken(path: &Path, file: &mut File) -> PlatformError {
    let mut pid = String::new();
    let _ = file.take(20).read_to_string(&mut pid);
    if pid == std::process::id().to_string() {
        let message = format!("the folder {} is still in use by an earlier try", path.display());
        return trouble(PlatformErrorKind::Retry { after: None }, message, "nothing; it is tried again");
    }
    fatal(
        format!("the Matrix account in {} is used by another process ({pid})", path.display()),
        "stop that one first; a second gateway needs an account entry, and a device, of its own",
    )
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_folder_and_its_files_are_ours_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("matrix/bot");
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();

        let folder = AccountFolder::take(&path).await.unwrap();
        folder.write("session.json", b"{}").unwrap();

        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("session.json")), 0o600);
        assert_eq!(mode(&path.join("lock")), 0o600);
    }

    #[tokio::test]
    async fn a_file_is_replaced_as_a_whole_and_what_is_missing_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(dir.path()).await.unwrap();
        assert_eq!(folder.read("a").unwrap(), None);
        folder.write("a", b"one, long").unwrap();
        fs::write(folder.at("a.new"), b"left by a crash").unwrap();
        folder.write("a", b"two").unwrap();
        assert_eq!(folder.read("a").unwrap().unwrap(), b"two");
        folder.remove("a").unwrap();
        folder.remove("a").unwrap();
        folder.remove_folder("never there").unwrap();
        assert_eq!(folder.read("a").unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_taker_is_turned_away() {
        let dir = tempfile::tempdir().unwrap();
        let first = AccountFolder::take(dir.path()).await.unwrap();

        // Our own earlier attempt may still be ending, so another attempt is worthwhile.
        let again = AccountFolder::take(dir.path()).await.err().unwrap();
        assert_eq!(again.kind(), PlatformErrorKind::Retry { after: None });

        // Another process keeps the lock.
        fs::write(dir.path().join(LOCK), "1").unwrap();
        let other = AccountFolder::take(dir.path()).await.err().unwrap();
        assert_eq!(other.kind(), PlatformErrorKind::Fatal);
        assert!(std::error::Error::source(&other).unwrap().to_string().contains("another process (1)"));

        drop(first);
        AccountFolder::take(dir.path()).await.unwrap();
    }
}
