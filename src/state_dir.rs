//! The state folder: private, and locked by one process at a time. It also records that there was a database in
//! it, so that a lost one is not taken for a first start.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::platforms;
use crate::store::{self, Store};

/// Name of the lock file.
const LOCK: &str = "talaria.lock";

/// Name of the database file.
const DATABASE: &str = "talaria.db";

/// Name of the file that records that there has been a database.
const USED: &str = "talaria.used";

/// Other files that show that there has been a database: the owner's key, and the folders of accounts.
fn traces() -> impl Iterator<Item = &'static str> {
    platforms::names().chain(["api.key"])
}

/// Warning in the log and in `talaria status` when the database was lost.
pub const LOST_DATABASE: &str = "the database was empty at the last start although this state folder had been used \
    before: earlier conversations, tokens and pairings are gone";

/// How long to wait for the lock: our own commands hold it only for a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause between two tries to take the lock.
const TRY: Duration = Duration::from_millis(20);

/// The state folder, locked while this exists.
pub struct StateDir {
    path: PathBuf,
    /// The database is missing or empty, although there was one before.
    lost_database: bool,
    /// Locked file; the kernel releases the lock when the process ends, however that happens.
    _lock: File,
}

impl StateDir {
    /// Creates the folder if necessary, makes it private, and takes its lock.
    pub fn take(path: &Path) -> Result<Self, StartError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("the state folder {} cannot be made", path.display()))
            .map_err(|error| StartError { error, hint: Some("set TALARIA_HOME to a folder of yours") })?;
        close_to_others(path)?;
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
        let is_empty = fs::metadata(path.join(DATABASE)).map_or(true, |database| database.len() == 0);
        let was_used = std::iter::once(USED).chain(traces()).any(|trace| path.join(trace).exists());
        Ok(Self { path: path.to_owned(), lost_database: is_empty && was_used, _lock: file })
    }

    /// Whether the database was empty or missing although the folder had been used before, at the time of
    /// [`take`](Self::take).
    pub fn lost_database(&self) -> bool {
        self.lost_database
    }

    /// Records that there is a database. Called after it was opened.
    pub fn mark_used(&self) {
        let path = self.path.join(USED);
        if path.exists() {
            return;
        }
        let words = "There is a database here. If talaria.db is missing, talaria says that it was lost.\n";
        let marked = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        if let Err(error) = marked.and_then(|mut file| file.write_all(words.as_bytes())) {
            tracing::warn!(%error, "the state folder could not be marked as used");
        }
    }

    /// Process id of the holder of a state folder, if there is one. Changes and creates nothing.
    pub fn holder(path: &Path) -> Option<String> {
        Self::look_at(path).err()
    }

    /// Keeps other processes from taking the folder while the returned file exists; others may do so too. If a
    /// process holds the folder, its id is the error. Changes and creates nothing: without a lock file there is
    /// no lock.
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

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the database file.
    pub fn database(&self) -> PathBuf {
        Self::database_of(&self.path)
    }

    /// Path of the database file in a state folder.
    pub fn database_of(path: &Path) -> PathBuf {
        path.join(DATABASE)
    }
}

/// Makes the folder private. Only a folder that is clearly a state folder is changed: a mistyped TALARIA_HOME
/// must not close a shared folder.
fn close_to_others(path: &Path) -> Result<(), StartError> {
    const OTHERS: u32 = 0o077;
    const STICKY: u32 = 0o1000;
    let cannot = |error: io::Error| StartError {
        error: anyhow!(error).context(format!("the state folder {} cannot be looked at", path.display())),
        hint: Some("set TALARIA_HOME to a folder of yours"),
    };
    let mode = |path: &Path| fs::metadata(path).map(|folder| folder.mode());
    let found = mode(path).map_err(cannot)?;
    if found & OTHERS == 0 {
        return Ok(());
    }
    let refused = |hint| StartError {
        error: anyhow!(
            "other users may look into the state folder {} (its rights are {:04o})",
            path.display(),
            found & 0o7777
        ),
        hint: Some(hint),
    };
    if found & STICKY != 0 || !is_state_folder(path).map_err(cannot)? {
        return Err(refused(
            "set TALARIA_HOME to a folder that holds nothing else; Talaria makes it, and closes it to others",
        ));
    }
    let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o700)).and_then(|()| mode(path));
    if closed.is_ok_and(|mode| mode & OTHERS == 0) {
        tracing::warn!(folder = %path.display(), "other users could look into the state folder; it is closed to them now (0700)");
        return Ok(());
    }
    Err(refused(
        "it belongs to another user, or its file system knows no rights: `chown` it and `chmod 700` it, or set \
         TALARIA_HOME to a folder inside it, which Talaria makes for itself",
    ))
}

