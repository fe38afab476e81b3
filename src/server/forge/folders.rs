//! The folders of forge sessions and the files that apps upload, below one folder of the state folder.
//!
//! `sessions/<name>` is the working folder of a session, for its agent alone; `uploads/<digest>` is an uploaded file. All
//! calls that touch the disk run on blocking threads. Whatever no row of the store knows is removed by the sweeper.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::copy_quota::{CopyLimits, CopyQuota, CopyShare, bytes_of_copies};
use crate::ids::SessionId;
use crate::server::ApiError;
use crate::store::{self, Store};
use crate::util::remove_folder;

/// Uploads at once, of all apps.
const UPLOADS: usize = 16;

/// Uploads at once, of one app: others must find a slot while it sends slowly.
const UPLOADS_OF_APP: usize = 4;

/// Age at which a file that no row knows is nobody's. An upload that is under way is younger: it has a deadline.
const ABANDONED: Duration = Duration::from_secs(20 * 60);

/// The folders of one server.
pub struct ForgeFolders {
    root: PathBuf,
    /// Folders of sessions whose rows are about to be stored.
    held: Arc<Mutex<HashSet<String>>>,
    /// Uploads under way, by app. An app without one has no entry.
    uploads: Arc<Mutex<HashMap<String, usize>>>,
    copies: CopyQuota,
    /// Set when the copies of an earlier process are counted.
    counted: OnceCell<()>,
}

impl ForgeFolders {
    /// Folders below `root`. Nothing is made yet.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            held: Arc::default(),
            uploads: Arc::default(),
            copies: CopyQuota::default(),
            counted: OnceCell::new(),
        }
    }

    /// The working folder of a session.
    pub fn of_session(&self, session: &SessionId) -> PathBuf {
        self.sessions().join(store::folder_name(session).0)
    }

    /// The file with the content of an upload.
    pub fn of_upload(&self, digest: &str) -> PathBuf {
        self.uploads_folder().join(digest)
    }

    /// Makes the working folder of a session, unless it is there.
    pub async fn make_for_session(&self, session: &SessionId) -> Result<PathBuf, ApiError> {
        let folder = self.of_session(session);
        on_disk(move || make(&folder).map(|()| folder)).await
    }

    /// Keeps the sweeper away from the folder of a session that has no row yet.
    pub fn hold(&self, session: &SessionId) -> FolderHold {
        let name = store::folder_name(session).0;
        self.held.lock().insert(name.clone());
        FolderHold { held: self.held.clone(), name }
    }

    /// Takes a slot for an upload of an app; `None` if the app or all of them have too many.
    pub fn begin_upload(&self, app: &str) -> Option<UploadSlot> {
        let mut uploads = self.uploads.lock();
        let own = uploads.get(app).copied().unwrap_or_default();
        if own >= UPLOADS_OF_APP || uploads.values().sum::<usize>() >= UPLOADS {
            return None;
        }
        uploads.insert(app.to_owned(), own + 1);
        Some(UploadSlot { uploads: self.uploads.clone(), app: app.to_owned() })
    }

    /// Counts bytes that are about to be copied into the folder of a session; `None` if its app or all of them would then
    /// have more copies than `most` allows.
    pub async fn begin_copy(
        &self,
        store: &Store,
        (app, session): (&str, &SessionId),
        bytes: u64,
        most: CopyLimits,
    ) -> Result<Option<CopyShare>, ApiError> {
        self.counted.get_or_try_init(|| self.count_copies(store)).await?;
        Ok(self.copies.take(app, &store::folder_name(session).0, bytes, most))
    }

    /// Counts the copies that an earlier process made.
    async fn count_copies(&self, store: &Store) -> Result<(), ApiError> {
        let (sessions, known) = (self.sessions(), store.read(|tx| tx.forge_folder_apps()).await?);
        let count = move |(name, app): (String, String)| {
            // What an agent made of its folder costs no app its files.
            let bytes = bytes_of_copies(&sessions, &name).unwrap_or_else(|error| {
                tracing::warn!(name, %error, "the copied files of a session cannot be counted");
                0
            });
            (name, app, bytes)
        };
        let counted = on_disk(move || Ok(known.into_iter().map(count).collect::<Vec<_>>())).await?;
        counted.iter().for_each(|(name, app, bytes)| self.copies.count(app, name, *bytes));
        Ok(())
    }

    /// Makes the folder of uploads, unless it is there.
    pub async fn make_for_uploads(&self) -> Result<(), ApiError> {
        let folder = self.uploads_folder();
        on_disk(move || make(&folder)).await
    }

    /// Removes the folders of sessions that are gone, files that have ended, and files that nobody knows. What cannot be
    /// removed is tried again by the next sweep.
    pub async fn remove_abandoned(&self, store: &Store) -> Result<(), ApiError> {
        self.remove_ended(store).await?;
        let (sessions, uploads) = (self.sessions(), self.uploads_folder());
        // Listed before the store is read: a folder is made only after its row, and a file long before it is old.
        let found = on_disk(move || Ok((names(&sessions)?, names(&uploads)?))).await?;
        let held = self.held.lock().clone();
        let known = store.read(|tx| Ok((tx.forge_folders()?, tx.forge_file_names()?))).await?;
        let folders = unknown(found.0, known.0.into_iter().chain(held).collect());
        let (files, gone) = (unknown(found.1, known.1), folders.clone());
        let (sessions, uploads) = (self.sessions(), self.uploads_folder());
        on_disk(move || {
            folders.iter().for_each(|name| tell(name, remove_folder(&sessions, name)));
            for name in &files {
                let path = uploads.join(name);
                if is_old(&path) {
                    tell(name, fs::remove_file(path));
                }
            }
            Ok(())
        })
        .await?;
        gone.iter().for_each(|name| self.copies.forget(name));
        Ok(())
    }

    /// Removes the bytes of uploads that have ended, and then their rows.
    async fn remove_ended(&self, store: &Store) -> Result<(), ApiError> {
        let mut last = String::new();
        loop {
            let after = last;
            let ended = store.read(move |tx| tx.ended_forge_files(&after)).await?;
            let Some(digest) = ended.last() else { return Ok(()) };
            last = digest.clone();
            self.remove_files(store, ended).await?;
        }
    }

    /// Removes these uploads, and then their rows. One that cannot be removed keeps its row, for the next sweep.
    async fn remove_files(&self, store: &Store, ended: Vec<String>) -> Result<(), ApiError> {
        let uploads = self.uploads_folder();
        let removed = on_disk(move || {
            let is_removed = |name: &String| match fs::remove_file(uploads.join(name)) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => {
                    tracing::warn!(name, %error, "an uploaded file that has ended cannot be removed");
                    false
                }
            };
            Ok(ended.into_iter().filter(is_removed).collect::<Vec<_>>())
        });
        let removed = removed.await?;
        Ok(store.write(move |tx| tx.forget_forge_files(&removed)).await?)
    }

    /// Removes the folder of a session that is gone.
    pub async fn remove_of_session(&self, session: &SessionId) {
        let (sessions, name) = (self.sessions(), store::folder_name(session).0);
        let folder = name.clone();
        let removed = on_disk(move || {
            tell(&name, remove_folder(&sessions, &name));
            Ok(())
        });
        // The sweeper tries again.
        let _ = removed.await;
        self.copies.forget(&folder);
    }

    fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    fn uploads_folder(&self) -> PathBuf {
        self.root.join("uploads")
    }
}

