//! The reasons why a file is no skill.

use std::fmt;

use super::SKILL_BYTES;
use crate::agents::confined_dir::FileProblem;
use crate::i18n::{LocalizedText, TextKey};

/// A file that looks like a skill and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultySkill {
    /// Path below the folder of skills, in one line.
    pub file: String,
    /// The reason.
    pub fault: SkillFault,
}

/// The reason why a file is no skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillFault {
    /// It is larger than [`SKILL_BYTES`].
    TooLarge,
    /// It is not UTF-8.
    NotText,
    /// It does not begin with front matter.
    NoFrontMatter,
    /// Its front matter is no YAML of the right form; with the line in the file, if that is known.
    BadFrontMatter(Option<usize>),
    /// Its name has other characters than letters, digits, `-` and `_`, or is too long.
    BadName,
    /// It has no description.
    NoDescription,
    /// It has no text after the front matter.
    NoBody,
    /// It names a variable that cannot exist, or too many.
    BadVariables,
    /// Another skill has this name.
    TakenName(String),
    /// A link out of the folder of skills.
    Outside,
    /// It cannot be read.
    Unreadable,
}

impl SkillFault {
    /// The fault of a file that cannot be opened or read.
    pub(super) fn of(problem: &FileProblem) -> Self {
        match problem {
            FileProblem::Outside => Self::Outside,
            FileProblem::TooLarge(_) => Self::TooLarge,
            FileProblem::Missing
            | FileProblem::LinkLoop
            | FileProblem::Dangling
            | FileProblem::Folder
            | FileProblem::NotFolder
            | FileProblem::Special
            | FileProblem::ReadOnly
            | FileProblem::NameTooLong
            | FileProblem::Changed
            | FileProblem::Cancelled
            | FileProblem::Io(_) => Self::Unreadable,
        }
    }

    /// The reason in the words of a room, a part of a sentence.
    pub fn words(&self) -> LocalizedText {
        match self {
            Self::TooLarge => TextKey::SkillTooLarge.with("kib", SKILL_BYTES / 1024),
            Self::NotText => TextKey::SkillNotText.into(),
            Self::NoFrontMatter => TextKey::SkillNoFrontMatter.into(),
            Self::BadFrontMatter(Some(line)) => TextKey::SkillBadFrontMatterLine.with("line", *line),
            Self::BadFrontMatter(None) => TextKey::SkillBadFrontMatter.into(),
            Self::BadName => TextKey::SkillBadName.into(),
            Self::NoDescription => TextKey::SkillNoDescription.into(),
            Self::NoBody => TextKey::SkillNoBody.into(),
            Self::BadVariables => TextKey::SkillBadVariables.into(),
            Self::TakenName(name) => TextKey::SkillTakenName.with("name", name.as_str()),
            Self::Outside => TextKey::SkillOutside.into(),
            Self::Unreadable => TextKey::SkillUnreadable.into(),
        }
    }
}

/// In English, for models and programs.
impl fmt::Display for SkillFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(f)
    }
}
