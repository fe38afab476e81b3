//! Skills: instructions for certain tasks, as Markdown files of one folder.
//!
//! A skill is `<name>.md` or `<name>/SKILL.md` with YAML front matter. The model is told names and descriptions, and
//! reads a skill when it needs it. The folder is looked at with each use, so a change counts at once; only files that
//! changed are read again. A faulty file is listed with its reason and spoils nothing else.
//!
//! Skills in the folder `learned` were written by an agent or by a review, all others by the operator. Only the operator's
//! may name variables of our environment.

mod fault;
mod front_matter;
mod scan;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::fault::{FaultySkill, SkillFault};
use self::front_matter::{SkillHead, body_of, checked_description, is_skill_name};
use self::scan::SkillCache;
use super::confined_dir::{ConfinedDir, FileProblem, ReplaceCondition, WrittenFile};
use crate::util::hash;

/// Largest file of a skill in bytes. It always fits into one result of a tool.
pub const SKILL_BYTES: usize = 32 * 1024;

/// Skills of one folder. A model cannot choose among more.
const SKILLS: usize = 200;

/// Skills that agents and reviews may have written. More are refused until the operator removes some.
const LEARNED_SKILLS: usize = 100;

/// Bytes of the list in the system message, which every request contains.
const PROMPT_BYTES: usize = 12 * 1024;

/// Folder below the skills folder for those that agents and reviews wrote.
pub const LEARNED: &str = "learned";

/// The folder of skills. One for all agents and surfaces, behind an `Arc`.
pub struct SkillLibrary {
    root: PathBuf,
    /// Held while the folder is read or written, by blocking threads only.
    cache: Mutex<SkillCache>,
}

/// The skills of one moment, by name.
#[derive(Clone, Debug, Default)]
pub struct SkillSet {
    /// Skills that can be used, in the order of their names.
    pub skills: Vec<Skill>,
    /// Files that cannot be used.
    pub faulty: Vec<FaultySkill>,
    /// Number of files beyond the limit.
    pub left_out: usize,
}

/// A skill, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Unique, without regard to case.
    pub name: String,
    /// One line that says when to use it.
    pub description: String,
    /// The author.
    pub origin: SkillOrigin,
    /// Variables of our environment that commands of the skill need. Always empty for a learned skill.
    pub variables: Vec<String>,
    /// Whether it is a learned skill that names variables, which it does not get.
    pub has_ignored_variables: bool,
    /// Whether a person approved the text of a learned skill. A review may not replace it.
    pub is_approved: bool,
    /// Path below the folder.
    file: PathBuf,
}

/// The author of a skill, known by where its file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillOrigin {
    /// The operator.
    Operator,
    /// An agent, or the review of a conversation.
    Learned,
}

impl SkillOrigin {
    /// Name for models and over HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Learned => "learned",
        }
    }
}

/// A skill with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillText {
    /// The skill.
    pub skill: Skill,
    /// The Markdown after the front matter.
    pub body: String,
    /// Changes with every change of the file.
    pub digest: String,
}

/// The reason why a skill cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillReadError {
    /// No skill has this name.
    Unknown,
    /// Its file cannot be used.
    Faulty(SkillFault),
}

/// A skill that an agent or a review wants to write. Checked, and without variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDraft {
    name: String,
    text: String,
    consent: DraftConsent,
}

/// Whether a person sees a draft before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftConsent {
    /// A person approves the whole text, which says so.
    Person,
    /// Nobody sees it: it comes from a review.
    Nobody,
}

