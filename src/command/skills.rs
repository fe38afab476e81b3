//! `/skills`: lists the skills of agents, or shows one. Their folder is read after the commit.

use talaria_platform::BoxFuture;

use super::after_commit::{CommandAnswer, CommandResult, CommandTask};
use crate::agents::skills::{Skill, SkillOrigin, SkillReadError, SkillSet, SkillText};
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::util::{clip, code_block, code_span};

/// Characters of a skill that a room is shown. Nobody reads more in a chat.
const SHOWN: usize = 8_000;

/// Characters of a name that a person wrote.
const NAME: usize = 64;

/// Reads the folder of skills and answers with the list, or with the skill that was named.
pub(super) fn run(task: CommandTask) -> BoxFuture<'static, CommandResult> {
    Box::pin(async move {
        let name = task.row.behind.trim().to_owned();
        let answer: CommandAnswer = match task.skills {
            None => Box::new(|_, _| Ok(TextKey::SkillsNone.into())),
            Some(library) if name.is_empty() => {
                let set = library.current().await;
                Box::new(move |_, rules| Ok(list(&rules.words, &set)))
            }
            Some(library) => {
                let asked = name.clone();
                let read = tokio::task::spawn_blocking(move || library.read(&asked)).await;
                let shown = show(&name, read.unwrap_or(Err(SkillReadError::Unknown)));
                Box::new(move |_, _| Ok(shown.clone()))
            }
        };
        Ok(answer)
    })
}

fn list(words: &TextCatalog, set: &SkillSet) -> LocalizedText {
    let item = |skill: &Skill| {
        let text = match skill.origin {
            SkillOrigin::Operator => TextKey::SkillsItem,
            SkillOrigin::Learned => TextKey::SkillsLearned,
        };
        text.with("name", skill.name.as_str()).with("description", skill.description.as_str())
    };
    let mut lines: Vec<_> = set.skills.iter().map(item).collect();
    lines.extend(set.faulty.iter().map(|faulty| {
        let file = code_span(&faulty.file, usize::MAX);
        TextKey::SkillsFaulty.with("file", file).with("why", faulty.fault.words())
    }));
    if set.left_out > 0 {
        lines.push(TextKey::SkillsMore.with("count", set.left_out));
    }
    if lines.is_empty() {
        return TextKey::SkillsNone.into();
    }
    let lines: Vec<_> = lines.iter().map(|line| words.say(line)).collect();
    TextKey::Skills.with("list", lines.join("\n"))
}

fn show(name: &str, read: Result<SkillText, SkillReadError>) -> LocalizedText {
    let text = match read {
        Ok(text) => text,
        Err(SkillReadError::Unknown) => return TextKey::SkillUnknown.with("name", code_span(name, NAME)),
        Err(SkillReadError::Faulty(fault)) => {
            return TextKey::SkillFaulty.with("name", code_span(name, NAME)).with("why", fault.words());
        }
    };
    let shown = clip(&text.body, SHOWN);
    let more = if shown.len() < text.body.len() { "\n…" } else { "" };
    let skill = TextKey::Skill
        .with("name", text.skill.name)
        .with("description", text.skill.description)
        .with("text", code_block(&format!("{shown}{more}")));
    match text.skill.has_ignored_variables {
        true => TextKey::SkillWithoutVariables.with("skill", skill),
        false => skill,
    }
}
