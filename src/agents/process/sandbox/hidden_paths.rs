//! Finds the paths that a sandbox hides.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Sockets of other programs, and folders of them, that variables of ours name: they may lie outside of `/run`. A command
/// that reaches such a socket has the rights of its program.
pub fn socket_paths(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let named = ["XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"].into_iter().filter_map(lookup);
    named.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
}

/// The paths that exist, without links, sorted, and without those that lie in another one.
pub(super) fn outermost(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut resolved: Vec<PathBuf> = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // A sandbox without any file is none.
    resolved.retain(|path| path != Path::new("/"));
    resolved.sort_unstable();
    // Sorted by components, a folder stands directly before everything in it.
    resolved.dedup_by(|later, earlier| later.starts_with(earlier));
    resolved
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn sockets_of_other_programs_are_found_by_their_variables() {
        let lookup = |name: &str| match name {
            "SSH_AUTH_SOCK" => Some("/home/ann/agent".into()),
            "XDG_RUNTIME_DIR" => Some("relative".into()),
            _ => None,
        };
        assert_eq!(socket_paths(lookup), [PathBuf::from("/home/ann/agent")]);
    }

    #[test]
    fn of_paths_within_one_another_only_the_outermost_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a", "b/c", "bc", "d"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(root.join("d"), root.join("link")).unwrap();
        let paths = ["b/c", "b", "bc", "a", "b", "link", "gone", "a/../b"].map(|name| root.join(name));
        assert_eq!(outermost(&paths), ["a", "b", "bc", "d"].map(|name| root.join(name)));
        assert!(outermost(&["/".into()]).is_empty());
    }
}
