//! Finds the files of skills, and reads those that changed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::{FaultySkill, LEARNED, SKILL_BYTES, SKILLS, Skill, SkillFault, SkillHead, SkillOrigin, SkillSet};
use crate::agents::confined_dir::{ConfinedDir, FileProblem, FileVersion};
use crate::util::one_line;

/// Entries of one folder that are looked at.
const FOLDER_ENTRIES: usize = 1_000;

/// Characters of a file's name where it is shown.
const FILE_CHARS: usize = 120;

/// The file of a skill that has a folder of its own.
const SKILL_FILE: &str = "SKILL.md";

/// The heads of skills that were read before, by file.
#[derive(Default)]
pub(super) struct SkillCache {
    known: HashMap<PathBuf, KnownFile>,
}

/// A file, as it was read.
struct KnownFile {
    version: FileVersion,
    origin: SkillOrigin,
    head: Result<SkillHead, SkillFault>,
}

/// A file that may be a skill.
struct SkillFile {
    path: PathBuf,
    /// Name of the skill, unless it says another one.
    name: String,
}

impl SkillCache {
    /// Looks at the folder, and reads new and changed files.
    pub(super) fn refresh(&mut self, root: &Path) -> SkillSet {
        let folder = match ConfinedDir::open(root) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.known.clear();
                return SkillSet::default();
            }
            Err(_) => {
                let faulty = vec![FaultySkill { file: ".".to_owned(), fault: SkillFault::Unreadable }];
                return SkillSet { faulty, ..SkillSet::default() };
            }
        };
        let mut files = skill_files(&folder, Path::new(""));
        let learned = folder.subfolder(LEARNED).map(|learned| skill_files(&learned, Path::new(LEARNED)));
        files.extend(learned.unwrap_or_default());
        let left_out = files.len().saturating_sub(SKILLS);
        files.truncate(SKILLS);
        let mut before = std::mem::take(&mut self.known);
        let mut set = SetBuilder::default();
        for file in files {
            let known = read_changed(&folder, &file, before.remove(&file.path));
            match known {
                Ok(known) => {
                    set.add(&file.path, &known);
                    self.known.insert(file.path, known);
                }
                // Removed a moment ago, or a folder without the file.
                Err(FileProblem::Missing) => {}
                Err(problem) => set.add_fault(&file.path, SkillFault::of(&problem)),
            }
        }
        SkillSet { left_out, ..set.finish() }
    }
}

/// The known file, read again if it has changed.
fn read_changed(
    folder: &ConfinedDir,
    file: &SkillFile,
    before: Option<KnownFile>,
) -> Result<KnownFile, FileProblem> {
    let version = folder.version(&file.path)?;
    if let Some(known) = before.filter(|known| known.version == version) {
        return Ok(known);
    }
    // A link from the operator's place to a learned skill does not make it the operator's.
    let real = folder.real_path(&file.path)?;
    let origin = match real.components().next().is_some_and(|first| is_learned(first.as_os_str())) {
        true => SkillOrigin::Learned,
        false => SkillOrigin::Operator,
    };
    let (content, version) = folder.read_file(&file.path, u64::try_from(SKILL_BYTES).unwrap_or(u64::MAX))?;
    let head = match String::from_utf8(content) {
        Ok(text) => SkillHead::parse(&text, &file.name),
        Err(_) => Err(SkillFault::NotText),
    };
    Ok(KnownFile { version, origin, head })
}

/// Whether a folder is the one of learned skills. Case does not matter, as on some file systems.
fn is_learned(folder: &OsStr) -> bool {
    folder.eq_ignore_ascii_case(LEARNED)
}

/// The files of a folder that may be skills, in the order of their names.
fn skill_files(folder: &ConfinedDir, below: &Path) -> Vec<SkillFile> {
    let entries = folder.dir().entries().map(|entries| entries.flatten().take(FOLDER_ENTRIES).collect());
    let mut files: Vec<SkillFile> = entries
        .unwrap_or_else(|_| Vec::new())
        .into_iter()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
            let kind = entry.file_type().ok()?;
            if let Some(stem) = name.strip_suffix(".md") {
                let is_file = kind.is_file() || kind.is_symlink();
                return is_file.then(|| SkillFile { path: below.join(&name), name: stem.to_owned() });
            }
            let is_own_folder = kind.is_dir() && !(below.as_os_str().is_empty() && is_learned(name.as_ref()));
            let has_file = || folder.dir().symlink_metadata(Path::new(&name).join(SKILL_FILE)).is_ok();
            (is_own_folder && has_file())
                .then(|| SkillFile { path: below.join(&name).join(SKILL_FILE), name })
        })
        .collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Collects skills: each name once. Operators' files come first, so that a learned skill never takes their name.
#[derive(Default)]
struct SetBuilder {
    by_name: BTreeMap<String, Skill>,
    learned: Vec<Skill>,
    faulty: Vec<FaultySkill>,
}

impl SetBuilder {
    fn add(&mut self, path: &Path, known: &KnownFile) {
        let head = match &known.head {
            Ok(head) => head,
            Err(fault) => return self.add_fault(path, fault.clone()),
        };
        let is_operators = known.origin == SkillOrigin::Operator;
        let skill = Skill {
            name: head.name.clone(),
            description: head.description.clone(),
            origin: known.origin,
            variables: if is_operators { head.variables.clone() } else { Vec::new() },
            has_ignored_variables: !is_operators && !head.variables.is_empty(),
            is_approved: head.is_approved,
            file: path.to_owned(),
        };
        match known.origin {
            SkillOrigin::Operator => self.insert(skill),
            SkillOrigin::Learned => self.learned.push(skill),
        }
    }

    fn insert(&mut self, skill: Skill) {
        let key = skill.name.to_ascii_lowercase();
        match self.by_name.contains_key(&key) {
            true => {
                let (file, name) = (skill.file.clone(), skill.name);
                self.add_fault(&file, SkillFault::TakenName(name));
            }
            false => _ = self.by_name.insert(key, skill),
        }
    }

    fn add_fault(&mut self, path: &Path, fault: SkillFault) {
        self.faulty.push(FaultySkill { file: one_line(&path.to_string_lossy(), FILE_CHARS), fault });
    }

    fn finish(mut self) -> SkillSet {
        for skill in std::mem::take(&mut self.learned) {
            self.insert(skill);
        }
        SkillSet { skills: self.by_name.into_values().collect(), faulty: self.faulty, left_out: 0 }
    }
}
