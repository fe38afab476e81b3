//! The state folder: made private, and of one process at a time. A folder that was there before keeps its
//! rights; what is in it is private by itself.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use super::StartError;

/// The lock of a state folder.
const LOCK: &str = "talaria.lock";

/// How long a lock may be held before it is somebody's who stays: our own commands hold it for a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is tried meanwhile.
const TRY: Duration = Duration::from_millis(20);

/// The state folder, ours for as long as this lives.
pub struct Home {
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
        let lock = path.join(LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .with_context(|| format!("{} cannot be opened", lock.display()))?;
        let began = Instant::now();
        let locked = loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(TRY),
                locked => break locked,
            }
        };
        match locked {
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

    /// The process that holds a state folder, if there is one. Changes nothing, and makes nothing.
    pub fn holder(path: &Path) -> Option<String> {
        Self::look_at(path).err()
    }

    /// Keeps every process from taking the folder for as long as what is returned lives; others may look as well. If
    /// one has it already, it is named. Changes nothing, and makes nothing: a folder without a lock has none.
    pub fn look_at(path: &Path) -> Result<Option<File>, String> {
        let Ok(mut file) = File::open(path.join(LOCK)) else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(pid.trim().to_owned())
            }
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    pub fn database(&self) -> PathBuf {
        Self::database_of(&self.path)
    }

    /// The database file of a state folder.
    pub fn database_of(path: &Path) -> PathBuf {
        path.join("talaria.db")
    }
}
