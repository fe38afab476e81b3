//! The state folder: made private, and of one process at a time. A folder that was there before keeps its
//! rights; what is in it is private by itself.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use super::StartError;

/// The state folder, ours for as long as this lives.
pub(super) struct Home {
    path: PathBuf,
    /// Locked; the kernel lets it go when the process ends, however that happens.
    _lock: File,
}

impl Home {
    /// Makes the folder if there is none, and takes its lock.
    pub fn take(path: &Path) -> Result<Self, StartError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("the state folder {} cannot be made", path.display()))
            .map_err(|error| StartError { error, hint: Some("set TALARIA_HOME to a folder of yours") })?;
        let lock = path.join("talaria.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .with_context(|| format!("{} cannot be opened", lock.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let error = anyhow!(
                    "another talaria (process {}) uses the state folder {}",
                    pid.trim(),
                    path.display()
                );
                return Err(StartError {
                    error,
                    hint: Some("stop it first, or set TALARIA_HOME to another folder for a second one"),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(anyhow!(error).context(format!("{} cannot be locked", lock.display())).into());
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// The database file.
    pub fn database(&self) -> PathBuf {
        self.path.join("talaria.db")
    }
}
