//! Paths with their links resolved: those that a sandbox hides, and the check that a workspace has none of them.

use std::path::{Component, Path, PathBuf};

/// The path with every link resolved, as far as it exists. A relative path begins in the current folder.
pub fn resolved(path: &Path) -> PathBuf {
    let mut existing = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    loop {
        if let Ok(found) = existing.canonicalize() {
            let whole = rest.iter().rev().fold(found, |whole: PathBuf, name| whole.join(name));
            return without_dots(&whole);
        }
        match (existing.parent().map(Path::to_owned), existing.components().next_back()) {
            (Some(parent), Some(last)) => {
                rest.push(PathBuf::from(last.as_os_str()));
                existing = parent;
            }
            _ => return without_dots(path),
        }
    }
}

/// A path of ours that lies in the workspace, or that the workspace lies in. Links are resolved.
pub fn workspace_conflict(workspace: &Path, ours: &[PathBuf]) -> Option<PathBuf> {
    let workspace = resolved(workspace);
    let conflicts = |path: &&PathBuf| {
        let path = resolved(path);
        path.starts_with(&workspace) || workspace.starts_with(&path)
    };
    ours.iter().find(conflicts).cloned()
}

/// The paths resolved and sorted, without those that lie in another one.
pub(super) fn outermost(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut resolved: Vec<PathBuf> = paths.iter().map(|path| self::resolved(path)).collect();
    // A sandbox without any file is none.
    resolved.retain(|path| path != Path::new("/"));
    resolved.sort_unstable();
    // Sorted by components, a folder stands directly before everything in it.
    resolved.dedup_by(|later, earlier| later.starts_with(earlier));
    resolved
}

/// The path without `.` and `..`. Used only behind the part that exists, where no link can change their meaning.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(component),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_workspace_and_our_folders_must_not_contain_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["work/deep", "state", "other"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(root.join("work"), root.join("link")).unwrap();
        symlink(root.join("state"), root.join("work/state")).unwrap();
        symlink(root.join("work/deep/key"), root.join("key")).unwrap();
        fs::write(root.join("work/deep/key"), "").unwrap();
        let conflict = |workspace: &str, ours: &str| {
            let ours = root.join(ours);
            let found = workspace_conflict(&root.join(workspace), &[root.join("other"), ours.clone()]);
            assert!(found.is_none() || found == Some(ours));
            found.is_some()
        };
        for (workspace, ours) in [
            ("work", "work"),
            ("work", "work/talaria"),
            ("work", "work/none/talaria.yaml"),
            ("work/deep", "work"),
            ("link", "work"),
            ("work", "link/talaria.yaml"),
            ("link/deep", "work"),
            ("work", "key"),
            ("work", "state/../work/x"),
            ("state/new", "work/state"),
            ("work/none/../deep", "work/deep/talaria"),
        ] {
            assert!(conflict(workspace, ours), "{workspace} and {ours}");
        }
        for (workspace, ours) in [
            ("work", "state"),
            ("work", "workshop"),
            ("work/deep", "work/state"),
            ("new", "newer"),
            ("work", "talaria.yaml"),
        ] {
            assert!(!conflict(workspace, ours), "{workspace} and {ours}");
        }
    }

    #[test]
    fn of_paths_within_one_another_only_the_outermost_is_hidden() {
        let paths = ["/x/b/c", "/x/b", "/x/bc", "/x/a", "/x/b"].map(PathBuf::from);
        assert_eq!(outermost(&paths), ["/x/a", "/x/b", "/x/bc"].map(PathBuf::from));
    }
}
