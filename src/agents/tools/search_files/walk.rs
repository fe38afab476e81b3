//! Walks through the files below a folder: in order, without following links, without those that `.gitignore` names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::overrides::{Override, OverrideBuilder};

use crate::agents::confined_dir::{ConfinedDir, FileProblem};
use crate::agents::tools::ToolFailure;
use crate::agents::tools::workspace::WorkspacePath;
use crate::util::one_line;

/// Entries of one folder that are looked at. They are in memory while they are put in order.
const FOLDER_ENTRIES: usize = 50_000;

/// Entries that wait to be looked at, in all folders together.
const WAITING_ENTRIES: usize = 200_000;

/// Deepest folder. Deeper ones are made by loops of mounts, not by people.
const DEPTH: usize = 64;

/// Largest `.gitignore` in bytes; a larger one is not read.
const IGNORE_BYTES: u64 = 256 * 1024;

/// Files whose rules are read in every folder, the later one is stronger.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Folders of version control, which nobody wants to search.
const NEVER: [&str; 3] = [".git", ".hg", ".svn"];

/// The files that are still to come.
pub(super) struct FileWalk<'a> {
    dir: &'a ConfinedDir,
    /// Entries to look at, the next one last.
    pending: Vec<PendingEntry>,
    /// Only files that match.
    glob: Option<Override>,
    /// Whether a limit left something out.
    is_incomplete: bool,
}

enum PendingEntry {
    File(PathBuf),
    /// A folder, with the rules of the folders above it.
    Folder(PathBuf, Option<Arc<IgnoreRules>>),
}

/// The rules of one folder, and those above it.
struct IgnoreRules {
    own: Gitignore,
    above: Option<Arc<IgnoreRules>>,
}

impl<'a> FileWalk<'a> {
    /// Begins at a folder or a file. A path that was named is searched even if `.gitignore` names it too.
    pub(super) fn begin(
        dir: &'a ConfinedDir,
        path: &WorkspacePath,
        glob: Option<&str>,
    ) -> Result<Self, ToolFailure> {
        let glob = glob.map(only_files).transpose()?;
        let metadata = dir.dir().metadata(path.as_path()).map_err(|error| path.failure(&error.into()))?;
        let mut walk = Self { dir, pending: Vec::new(), glob, is_incomplete: false };
        let start = match path.is_workspace() {
            true => PathBuf::new(),
            false => path.as_path().to_owned(),
        };
        if metadata.is_dir() {
            let mut above = None;
            for folder in start.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
                above = walk.rules_of(folder, above);
            }
            walk.pending.push(PendingEntry::Folder(start, above));
        } else if metadata.is_file() {
            walk.pending.push(PendingEntry::File(start));
        } else {
            return Err(path.failure(&FileProblem::Special));
        }
        Ok(walk)
    }

    /// The next file. `is_over` is asked between folders and ends the walk.
    pub(super) fn next(&mut self, is_over: &dyn Fn() -> bool) -> Option<PathBuf> {
        loop {
            match self.pending.pop()? {
                PendingEntry::File(path) => return Some(path),
                PendingEntry::Folder(..) if is_over() => self.is_incomplete = true,
                PendingEntry::Folder(path, above) => self.enter(&path, above),
            }
        }
    }

    /// Whether no file is left.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a folder was not looked at in full.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    fn enter(&mut self, folder: &Path, above: Option<Arc<IgnoreRules>>) {
        if folder.components().count() > DEPTH {
            self.is_incomplete = true;
            return;
        }
        let rules = self.rules_of(folder, above);
        let Ok(entries) = self.dir.dir().read_dir(below(folder)) else {
            self.is_incomplete = true;
            return;
        };
        let mut found: Vec<(OsString, bool)> = Vec::new();
        for entry in entries.flatten() {
            if found.len() >= FOLDER_ENTRIES || found.len() + self.pending.len() >= WAITING_ENTRIES {
                self.is_incomplete = true;
                break;
            }
            let (name, kind) = (entry.file_name(), entry.file_type());
            // Neither links nor anything that is no file.
            let Some(is_folder) =
                kind.ok().filter(|kind| kind.is_dir() || kind.is_file()).map(|kind| kind.is_dir())
            else {
                continue;
            };
            if self.is_wanted(&folder.join(&name), is_folder, rules.as_deref()) {
                found.push((name, is_folder));
            }
        }
        found.sort_by(|(one, _), (other, _)| other.cmp(one));
        self.pending.extend(found.into_iter().map(|(name, is_folder)| match is_folder {
            true => PendingEntry::Folder(folder.join(name), rules.clone()),
            false => PendingEntry::File(folder.join(name)),
        }));
    }

    fn is_wanted(&self, path: &Path, is_folder: bool, rules: Option<&IgnoreRules>) -> bool {
        let name = path.file_name().unwrap_or_default();
        if is_folder && NEVER.iter().any(|never| name == *never) {
            return false;
        }
        if rules.is_some_and(|rules| rules.ignores(&rooted(path), is_folder)) {
            return false;
        }
        match &self.glob {
            Some(glob) if !is_folder => !glob.matched(rooted(path), false).is_ignore(),
            Some(_) | None => true,
        }
    }

    /// The rules of a folder on top of those above it.
    fn rules_of(&self, folder: &Path, above: Option<Arc<IgnoreRules>>) -> Option<Arc<IgnoreRules>> {
        let mut builder = GitignoreBuilder::new(rooted(folder));
        let mut has_lines = false;
        for name in IGNORE_FILES {
            // Read like any other file: a pipe or a link out of the workspace of this name is no list.
            let Ok((content, _)) = self.dir.read_file(&folder.join(name), IGNORE_BYTES) else { continue };
            for line in String::from_utf8_lossy(&content).lines() {
                has_lines |= builder.add_line(None, line).is_ok();
            }
        }
        match builder.build() {
            Ok(own) if has_lines => Some(Arc::new(IgnoreRules { own, above })),
            Ok(_) | Err(_) => above,
        }
    }
}

impl IgnoreRules {
    /// Whether the nearest rule about a path says that it is ignored.
    fn ignores(&self, path: &Path, is_folder: bool) -> bool {
        let mut rules = Some(self);
        while let Some(of_folder) = rules {
            match of_folder.own.matched(path, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = of_folder.above.as_deref(),
            }
        }
        false
    }
}

fn only_files(glob: &str) -> Result<Override, ToolFailure> {
    let wrong = |error: ignore::Error| {
        let why = one_line(&error.to_string(), 200);
        ToolFailure::failed(format!("`glob` is not understood: {why}"))
    };
    let mut builder = OverrideBuilder::new(rooted(Path::new("")));
    builder.add(glob).map_err(wrong)?;
    builder.build().map_err(wrong)
}

/// A path for the matchers, which want absolute ones: the workspace is `/` for them.
fn rooted(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// A path for listing.
fn below(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}
