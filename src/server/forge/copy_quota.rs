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

/// Most bytes of copies.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// In the sessions of one app.
    pub of_app: u64,
    /// In the sessions of all apps.
    pub of_all: u64,
}

/// The copies of all apps.
#[derive(Default)]
pub struct CopyQuota {
    counts: Counts,
}

impl CopyQuota {
    /// Counts bytes that are about to be copied into a folder, unless that would be more than `most` allows.
    pub fn take(&self, app: &str, folder: &str, bytes: u64, most: CopyLimits) -> Option<CopyShare> {
        let mut counts = self.counts.lock();
        let (mut own, mut all) = (bytes, bytes);
        for copies in counts.values() {
            all = all.saturating_add(copies.bytes);
            if copies.app == app {
                own = own.saturating_add(copies.bytes);
            }
        }
        if own > most.of_app || all > most.of_all {
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

/// Bytes of the copies in the folder of a session, by its name below `sessions`; 0 if there is no such folder. Follows no link:
/// the agent may have put one in place of the folder itself. Blocks.
pub fn bytes_of_copies(sessions: &Path, name: &str) -> io::Result<u64> {
    let open = || {
        let sessions = Dir::open_ambient_dir(sessions, ambient_authority())?;
        match sessions.symlink_metadata(name)?.is_dir() {
            true => sessions.open_dir(name),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    };
    let folder = match open() {
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

    const MOST: CopyLimits = CopyLimits { of_app: 10, of_all: 25 };

    #[test]
    fn an_app_copies_so_many_bytes_and_no_more_until_a_folder_is_gone() {
        let quota = CopyQuota::default();
        quota.take("a", "a_1", 6, MOST).unwrap().keep();
        assert!(quota.take("a", "a_2", 5, MOST).is_none(), "too much over all sessions of the app");
        quota.take("b", "b_1", 10, MOST).unwrap().keep();
        let share = quota.take("a", "a_2", 4, MOST).unwrap();
        assert!(quota.take("a", "a_2", 1, MOST).is_none());
        drop(share);
        quota.take("a", "a_1", 4, MOST).unwrap().keep();
        assert!(quota.take("a", "a_1", 1, MOST).is_none());
        quota.forget("a_1");
        let shares = [quota.take("a", "a_1", 5, MOST).unwrap(), quota.take("a", "a_1", 5, MOST).unwrap()];
        drop(shares);
        quota.take("c", "c_1", 10, MOST).unwrap().keep();
        assert!(quota.take("d", "d_1", 6, MOST).is_none(), "too much over all apps");
        quota.forget("c_1");
        drop(quota.take("d", "d_1", 6, MOST).unwrap());
        quota.forget("b_1");
        assert!(quota.counts.lock().is_empty());
    }

    #[test]
    fn copies_of_an_earlier_process_are_found_and_nothing_behind_a_link() {
        let root = tempfile::tempdir().unwrap();
        let session = root.path().join("session");
        assert_eq!(bytes_of_copies(root.path(), "session").unwrap(), 0);
        std::fs::create_dir_all(session.join("files-1")).unwrap();
        std::fs::write(session.join("files-1/a"), "12345").unwrap();
        std::fs::write(session.join("other"), "12345").unwrap();
        std::fs::create_dir(root.path().join("outside")).unwrap();
        std::fs::write(root.path().join("outside/a"), "12345").unwrap();
        std::os::unix::fs::symlink(root.path().join("outside"), session.join("files-2")).unwrap();
        assert_eq!(bytes_of_copies(root.path(), "session").unwrap(), 5);
        // The folder itself may be a link, too: to that of another app.
        std::os::unix::fs::symlink(&session, root.path().join("linked")).unwrap();
        assert!(bytes_of_copies(root.path(), "linked").is_err());
    }
}