/// The reason why a draft cannot be stored, as a sentence for the model.
#[derive(Debug, thiserror::Error)]
pub enum SkillWriteError {
    /// The draft itself is wrong.
    #[error("the skill cannot be written: {0}")]
    Draft(SkillFault),
    /// The operator has a skill of this name.
    #[error("the operator has a skill of this name, which cannot be replaced; choose another name")]
    OperatorHasIt,
    /// A person approved the skill of this name, and nobody sees the draft.
    #[error(
        "a person approved the skill of this name, so a review may not replace it; choose another name, or write none"
    )]
    PersonApprovedIt,
    /// The limit of learned skills is reached.
    #[error("there are {LEARNED_SKILLS} learned skills already; replace one of them, or write no skill")]
    TooMany,
    /// The task was stopped before anything was written.
    #[error("nothing was written, because the task was stopped")]
    Cancelled,
    /// The folder cannot be written.
    #[error("the skill's file {0}")]
    File(FileProblem),
}

impl SkillLibrary {
    /// A library over a folder, which need not exist. Reads nothing yet.
    pub fn new(root: PathBuf) -> Arc<Self> {
        Arc::new(Self { root, cache: Mutex::default() })
    }

    /// The skills of this moment. Blocks: looks at the folder, and reads the files that changed.
    pub fn refresh(&self) -> SkillSet {
        self.cache.lock().refresh(&self.root)
    }

    /// The skills of this moment, read on a thread that may block.
    pub async fn current(self: &Arc<Self>) -> SkillSet {
        let library = self.clone();
        tokio::task::spawn_blocking(move || library.refresh()).await.unwrap_or_default()
    }

    /// The list of skills for the system message; `None` without skills. Blocks, see [`current`](Self::current).
    pub fn prompt_section(&self) -> Option<String> {
        self.refresh().prompt_section()
    }

    /// Variables that the operator's skills ask for, each once. Blocks, see [`current`](Self::current).
    pub fn required_variables(&self) -> Vec<String> {
        self.refresh().required_variables()
    }

    /// Reads a skill by its name. Blocks.
    pub fn read(&self, name: &str) -> Result<SkillText, SkillReadError> {
        let skill = self.refresh().find(name).cloned().ok_or(SkillReadError::Unknown)?;
        let read = || {
            let limit = u64::try_from(SKILL_BYTES).unwrap_or(u64::MAX);
            let folder = ConfinedDir::open(&self.root)?;
            Ok(folder.read_file(&skill.file, limit)?.0)
        };
        let content = read().map_err(|problem| SkillReadError::Faulty(SkillFault::of(&problem)))?;
        let digest = hash([String::from_utf8_lossy(&content).as_ref()]);
        let text = String::from_utf8(content).map_err(|_| SkillReadError::Faulty(SkillFault::NotText))?;
        let body = body_of(&text).map_err(SkillReadError::Faulty)?.trim().to_owned();
        Ok(SkillText { skill, body, digest })
    }

    /// Finds out whether a draft may be stored, and whether it would replace a skill. Blocks. Called before a person is
    /// asked.
    pub fn check_write(&self, draft: &SkillDraft) -> Result<WrittenFile, SkillWriteError> {
        Ok(match draft.replaces(&self.refresh())? {
            Some(_) => WrittenFile::Replaced,
            None => WrittenFile::Created,
        })
    }

    /// Stores a learned skill, in place of an earlier one of its name. Blocks. `is_cancelled` is asked just before the
    /// file changes.
    pub fn write(
        &self,
        draft: &SkillDraft,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<WrittenFile, SkillWriteError> {
        let mut cache = self.cache.lock();
        let known = cache.refresh(&self.root);
        let earlier = draft.replaces(&known)?;
        let write = || {
            std::fs::create_dir_all(&self.root)?;
            let folder = ConfinedDir::open(&self.root)?;
            folder.make_subfolder(LEARNED)?;
            let path = earlier.and_then(|skill| skill.file.strip_prefix(LEARNED).ok().map(PathBuf::from));
            let path = path.unwrap_or_else(|| PathBuf::from(format!("{}.md", draft.name)));
            // Confined to the folder of learned skills: a link in it must not lead to the operator's files.
            let folder = folder.subfolder(LEARNED)?;
            folder.replace_file(&path, draft.text.as_bytes(), ReplaceCondition::Always, is_cancelled)
        };
        write().map_err(|problem| match problem {
            FileProblem::Cancelled => SkillWriteError::Cancelled,
            problem => SkillWriteError::File(problem),
        })
    }
}

impl SkillSet {
    /// The skill of this name; case does not matter.
    pub fn find(&self, name: &str) -> Option<&Skill> {
        let name = name.trim();
        self.skills.iter().find(|skill| skill.name.eq_ignore_ascii_case(name))
    }

