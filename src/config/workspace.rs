//! Decides whether a folder may be the workspace of an agent.
//!
//! The tools of an agent read and write everything in its workspace. So a workspace must not reach our own files: the
//! state folder, the configuration, the skills, and the files that hold keys. Links are resolved first.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Most times that a path is resolved again because links and `..` follow one another. Beyond it, it leads in a circle.
const MOST_ROUNDS: usize = 40;

/// Why a folder cannot be a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceConflict {
    /// It is the root of the file system.
    Root,
    /// It contains a file or folder of ours.
    Contains(PathBuf),
    /// It lies in a folder of ours, or is that folder.
    Inside(PathBuf),
    /// It leads through a link without an end.
    BrokenLink,
    /// Something that is no folder stands there.
    NoFolder,
}

impl fmt::Display for WorkspaceConflict {
    /// A phrase that follows the name of the workspace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("is the root of the file system"),
            Self::Contains(ours) => write!(f, "contains {}, which belongs to Talaria", ours.display()),
            Self::Inside(ours) => write!(f, "lies in {}, which belongs to Talaria", ours.display()),
            Self::BrokenLink => f.write_str("leads through a link without an end"),
            Self::NoFolder => f.write_str("is not a folder"),
        }
    }
}

/// A folder as a person wrote it, as an absolute path. A relative path begins in the current folder, as all paths of the
/// file do. The error says what is wrong, and the next step.
pub fn absolute_folder(written: &str) -> Result<PathBuf, (&'static str, &'static str)> {
    const WHOLE: &str = "write the whole path, for example `/home/ann/agent`";
    if written == "~" || written.starts_with("~/") {
        return Err(("begins with `~`, which only a shell replaces", WHOLE));
    }
    if written.contains(char::is_control) {
        return Err(("is not a path", "write the whole path on one line"));
    }
    std::path::absolute(written).map_err(|_| ("is not a path", WHOLE))
}

/// Why `workspace` cannot be one beside our own files and folders; `None` if it can. Neither it nor they need exist.
pub fn workspace_conflict<'a>(
    workspace: &Path,
    ours: impl IntoIterator<Item = &'a Path>,
) -> Option<WorkspaceConflict> {
    let Some(resolved) = resolve_links(workspace) else { return Some(WorkspaceConflict::BrokenLink) };
    if resolved.parent().is_none() {
        return Some(WorkspaceConflict::Root);
    }
    for path in ours {
        // A link of ours is protected by itself, too: a tool could put something else in its place.
        let absolute = std::path::absolute(path).ok();
        let itself = absolute.as_deref().and_then(|path| Some((path.parent()?, path.file_name()?)));
        let itself = itself.and_then(|(folder, name)| Some(resolve_links(folder)?.join(name)));
        for own in resolve_links(path).into_iter().chain(itself) {
            if resolved.starts_with(&own) {
                return Some(WorkspaceConflict::Inside(path.to_owned()));
            }
            if own.starts_with(&resolved) {
                return Some(WorkspaceConflict::Contains(path.to_owned()));
            }
        }
    }
    (resolved.exists() && !resolved.is_dir()).then_some(WorkspaceConflict::NoFolder)
}

/// Makes the folder, and those above it, for this user alone. A folder that is there is left as it is.
pub fn make_workspace(workspace: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    fs::DirBuilder::new().recursive(true).mode(0o700).create(workspace)
}

