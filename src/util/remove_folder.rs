//! Removes a folder that a stranger's program has filled: as deep, as wide and as locked as it likes.
//!
//! Recursion ends the process where the folder is deep enough, and a path to its end is too long for the system. So nothing
//! walks down: the folder is moved into a trash folder beside it, and each folder in the trash gives its own folders to
//! the trash before it is removed. At most a handful of files are open at a time, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Permissions, PermissionsExt as _};
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::random_hex;

/// Ending of the trash folder's name.
const TRASH: &str = ".removed";

/// Names that are read at a time: all names of a wide folder may be more than fit into memory.
const AT_ONCE: usize = 256;

/// Longest time of one removal: a program that goes on filling the folder must not hold a thread for ever. What is left then
/// is removed by a later call.
const LONGEST: Duration = Duration::from_secs(120);

/// Removes the folder called `name` in `parent`, and what an earlier removal of it left. Whatever else has this name is
/// removed too. It is no error if there is nothing. Blocks.
pub fn remove_folder(parent: &Path, name: &str) -> io::Result<()> {
    match Dir::open_ambient_dir(parent, ambient_authority()) {
        Ok(parent) => remove_folder_in(&parent, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Like [`remove_folder`], in a folder that is open.
pub fn remove_folder_in(parent: &Dir, name: &str) -> io::Result<()> {
    // What an earlier removal left is the trash itself.
    let trash_name = if name.ends_with(TRASH) { name.to_owned() } else { format!("{name}{TRASH}") };
    let (name, trash_name) = (OsStr::new(name), OsStr::new(&trash_name));
    if kind(parent, name)?.is_none() && kind(parent, trash_name)?.is_none() {
        return Ok(());
    }
    match rustix::fs::mkdirat(parent, trash_name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    unlock(parent, trash_name);
    let trash = open_folder(parent, trash_name)?;
    let deadline = Instant::now() + LONGEST;
    let mut removal = Removal { trash, prefix: random_hex(8), moved: 0, deadline };
    if name != trash_name {
        removal.take(parent, name)?;
    }
    loop {
        let names = removal.names()?;
        if names.is_empty() {
            return absent_is_fine(rustix::fs::unlinkat(parent, trash_name, AtFlags::REMOVEDIR));
        }
        for name in names {
            removal.dissolve(&name)?;
        }
    }
}

/// One removal under way.
struct Removal {
    trash: Dir,
    /// Begins the names that folders get in the trash. An earlier removal used another one.
    prefix: String,
    /// Folders that were moved into the trash.
    moved: u64,
    deadline: Instant,
}

impl Removal {
    /// Some names in the trash; none if it is empty.
    fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Listing::read_from(&self.trash)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !is_dots(name) {
                names.push(name.to_owned());
            }
            if names.len() == AT_ONCE {
                break;
            }
        }
        Ok(names)
    }

    /// Removes an entry of the trash. If it is a folder, its own folders become entries of the trash.
    fn dissolve(&mut self, name: &OsStr) -> io::Result<()> {
        if kind(&self.trash, name)? != Some(FileType::Directory) {
            return absent_is_fine(rustix::fs::unlinkat(&self.trash, name, AtFlags::empty()));
        }
        // What an earlier removal left may be locked.
        unlock(&self.trash, name);
        let folder = open_folder(&self.trash, name)?;
        for entry in Listing::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !is_dots(name) {
                self.take(&folder, name)?;
            }
        }
        match rustix::fs::unlinkat(&self.trash, name, AtFlags::REMOVEDIR) {
            // A listing may miss entries while others go. It stays in the trash, and has its turn again.
            Err(Errno::NOTEMPTY | Errno::EXIST) if Instant::now() < self.deadline => Ok(()),
            removed => absent_is_fine(removed),
        }
    }

    /// Moves a folder into the trash, and removes anything else.
    fn take(&mut self, from: &Dir, name: &OsStr) -> io::Result<()> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match kind(from, name)? {
            None => Ok(()),
            Some(FileType::Directory) => {
                // A folder must be writable to be moved into another one.
                unlock(from, name);
                self.moved += 1;
                let new = format!("{}-{}", self.prefix, self.moved);
                absent_is_fine(rustix::fs::renameat(from, name, &self.trash, new))
            }
            Some(_) => absent_is_fine(rustix::fs::unlinkat(from, name, AtFlags::empty())),
        }
    }
}