    /// The list of skills for the system message; `None` without skills.
    pub fn prompt_section(&self) -> Option<String> {
        self.section_for("the tool `skills`, action `view`", "action `list`")
    }

    /// The list of skills for a model that reads one with `view` and lists them with `list`; `None` without skills.
    pub fn section_for(&self, view: &str, list: &str) -> Option<String> {
        if self.skills.is_empty() {
            return None;
        }
        let mut section = format!(
            "Skills are instructions for certain tasks. Before you begin a task that one of them is about, read it \
             with {view}. Skills:"
        );
        for (at, skill) in self.skills.iter().enumerate() {
            if section.len() + skill.name.len() + skill.description.len() > PROMPT_BYTES {
                let more = self.skills.len() - at;
                let _ = write!(section, "\n- and {more} more; {list} shows them");
                break;
            }
            let _ = write!(section, "\n- {}: {}", skill.name, skill.description);
        }
        Some(section)
    }

    /// Variables that the operator's skills ask for, each once.
    pub fn required_variables(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.skills.iter().flat_map(|skill| skill.variables.iter().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl SkillDraft {
    /// Checks a skill that a model wrote.
    pub fn new(
        consent: DraftConsent,
        name: &str,
        description: &str,
        body: &str,
    ) -> Result<Self, SkillWriteError> {
        let fault = |fault| Err(SkillWriteError::Draft(fault));
        let name = name.trim().to_ascii_lowercase();
        if !is_skill_name(&name) || name == LEARNED {
            return fault(SkillFault::BadName);
        }
        let description = match checked_description(Some(description)) {
            Ok(description) => description,
            Err(wrong) => return fault(wrong),
        };
        if body.trim().is_empty() {
            return fault(SkillFault::NoBody);
        }
        // A JSON string is a YAML string too, and cannot end the front matter early.
        let description = serde_json::Value::String(description).to_string();
        let approved = match consent {
            DraftConsent::Person => "approved: true\n",
            DraftConsent::Nobody => "",
        };
        let text =
            format!("---\nname: {name}\ndescription: {description}\n{approved}---\n\n{}\n", body.trim());
        if text.len() > SKILL_BYTES {
            return fault(SkillFault::TooLarge);
        }
        match SkillHead::parse(&text, &name) {
            Ok(head) if head.name == name && head.variables.is_empty() => Ok(Self { name, text, consent }),
            Ok(_) => fault(SkillFault::BadName),
            Err(wrong) => fault(wrong),
        }
    }

    /// The learned skill that the draft takes the place of, if there is one.
    fn replaces<'a>(&self, known: &'a SkillSet) -> Result<Option<&'a Skill>, SkillWriteError> {
        let is_learned = |skill: &&Skill| skill.origin == SkillOrigin::Learned;
        match known.find(&self.name) {
            Some(earlier) if !is_learned(&earlier) => Err(SkillWriteError::OperatorHasIt),
            Some(earlier) if earlier.is_approved && self.consent == DraftConsent::Nobody => {
                Err(SkillWriteError::PersonApprovedIt)
            }
            Some(earlier) => Ok(Some(earlier)),
            None if known.skills.iter().filter(is_learned).count() >= LEARNED_SKILLS => {
                Err(SkillWriteError::TooMany)
            }
            None => Ok(None),
        }
    }

    /// Name of the skill.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole file.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests;
