//! `skills`: lists skills, reads one, and writes one that the agent learned.
//!
//! A skill is written only if a person approves its whole text, or by a review, which may write without a question
//! because its skills get no variables.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use super::approval::approve;
use super::arguments::{optional_switch, subject_line};
use super::blocking::{CancelFlag, run_blocking};
use super::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::agent::{AnswerForm, Ask};
use crate::agents::confined_dir::WrittenFile;
use crate::agents::skills::{
    DraftConsent, SkillDraft, SkillLibrary, SkillOrigin, SkillReadError, SkillSet, SkillText, SkillWriteError,
};
use crate::ids::SessionId;
use crate::util::{code_span, one_line};

/// Skills that sessions have read, over all sessions of the agent. The oldest is forgotten; then its session reads the
/// skill in full again.
const SEEN: usize = 512;

/// Characters of a name in a sentence.
const NAME_CHARS: usize = 80;

/// The tool `skills` of one agent.
pub struct SkillsTool {
    library: Arc<SkillLibrary>,
    writing: SkillWriting,
    /// Skills that sessions have read and remember, the latest last.
    seen: Mutex<VecDeque<SeenSkill>>,
}

/// The condition under which the tool writes skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillWriting {
    /// A person approves the whole text.
    Ask,
    /// The background review of a conversation writes without a question: nobody is there to answer.
    Review,
}

/// A skill that a session has read.
struct SeenSkill {
    session: SessionId,
    name: String,
    digest: String,
}

impl SkillsTool {
    /// A tool over the skills of this library.
    pub fn new(library: Arc<SkillLibrary>, writing: SkillWriting) -> Self {
        Self { library, writing, seen: Mutex::default() }
    }

    async fn list(&self, call: &ToolCall<'_>) -> Result<String, ToolFailure> {
        let library = self.library.clone();
        run_blocking(call.stop, move |_: &CancelFlag| Ok(describe(&library.refresh()))).await
    }

    async fn view(&self, call: &ToolCall<'_>) -> Result<String, ToolFailure> {
        let name = required_text(call.arguments, "name")?.to_owned();
        let is_again = optional_switch(call.arguments, "again")?;
        let library = self.library.clone();
        let read = run_blocking(call.stop, move |_: &CancelFlag| {
            library.read(&name).map_err(|error| ToolFailure::failed(read_failure(&name, "list", &error)))
        });
        let text = read.await?;
        let is_known = self.note_seen(&call.turn.session, &text);
        let name = &text.skill.name;
        if is_known && !is_again {
            return Ok(format!(
                "The skill `{name}` is unchanged since you read it above. If you no longer see it, view it with \
                 `again: true`."
            ));
        }
        Ok(whole_text(&text))
    }

    async fn write(&self, call: &ToolCall<'_>) -> Result<String, ToolFailure> {
        let text = |name| required_text(call.arguments, name);
        let consent = match self.writing {
            SkillWriting::Ask => DraftConsent::Person,
            SkillWriting::Review => DraftConsent::Nobody,
        };
        let draft = SkillDraft::new(consent, text("name")?, text("description")?, text("body")?);
        let draft = draft.map_err(|error| ToolFailure::failed(error.to_string()))?;
        match self.writing {
            SkillWriting::Ask => self.ask(call, &draft).await?,
            SkillWriting::Review => {}
        }
        let library = self.library.clone();
        run_blocking(call.stop, move |cancel: &CancelFlag| match library.write(&draft, &|| cancel.is_set()) {
            Ok(WrittenFile::Created) => Ok(format!("The skill `{}` is written.", draft.name())),
            Ok(WrittenFile::Replaced) => Ok(format!("The skill `{}` is replaced.", draft.name())),
            Err(SkillWriteError::Cancelled) => Err(ToolFailure::Stopped),
            Err(error) => Err(ToolFailure::failed(error.to_string())),
        })
        .await
    }