/// Whether a folder is a state folder, or empty.
fn is_state_folder(path: &Path) -> io::Result<bool> {
    let ours = [LOCK, DATABASE, USED, "talaria.yaml"].into_iter().chain(traces());
    if ours.into_iter().any(|name| path.join(name).exists()) {
        return Ok(true);
    }
    // A fresh volume may have `lost+found`.
    let others = fs::read_dir(path)?
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() != "lost+found"));
    Ok(others.count() == 0)
}

/// A failure to start, with a hint.
pub struct StartError {
    /// The failure.
    pub error: anyhow::Error,
    /// The next step.
    pub hint: Option<&'static str>,
}

impl<E: Into<anyhow::Error>> From<E> for StartError {
    fn from(error: E) -> Self {
        Self { error: error.into(), hint: None }
    }
}

/// Setting that a command writes if it finds the database empty while no gateway runs.
const LOST_SETTING: &str = "database.lost";

/// Leaves a note for the next start that the database was lost.
pub async fn note_lost_database(store: &Store) -> store::Result<()> {
    store.write(|tx| tx.set_setting(LOST_SETTING, "1")).await
}

/// Logs that the database was lost, at this start or noted by a command before. Returns whether it was.
pub async fn told_of_lost_database(store: &Store, now: bool) -> store::Result<bool> {
    let noted = store.read(|tx| tx.setting(LOST_SETTING)).await?.is_some();
    if !now && !noted {
        return Ok(false);
    }
    tracing::warn!("{LOST_DATABASE}; if there is a backup, stop talaria and put it back");
    // Logged once: the next start finds a database that is in use.
    store.write(|tx| tx.forget_setting(LOST_SETTING)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(mode: u32, files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(folder.path().join(file), "x").unwrap();
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    fn mode_of(folder: &tempfile::TempDir) -> u32 {
        fs::metadata(folder.path()).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_state_folder_that_is_open_to_others_is_closed() {
        for files in [&[][..], &["talaria.db"], &["talaria.yaml", "notes.txt"], &["lost+found"]] {
            for mode in [0o755, 0o770, 0o701] {
                let folder = folder(mode, files);
                assert!(StateDir::take(folder.path()).is_ok(), "{files:?}");
                assert_eq!(mode_of(&folder), 0o700, "{files:?}");
            }
        }
    }

    #[test]
    fn a_folder_of_other_things_or_of_everybody_is_refused_and_left_as_it_is() {
        for (mode, files) in [(0o755, &["photo.jpg"][..]), (0o1777, &[]), (0o1777, &["talaria.db"])] {
            let folder = folder(mode, files);
            let Err(refused) = StateDir::take(folder.path()) else { panic!("{mode:o} {files:?} was taken") };
            assert!(refused.error.to_string().contains("other users may look into the state folder"));
            assert!(refused.hint.is_some_and(|hint| hint.contains("TALARIA_HOME")));
            assert_eq!(mode_of(&folder), mode);
            assert!(!folder.path().join(LOCK).exists());
        }
        assert!(
            StateDir::take(folder(0o700, &["photo.jpg"]).path()).is_ok(),
            "what is closed already is fine"
        );
    }

    #[test]
    fn a_database_that_is_gone_is_told_from_a_first_start() {
        for (files, lost) in [
            (&[][..], false),
            (&["talaria.yaml"], false),
            (&["api.key"], true),
            (&["matrix"], true),
            (&["api.key", "talaria.db"], false),
        ] {
            assert_eq!(
                StateDir::take(folder(0o700, files).path()).unwrap_or_else(|_| panic!()).lost_database(),
                lost,
                "{files:?}"
            );
        }
        let folder = folder(0o700, &[]);
        let home = StateDir::take(folder.path()).unwrap_or_else(|_| panic!());
        home.mark_used();
        drop(home);
        fs::write(folder.path().join(DATABASE), "").unwrap();
        assert!(
            StateDir::take(folder.path()).is_ok_and(|home| home.lost_database()),
            "an empty file is no database"
        );
    }
}