/// The absolute path without links and `..`. The end of it may be missing in the file system. `None` if a link on the
/// way has no end.
fn resolve_links(path: &Path) -> Option<PathBuf> {
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..MOST_ROUNDS {
        let existing = path.ancestors().find(|above| above.symlink_metadata().is_ok())?;
        let mut resolved = existing.canonicalize().ok()?;
        let missing = path.strip_prefix(existing).ok()?;
        if !missing.components().any(|part| part == Component::ParentDir) {
            // An empty path would add a slash, and no file has a path with a slash at its end.
            resolved.extend(missing.components());
            return Some(resolved);
        }
        // `missing/../other` may lead back to something that exists, such as another link.
        for part in missing.components() {
            match part {
                Component::ParentDir => _ = resolved.pop(),
                Component::Normal(name) => resolved.push(name),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        path = resolved;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Folders `state`, `work` and `work/deep`, a file `conf/talaria.yaml`, and links.
    fn scene() -> tempfile::TempDir {
        let scene = tempfile::tempdir().unwrap();
        let at = |name: &str| scene.path().join(name);
        for folder in ["state/skills", "work/deep", "conf", "elsewhere"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("conf/talaria.yaml"), "").unwrap();
        fs::write(at("file"), "").unwrap();
        symlink(at("state"), at("to-state")).unwrap();
        symlink(scene.path(), at("to-all")).unwrap();
        symlink(at("conf"), at("to-conf")).unwrap();
        symlink(at("work"), at("to-work")).unwrap();
        symlink(at("nowhere"), at("broken")).unwrap();
        symlink(at("circle"), at("circle")).unwrap();
        symlink(at("conf/talaria.yaml"), at("elsewhere/config-link")).unwrap();
        scene
    }

    #[test]
    fn a_workspace_never_reaches_our_files() {
        let scene = scene();
        let at = |name: &str| scene.path().join(name);
        let ours = [at("state"), at("conf/talaria.yaml"), at("elsewhere/config-link"), at("later/skills")];
        let contains = |path: usize| Some(WorkspaceConflict::Contains(ours[path].clone()));
        let inside = |path: usize| Some(WorkspaceConflict::Inside(ours[path].clone()));
        for (workspace, conflict) in [
            ("work", None),
            ("work/deep", None),
            ("work/new/deeper", None),
            ("to-work", None),
            ("to-work/../work/new", None),
            ("statements", None),
            ("state", inside(0)),
            ("state/", inside(0)),
            ("state/skills", inside(0)),
            ("state/new/work", inside(0)),
            ("to-state", inside(0)),
            ("to-state/new", inside(0)),
            ("work/../state", inside(0)),
            ("missing/../state", inside(0)),
            ("missing/../to-state/new", inside(0)),
            ("missing/./../to-work/../state", inside(0)),
            (".", contains(0)),
            ("to-all", contains(0)),
            ("to-all/work/deep/../..", contains(0)),
            ("conf", contains(1)),
            ("to-conf", contains(1)),
            ("to-work/../conf", contains(1)),
            ("elsewhere", contains(2)),
            ("later", contains(3)),
            ("later/skills/one", inside(3)),
            ("broken", Some(WorkspaceConflict::BrokenLink)),
            ("broken/new", Some(WorkspaceConflict::BrokenLink)),
            ("circle", Some(WorkspaceConflict::BrokenLink)),
            ("file", Some(WorkspaceConflict::NoFolder)),
        ] {
            let found = workspace_conflict(&at(workspace), ours.iter().map(PathBuf::as_path));
            assert_eq!(found, conflict, "{workspace}");
        }
        for root in ["/", "//", "/..", "/tmp/.."] {
            assert_eq!(workspace_conflict(Path::new(root), []), Some(WorkspaceConflict::Root), "{root}");
        }
    }

    #[test]
    fn our_own_files_are_found_through_links() {
        let scene = scene();
        let at = |name: &str| scene.path().join(name);
        let conflict = |workspace: &str, ours: &str| workspace_conflict(&at(workspace), [at(ours).as_path()]);
        for ours in ["to-work/talaria.yaml", "state/../work/x", "work/none/../deep/talaria"] {
            assert_eq!(conflict("work", ours), Some(WorkspaceConflict::Contains(at(ours))), "{ours}");
        }
        assert_eq!(
            conflict("conf", "elsewhere/config-link"),
            Some(WorkspaceConflict::Contains(at("elsewhere/config-link")))
        );
        assert_eq!(conflict("state/new", "to-state"), Some(WorkspaceConflict::Inside(at("to-state"))));
        for ours in ["workshop", "to-conf/talaria.yaml", "talaria.yaml"] {
            assert_eq!(conflict("work", ours), None, "{ours}");
        }
    }

    #[test]
    fn a_workspace_is_made_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let scene = scene();
        let new = scene.path().join("one/two");
        make_workspace(&new).unwrap();
        make_workspace(&new).unwrap();
        for folder in [&new, &scene.path().join("one")] {
            assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert!(make_workspace(&scene.path().join("file")).is_err());
    }
}
