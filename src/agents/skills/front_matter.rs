//! Reads the front matter of a skill. Pure.

use serde::Deserialize;

use super::SkillFault;
use crate::util::one_line;

/// Largest front matter in bytes. It is parsed whenever its file changes.
const HEAD_BYTES: usize = 8 * 1024;

/// Longest name, in characters. A name of this length still fits into a line.
const NAME_CHARS: usize = 64;

/// Characters of a description; the rest is cut. It is a part of every request.
const DESCRIPTION_CHARS: usize = 500;

/// Variables of one skill.
const VARIABLES: usize = 32;

/// Characters of a variable's name.
const VARIABLE_CHARS: usize = 128;

/// The front matter of a skill, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SkillHead {
    pub name: String,
    pub description: String,
    pub variables: Vec<String>,
    /// A person approved the skill as it is.
    pub is_approved: bool,
}

/// Front matter as written. Other keys are allowed: skills are shared between programs.
#[derive(Deserialize)]
struct WrittenHead {
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    required_environment_variables: Option<Vec<WrittenVariable>>,
    /// Any value but `true` means no: skills of other programs may use the key for something else.
    #[serde(default)]
    approved: serde_yaml::Value,
}

/// A variable: its name, or an object with its name and hints for people.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenVariable {
    Name(String),
    Described { name: String },
}

impl SkillHead {
    /// Reads the head of a skill's text; `file_name` is its name if it does not say another one.
    pub(super) fn parse(text: &str, file_name: &str) -> Result<Self, SkillFault> {
        let (head, _) = split(text).ok_or(SkillFault::NoFrontMatter)?;
        if head.len() > HEAD_BYTES {
            return Err(SkillFault::BadFrontMatter(None));
        }
        let written: WrittenHead = serde_yaml::from_str(head).map_err(|error| {
            // The line before the front matter counts too.
            SkillFault::BadFrontMatter(error.location().map(|location| location.line() + 1))
        })?;
        let name = written.name.unwrap_or_else(|| file_name.to_owned());
        if !is_skill_name(&name) {
            return Err(SkillFault::BadName);
        }
        let description = checked_description(written.description.as_deref())?;
        let variables: Vec<_> = written
            .required_environment_variables
            .unwrap_or_default()
            .into_iter()
            .map(|variable| match variable {
                WrittenVariable::Name(name) | WrittenVariable::Described { name } => name,
            })
            .collect();
        if variables.len() > VARIABLES || !variables.iter().all(|name| is_variable_name(name)) {
            return Err(SkillFault::BadVariables);
        }
        Ok(Self {
            name,
            description,
            variables,
            is_approved: written.approved == serde_yaml::Value::Bool(true),
        })
    }
}

/// The Markdown after the front matter.
pub(super) fn body_of(text: &str) -> Result<&str, SkillFault> {
    split(text).map(|(_, body)| body).ok_or(SkillFault::NoFrontMatter)
}

/// Whether a skill may be called that: a word that is safe in a path and in a command.
pub(super) fn is_skill_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.len() <= NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(fits)
}

/// A description as one line.
pub(super) fn checked_description(written: Option<&str>) -> Result<String, SkillFault> {
    let line = one_line(written.unwrap_or_default(), DESCRIPTION_CHARS);
    if line.is_empty() { Err(SkillFault::NoDescription) } else { Ok(line) }
}

fn is_variable_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= VARIABLE_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(fits)
}

/// Front matter and body: the text between a first line `---` and the next one, and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((rest.get(..at)?, rest.get(at + line.len()..)?));
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SkillHead, SkillFault> {
        SkillHead::parse(text, "file-name")
    }

    #[test]
    fn a_head_has_a_name_a_description_and_variables() {
        let text = "---\nname: deploy\ndescription: |\n  How to\n  deploy\nlicense: MIT\n\
                    required_environment_variables:\n  - API_KEY\n  - name: HOST\n    prompt: Which?\n---\n# Body\n---\nmore\n";
        let head = parse(text).unwrap();
        assert_eq!((head.name.as_str(), head.description.as_str()), ("deploy", "How to deploy"));
        assert_eq!(head.variables, ["API_KEY", "HOST"]);
        assert_eq!(body_of(text).unwrap(), "# Body\n---\nmore\n");
        assert_eq!(parse("---\r\ndescription: x\r\n---\r\n").unwrap().name, "file-name");
        for (line, is_approved) in [("approved: true", true), ("approved: [a]", false), ("x: y", false)] {
            let head = parse(&format!("---\ndescription: x\n{line}\n---\n")).unwrap();
            assert_eq!(head.is_approved, is_approved, "{line}");
        }
    }

    #[test]
    fn faults_have_their_reasons() {
        for (text, fault) in [
            ("", SkillFault::NoFrontMatter),
            ("# Title\n", SkillFault::NoFrontMatter),
            ("---\nname: x\n", SkillFault::NoFrontMatter),
            ("---\nname: x\n---\n", SkillFault::NoDescription),
            ("---\nname: x\ndescription: ' '\n---\n", SkillFault::NoDescription),
            ("---\nname: ../x\ndescription: d\n---\n", SkillFault::BadName),
            ("---\nname: -x\ndescription: d\n---\n", SkillFault::BadName),
            ("---\ndescription: d\nrequired_environment_variables: ['A B']\n---\n", SkillFault::BadVariables),
        ] {
            assert_eq!(parse(text), Err(fault), "{text}");
        }
        for text in ["---\nname: [\n---\n", "---\n- a\n---\n", "---\ndescription: {a: b}\n---\n"] {
            assert!(matches!(parse(text), Err(SkillFault::BadFrontMatter(_))), "{text}");
        }
        let long = format!("---\ndescription: d\nx: {}\n---\n", "y".repeat(HEAD_BYTES));
        assert_eq!(parse(&long), Err(SkillFault::BadFrontMatter(None)));
    }

    #[test]
    fn a_bomb_of_aliases_is_a_fault() {
        let mut bomb = "---\ndescription: d\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let alias = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
        }
        bomb.push_str("---\nbody\n");
        // It may be refused or skipped; it must not take time or memory.
        let _ = parse(&bomb);
    }
}
