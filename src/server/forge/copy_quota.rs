//! Counts the bytes that are copied into the folders of sessions, by app: uploads have a bound, and a copy of one takes as
//! much of the disk.
//!
//! A count lasts as long as the folder. A new process counts what an earlier one copied when it first needs that.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use parking_lot::Mutex;

/// Begins the name of a folder with copies, in the folder of a session.
pub const COPIES: &str = "files-";

/// What the folders of sessions hold, by their names. One without copies has no entry.
type Counts = Arc<Mutex<HashMap<String, SessionCopies>>>;

/// Copies in the folder of a session.
#[derive(Debug, Default)]
struct SessionCopies {
    app: String,
    bytes: u64,
}

/// The copies of all apps.
#[derive(Default)]
pub struct CopyQuota {
    counts: Counts,
}

impl CopyQuota {
    /// Counts bytes that are about to be copied into a folder, unless its app would then have more than `most`.
    pub fn take(&self, app: &str, folder: &str, bytes: u64, most: u64) -> Option<CopyShare> {
        let mut counts = self.counts.lock();
        let used: u64 = counts.values().filter(|copies| copies.app == app).map(|copies| copies.bytes).sum();
        if used.saturating_add(bytes) > most {
            return None;
        }
        add(&mut counts, app, folder, bytes);
        Some(CopyShare { counts: Some(self.counts.clone()), folder: folder.to_owned(), bytes })
    }

    /// Counts what is in a folder since an earlier process.
    pub fn count(&self, app: &str, folder: &str, bytes: u64) {
        add(&mut self.counts.lock(), app, folder, bytes);
    }

    /// The folder is gone.
    pub fn forget(&self, folder: &str) {
        self.counts.lock().remove(folder);
    }
}

fn add(counts: &mut HashMap<String, SessionCopies>, app: &str, folder: &str, bytes: u64) {
    if bytes > 0 {
        let copies = counts.entry(folder.to_owned()).or_default();
        app.clone_into(&mut copies.app);
        copies.bytes = copies.bytes.saturating_add(bytes);
    }
}

/// Bytes that count for an app. Dropping it takes them off again, unless they are [kept](Self::keep).
pub struct CopyShare {
    /// `None` once they are kept.
    counts: Option<Counts>,
    folder: String,
    bytes: u64,
}

impl CopyShare {
    /// Counts the bytes until their folder is gone.
    pub fn keep(mut self) {
        self.counts = None;
    }
}

impl Drop for CopyShare {
    fn drop(&mut self) {
        let Some(counts) = self.counts.take() else { return };
        let mut counts = counts.lock();
        if let Some(copies) = counts.get_mut(&self.folder) {
            copies.bytes = copies.bytes.saturating_sub(self.bytes);
            if copies.bytes == 0 {
                counts.remove(&self.folder);
            }
        }
    }
}

/// Bytes of the copies in the folder of a session; 0 if there is no such folder. Leads through no link out of it. Blocks.
pub fn bytes_of_copies(folder: &Path) -> io::Result<u64> {
    let folder = match Dir::open_ambient_dir(folder, ambient_authority()) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for entry in folder.entries()?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(COPIES) {
            continue;
        }
        // An agent may have put anything in its place.
        let Ok(copies) = folder.open_dir(&name).and_then(|copies| copies.entries()) else { continue };
        bytes += copies.flatten().filter_map(|copy| copy.metadata().ok()).map(|copy| copy.len()).sum::<u64>();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_copies_so_many_bytes_and_no_more_until_a_folder_is_gone() {
        let quota = CopyQuota::default();
        quota.take("a", "a_1", 6, 10).unwrap().keep();
        assert!(quota.take("a", "a_2", 5, 10).is_none(), "too much over all sessions of the app");
        quota.take("b", "b_1", 10, 10).unwrap().keep();
        let share = quota.take("a", "a_2", 4, 10).unwrap();
        assert!(quota.take("a", "a_2", 1, 10).is_none());
        drop(share);
        quota.take("a", "a_1", 4, 10).unwrap().keep();
        assert!(quota.take("a", "a_1", 1, 10).is_none());
        quota.forget("a_1");
        let shares = [quota.take("a", "a_1", 5, 10).unwrap(), quota.take("a", "a_1", 5, 10).unwrap()];
        drop(shares);
        quota.forget("b_1");
        assert!(quota.counts.lock().is_empty());
    }

    #[test]
    fn copies_of_an_earlier_process_are_found_and_nothing_behind_a_link() {
        let root = tempfile::tempdir().unwrap();
        let session = root.path().join("session");
        assert_eq!(bytes_of_copies(&session).unwrap(), 0);
        std::fs::create_dir_all(session.join("files-1")).unwrap();
        std::fs::write(session.join("files-1/a"), "12345").unwrap();
        std::fs::write(session.join("other"), "12345").unwrap();
        std::fs::create_dir(root.path().join("outside")).unwrap();
        std::fs::write(root.path().join("outside/a"), "12345").unwrap();
        std::os::unix::fs::symlink(root.path().join("outside"), session.join("files-2")).unwrap();
        assert_eq!(bytes_of_copies(&session).unwrap(), 5);
    }
}