/// Kind of an entry; `None` if there is none.
fn kind(folder: &Dir, name: &OsStr) -> io::Result<Option<FileType>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes a folder changeable for this user again. Leads through no link out of `parent`. If it cannot be done, the next call
/// on the folder says why.
fn unlock(parent: &Dir, name: &OsStr) {
    let _ = parent.set_permissions(name, Permissions::from_mode(0o700));
}

fn open_folder(parent: &Dir, name: &OsStr) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    Ok(Dir::from_std_file(folder.into()))
}

fn is_dots(name: &OsStr) -> bool {
    name == "." || name == ".."
}

/// Another removal of the same may have been quicker.
fn absent_is_fine(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Makes so many folders, each in the one before. A path to the last would be too long.
    fn make_deep(folder: &Path, levels: usize) {
        let mut at = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
        for level in 0..levels {
            if level % 1_000 == 0 {
                at.write("file", "x").unwrap();
            }
            at.create_dir("d").unwrap();
            at = at.open_dir("d").unwrap();
        }
    }

    fn is_empty(folder: &Path) -> bool {
        fs::read_dir(folder).unwrap().next().is_none()
    }

    #[test]
    fn a_folder_may_be_twenty_thousand_levels_deep() {
        // In memory where there is such a folder: some disks take a minute for so many.
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(root.path().join("x")).unwrap();
        make_deep(&root.path().join("x"), 20_000);
        // Whatever walked down would need more stack.
        let (path, small) = (root.path().to_owned(), std::thread::Builder::new().stack_size(128 * 1024));
        small.spawn(move || remove_folder(&path, "x").unwrap()).unwrap().join().unwrap();
        assert!(is_empty(root.path()));
    }

    #[test]
    fn a_folder_may_be_wide_and_locked_at_every_level() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("x");
        for number in 0..AT_ONCE + 10 {
            fs::create_dir_all(folder.join(format!("{number}/a/b"))).unwrap();
            fs::write(folder.join(format!("{number}/a/file")), "x").unwrap();
            for locked in ["a/b", "a", ""] {
                let path = folder.join(number.to_string()).join(locked);
                fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
            }
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o0)).unwrap();
        obey_permissions();
        assert!(fs::read_dir(&folder).is_err(), "it is locked for this thread");
        remove_folder(root.path(), "x").unwrap();
        assert!(is_empty(root.path()));
    }

    /// Takes from this thread what lets it read and change what it may not.
    #[cfg(target_os = "linux")]
    fn obey_permissions() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        sets.effective.remove(all);
        set_capabilities(None, sets).unwrap();
    }

    #[cfg(not(target_os = "linux"))]
    fn obey_permissions() {}

    #[test]
    fn nothing_outside_is_touched_by_way_of_a_link() {
        let root = tempfile::tempdir().unwrap();
        let (folder, outside) = (root.path().join("x"), root.path().join("outside"));
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "x").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&outside, root.path().join("y")).unwrap();
        remove_folder(root.path(), "x").unwrap();
        // A link in place of the folder itself goes alone.
        remove_folder(root.path(), "y").unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "x");
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn what_an_earlier_removal_left_goes_with_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("x.removed/1/a")).unwrap();
        fs::write(root.path().join("x.removed/file"), "x").unwrap();
        fs::create_dir_all(root.path().join("y.removed/1")).unwrap();
        remove_folder(root.path(), "x").unwrap();
        // The sweeper finds it by its own name.
        fs::create_dir(root.path().join("y")).unwrap();
        remove_folder(root.path(), "y.removed").unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "y is not meant");
        remove_folder(root.path(), "y").unwrap();
        assert!(is_empty(root.path()));
        remove_folder(root.path(), "x").unwrap();
        remove_folder(&root.path().join("nowhere"), "x").unwrap();
    }
}