/// Keeps the sweeper away from a folder until it is dropped.
pub struct FolderHold {
    held: Arc<Mutex<HashSet<String>>>,
    name: String,
}

impl Drop for FolderHold {
    fn drop(&mut self) {
        self.held.lock().remove(&self.name);
    }
}

/// One upload under way, until it is dropped.
pub struct UploadSlot {
    uploads: Arc<Mutex<HashMap<String, usize>>>,
    app: String,
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut uploads = self.uploads.lock();
        match uploads.get_mut(&self.app) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(uploads.remove(&self.app)),
        }
    }
}

/// Runs work on the disk on a blocking thread.
pub async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(ApiError::mistake)?;
    done.map_err(ApiError::mistake)
}

/// Makes a folder and those above it for this user alone.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Names in a folder; none if it is not there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let name = |entry: io::Result<fs::DirEntry>| Some(entry.ok()?.file_name().to_string_lossy().into_owned());
    Ok(entries.filter_map(name).collect())
}

fn unknown(found: Vec<String>, known: Vec<String>) -> Vec<String> {
    let known: HashSet<_> = known.into_iter().collect();
    found.into_iter().filter(|name| !known.contains(name)).collect()
}

fn is_old(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > ABANDONED))
}

fn tell(name: &str, removed: io::Result<()>) {
    match removed {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(name, %error, "a folder of a deleted session cannot be removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_sweeper_takes_only_what_nobody_knows() {
        let root = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&root.path().join("state.db")).unwrap();
        let folders = ForgeFolders::new(root.path());
        let ids = ["forge/held", "forge/gone"].map(|id| SessionId(id.to_owned()));
        let hold = folders.hold(&ids[0]);
        let mut made = Vec::new();
        for id in &ids {
            made.push(folders.make_for_session(id).await.unwrap());
        }
        std::fs::create_dir(made[1].join("folder")).unwrap();
        std::fs::write(made[1].join("folder/file"), "x").unwrap();
        folders.make_for_uploads().await.unwrap();
        let young = folders.of_upload("young");
        std::fs::write(&young, "x").unwrap();
        folders.remove_abandoned(&store).await.unwrap();
        assert_eq!((made[0].exists(), made[1].exists(), young.exists()), (true, false, true));
        drop(hold);
        folders.remove_abandoned(&store).await.unwrap();
        assert!(!made[0].exists());
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(root.path().join("sessions")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o700);
    }

    #[tokio::test]
    async fn the_bytes_of_an_upload_that_has_ended_go_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&root.path().join("state.db")).unwrap();
        let folders = ForgeFolders::new(root.path());
        folders.make_for_uploads().await.unwrap();
        for (digest, expires) in [("ended", 100), ("kept", 101)] {
            std::fs::write(folders.of_upload(digest), "x").unwrap();
            let (digest, app, name) = (digest.to_owned(), "forge".to_owned(), "x".to_owned());
            let file = store::ForgeFile { digest, app, name, size: 1, expires };
            let most = store::FileUse { files: 2, bytes: 2 };
            assert!(store.write(move |tx| tx.add_forge_file(&file, most, 2)).await.unwrap());
        }
        for _ in 0..2 {
            store.write(|tx| tx.prune_forge_files(100)).await.unwrap();
            folders.remove_abandoned(&store).await.unwrap();
            assert!(!folders.of_upload("ended").exists() && folders.of_upload("kept").exists());
            assert_eq!(store.read(|tx| tx.forge_file_names()).await.unwrap(), ["kept"]);
        }
    }

    #[tokio::test]
    async fn however_many_uploads_have_ended_one_sweep_removes_them() {
        let root = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&root.path().join("state.db")).unwrap();
        let folders = ForgeFolders::new(root.path());
        folders.make_for_uploads().await.unwrap();
        let filled = store.write(|tx| {
            for number in 0..450 {
                let (digest, app, name) = (format!("{number:03}"), "forge".to_owned(), "x".to_owned());
                let file = store::ForgeFile { digest, app, name, size: 1, expires: 100 };
                tx.add_forge_file(&file, store::FileUse { files: 1_000, bytes: 1_000 }, 1_000)?;
            }
            Ok(())
        });
        filled.await.unwrap();
        // One that cannot be removed does not hold the others up.
        std::fs::create_dir(folders.of_upload("000")).unwrap();
        while store.write(|tx| tx.prune_forge_files(100)).await.unwrap() {}
        folders.remove_abandoned(&store).await.unwrap();
        assert_eq!(store.read(|tx| tx.forge_file_names()).await.unwrap(), ["000"]);
    }

    #[tokio::test]
    async fn what_one_app_makes_of_its_folder_costs_no_app_its_files() {
        let root = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&root.path().join("state.db")).unwrap();
        let folders = ForgeFolders::new(root.path());
        let ids = ["forge/file", "forge/link", "forge/own", "other/own"].map(|id| SessionId(id.to_owned()));
        for id in ids.clone() {
            let app = id.0.split('/').next().unwrap().to_owned();
            let agent = crate::ids::AgentName::local();
            let new = store::NewForgeSession { session: id, app, agent, model: None, meta: None };
            assert!(store.write(move |tx| tx.create_forge_session(&new, 100)).await.unwrap().is_some());
        }
        let own = folders.make_for_session(&ids[2]).await.unwrap();
        std::fs::create_dir(own.join("files-1")).unwrap();
        std::fs::write(own.join("files-1/a"), "12345").unwrap();
        std::fs::write(folders.of_session(&ids[0]), "no folder").unwrap();
        std::os::unix::fs::symlink(&own, folders.of_session(&ids[1])).unwrap();
        let most = CopyLimits { of_app: 10, of_all: 100 };
        let copy = async |app: &str, id: &SessionId, bytes: u64| {
            folders.begin_copy(&store, (app, id), bytes, most).await.unwrap()
        };
        assert!(copy("other", &ids[3], 10).await.is_some());
        // What is there counts once, and nothing behind the link.
        assert!(copy("forge", &ids[2], 6).await.is_none());
        assert!(copy("forge", &ids[2], 5).await.is_some());
    }

    #[test]
    fn no_app_takes_all_slots_for_uploads() {
        let folders = ForgeFolders::new(Path::new("/nowhere"));
        let mut slots = Vec::new();
        for app in ["a", "b", "c", "d"] {
            slots.extend((0..UPLOADS_OF_APP).map(|_| folders.begin_upload(app).unwrap()));
            assert!(folders.begin_upload(app).is_none());
        }
        assert!(folders.begin_upload("e").is_none(), "all are taken");
        slots.pop();
        slots.push(folders.begin_upload("e").unwrap());
        assert!(folders.begin_upload("d").is_none());
        slots.clear();
        assert!(folders.uploads.lock().is_empty());
    }
}
