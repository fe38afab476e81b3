//! The workspace of an agent: the folder that its file tools are confined to.
//!
//! A model names files by paths below the workspace. [`Workspace::resolve`] refuses every path that obviously leads
//! elsewhere, with a sentence that the model understands; [`ConfinedDir`] resolves the rest without ever leaving the
//! folder.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};

use super::ToolFailure;
use crate::agents::confined_dir::{ConfinedDir, FileProblem};
use crate::util::code_span;

/// Longest path in bytes, as on Linux.
const PATH_BYTES: usize = 4096;

/// Longest name of one file or folder in bytes, as on most file systems.
const NAME_BYTES: usize = 255;

/// Characters of a path in a sentence.
const SHOWN: usize = 200;

/// The folder of an agent. One for all its tools, behind an `Arc`.
#[derive(Debug)]
pub struct Workspace {
    /// Opened once: a link that later takes the place of the folder changes nothing.
    dir: ConfinedDir,
    /// Names of the folder: as configured, and without links. Absolute paths may begin with either.
    roots: [PathBuf; 2],
    /// Held while a file is read, changed and replaced, so that two edits at once both stay.
    writing: Mutex<()>,
}

/// A path below the workspace: relative, without `..`. Empty for the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspacePath(PathBuf);

impl Workspace {
    /// Opens the folder, which must exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        let roots = [std::path::absolute(root)?, root.canonicalize()?];
        Ok(Self { dir: ConfinedDir::open(root)?, roots, writing: Mutex::new(()) })
    }

    /// The folder without links.
    pub fn root(&self) -> &Path {
        let [_, real] = &self.roots;
        real
    }

    /// The open folder.
    pub fn dir(&self) -> &ConfinedDir {
        &self.dir
    }

    /// Waits until no other call changes a file. Only for blocking threads.
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Reads a path that a model wrote. Touches no file.
    pub fn resolve(&self, written: &str) -> Result<WorkspacePath, ToolFailure> {
        let refuse = |why: &str| Err(ToolFailure::failed(format!("{} {why}", code_span(written, SHOWN))));
        if written.trim().is_empty() {
            return Err(ToolFailure::failed("the path is empty; give one that is relative to the workspace"));
        }
        if written.contains(char::is_control) {
            return refuse("contains a control character, which no path may have");
        }
        if written.len() > PATH_BYTES {
            return refuse("is too long for a path");
        }
        if written.contains("://") {
            return refuse("is an address, not a path; give a path that is relative to the workspace");
        }
        let path = Path::new(written);
        let path = match path.is_absolute() {
            true => match self.roots.iter().find_map(|root| path.strip_prefix(root).ok()) {
                Some(path) => path,
                None => return refuse("is outside of the workspace; only files inside of it can be used"),
            },
            false => path,
        };
        let mut inside = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(name) if name.len() > NAME_BYTES => {
                    return refuse("has a name that is too long");
                }
                Component::Normal(name) if name == "~" && inside.as_os_str().is_empty() => {
                    return refuse(
                        "begins with the home folder; give a path that is relative to the workspace",
                    );
                }
                Component::Normal(name) => inside.push(name),
                Component::CurDir => {}
                Component::ParentDir => {
                    return refuse(
                        "contains `..`; give a path that is relative to the workspace, without it",
                    );
                }
                Component::RootDir | Component::Prefix(_) => {
                    return refuse("is outside of the workspace; only files inside of it can be used");
                }
            }
        }
        Ok(WorkspacePath(inside))
    }

    /// The path of a file, which the workspace itself is not.
    pub fn resolve_file(&self, written: &str) -> Result<WorkspacePath, ToolFailure> {
        let path = self.resolve(written)?;
        match path.is_workspace() {
            true => Err(path.failure(&FileProblem::Folder)),
            false => Ok(path),
        }
    }
}

impl WorkspacePath {
    /// The path for [`ConfinedDir`].
    pub fn as_path(&self) -> &Path {
        match self.is_workspace() {
            true => Path::new("."),
            false => &self.0,
        }
    }

    /// Whether it is the workspace itself.
    pub fn is_workspace(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// The sentence for a model about a file that cannot be used.
    pub fn failure(&self, problem: &FileProblem) -> ToolFailure {
        match problem {
            FileProblem::Cancelled => ToolFailure::Stopped,
            FileProblem::Outside => ToolFailure::failed(format!(
                "{self} leads out of the workspace; only files inside of it can be used"
            )),
            other => ToolFailure::failed(format!("{self} {other}")),
        }
    }
}

/// As code, for a sentence.
impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&code_span(&self.as_path().to_string_lossy(), SHOWN))
    }
}

#[cfg(test)]
mod tests;