    /// Asks a person whether the skill may be written, and shows all of it. Nobody is asked about a skill that cannot be
    /// written anyway.
    async fn ask(&self, call: &ToolCall<'_>, draft: &SkillDraft) -> Result<(), ToolFailure> {
        let (library, checked) = (self.library.clone(), draft.clone());
        let check = run_blocking(call.stop, move |_: &CancelFlag| {
            library.check_write(&checked).map_err(|error| ToolFailure::failed(error.to_string()))
        });
        let verb = match check.await? {
            WrittenFile::Created => "write",
            WrittenFile::Replaced => "replace",
        };
        let ask = Ask {
            title: format!("{verb} the skill {}, which agents follow in later conversations", draft.name())
                .into(),
            detail: draft.text().to_owned(),
            cwd: None,
            is_elsewhere: false,
            reason: None,
            form: AnswerForm::default(),
            gap: None,
        };
        approve(call, ask, "Writing the skill").await
    }

    /// Whether the session has read this very text before. From now on it has.
    fn note_seen(&self, session: &SessionId, text: &SkillText) -> bool {
        let mut seen = self.seen.lock();
        let is_it = |seen: &SeenSkill| seen.session == *session && seen.name == text.skill.name;
        let before = seen.iter().position(is_it).and_then(|at| seen.remove(at));
        seen.push_back(SeenSkill {
            session: session.clone(),
            name: text.skill.name.clone(),
            digest: text.digest.clone(),
        });
        while seen.len() > SEEN {
            seen.pop_front();
        }
        before.is_some_and(|before| before.digest == text.digest)
    }
}

impl AgentTool for SkillsTool {
    fn spec(&self) -> ToolSpec {
        let writing = match self.writing {
            SkillWriting::Ask => "a person is asked first",
            SkillWriting::Review => "it is stored at once",
        };
        ToolSpec {
            name: "skills".to_owned(),
            description: format!(
                "Skills are instructions for certain tasks. `list` shows all of them, `view` reads one by its name, \
                 `write` stores a new one, or replaces one that you wrote, for later conversations ({writing})."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "action": { "type": "string", "enum": ["list", "view", "write"] },
                    "name": { "type": "string", "description": "Name of the skill: small letters, digits and `-`" },
                    "again": { "type": "boolean", "description": "For `view`: the whole text, although you have read it" },
                    "description": { "type": "string", "description": "For `write`: one line that says when to use it" },
                    "body": { "type": "string", "description": "For `write`: the instructions, in Markdown" },
                },
                "required": ["action"],
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        let line = format!("{} {}", subject_line(arguments, "action"), subject_line(arguments, "name"));
        one_line(&line, NAME_CHARS * 2)
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move {
            let result = match required_text(call.arguments, "action")? {
                "list" => self.list(&call).await,
                "view" => self.view(&call).await,
                "write" => self.write(&call).await,
                _ => Err(ToolFailure::failed("`action` must be `list`, `view` or `write`")),
            };
            result.map(cap_result)
        })
    }
}

/// A skill for the model.
pub(crate) fn whole_text(text: &SkillText) -> String {
    let SkillText { skill, body, .. } = text;
    let mut result = format!("Skill `{}`: {}\n\n{body}\n", skill.name, skill.description);
    if skill.has_ignored_variables {
        result.push_str(
            "\n[It asks for variables, which it does not get: only the operator's skills may name them.]\n",
        );
    }
    result
}

/// The list for the model.
pub(crate) fn describe(set: &SkillSet) -> String {
    let mut list = String::new();
    for skill in &set.skills {
        let learned = match skill.origin {
            SkillOrigin::Operator => "",
            SkillOrigin::Learned => " (learned)",
        };
        let _ = writeln!(list, "- {}{learned}: {}", skill.name, skill.description);
    }
    for faulty in &set.faulty {
        let _ = writeln!(
            list,
            "- the file {} cannot be used: {}",
            code_span(&faulty.file, NAME_CHARS),
            faulty.fault
        );
    }
    if set.left_out > 0 {
        let _ = writeln!(list, "- {} more files are beyond the limit", set.left_out);
    }
    if list.is_empty() { "There are no skills.".to_owned() } else { list }
}

/// The failure to read a skill, for the model. `list` is its way to see all of them.
pub(crate) fn read_failure(name: &str, list: &str, error: &SkillReadError) -> String {
    let name = code_span(name, NAME_CHARS);
    match error {
        SkillReadError::Unknown => format!("there is no skill {name}; `{list}` shows all of them"),
        SkillReadError::Faulty(fault) => format!("the skill {name} cannot be read: {fault}"),
    }
}

#[cfg(test)]
mod tests;
