//! The messages that the upstream keeps of a session, and the answer to a prompt in them. Pure.
//!
//! hermes-agent asks its model to go on by messages of its own, which it keeps as if a person had said them. They and what
//! follows them are a part of the answer.
//!
//! Only `finish_reason: stop` proves that an answer is complete. hermes-agent interrupts its agent when the reader of the
//! stream leaves, and stores the text until then without any `finish_reason`.

use serde::Deserialize;
use serde_json::Value;

use super::process_start::UtcMoment;
use crate::agent::{EqualTurns, RecoveredAnswer};

/// How hermes-agent begins its own messages in the role of a person.
const OWN: &str = "[System: ";

/// Words of such a message behind a text that was cut: the next text goes on in the middle of it.
const GOES_ON: &str = "Continue exactly where you left off";

/// Result of one look into the upstream's session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// The answer, or a part of it.
    Answer(RecoveredAnswer),
    /// The session's messages were read, and the turn has not come to its end there. With the time at which the question
    /// was stored, if the upstream tells it.
    Unfinished { asked_at: Option<UtcMoment> },
    /// The turn has not come to its end there, and the upstream process started after the question was stored, so it
    /// never will.
    Abandoned,
    /// The session's messages could not be read now.
    NotYet,
    /// Nothing that could be told from somebody else's answer.
    Never,
}

/// Messages of a session, as the upstream returns them.
#[derive(Deserialize)]
pub(super) struct UpstreamTranscript {
    data: Vec<UpstreamMessage>,
}

/// One message of an upstream's session. A field of another type than expected counts as absent.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UpstreamMessage {
    role: Value,
    content: Value,
    tool_calls: Value,
    finish_reason: Value,
    timestamp: Value,
}

/// The answer to the last question of a session.
pub(super) struct KeptAnswer {
    /// The texts of its messages, in order. There are several if tool calls are between them.
    texts: Vec<String>,
    /// How its last message ended.
    pub end: AnswerEnd,
}

/// How the last message of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    /// The model had said all.
    Whole,
    /// A length limit has cut it.
    Cut,
    /// Nothing proves that the agent came to an end.
    Unproven,
    /// It is not known whether this is the answer to our question.
    Doubtful,
}

impl KeptAnswer {
    /// The answer, put together from its messages. `None` if no text of it is there.
    pub fn text(&self) -> Option<String> {
        (!self.texts.is_empty()).then(|| self.texts.join("\n\n"))
    }

    /// The whole answer, if its end is this output of a run. A run that ended without a text has none.
    pub fn whole(&self, output: &str) -> Option<String> {
        let (output, whole) = (output.trim(), self.text()?);
        let (last, before) = self.texts.split_last()?;
        if output.is_empty() || output == last || output == whole {
            return Some(whole);
        }
        // hermes-agent may put notes below the last message that its session does not have.
        let has_notes = self.end == AnswerEnd::Whole && output.starts_with(last.as_str());
        has_notes.then(|| [before, &[output.to_owned()]].concat().join("\n\n"))
    }
}

impl UpstreamTranscript {
    /// The answer to the last question. `None` if nobody has asked anything.
    pub fn last_answer(&self, is_prompt: impl Fn(&str) -> bool) -> Option<KeptAnswer> {
        let is_prompt = |said: &UpstreamMessage| said.text().is_some_and(&is_prompt);
        let question = last_question(&self.data, is_prompt)?;
        let is_ours = self.data.get(question).is_some_and(is_prompt);
        let answer = self.data.get(question + 1..).unwrap_or_default();
        let last = answer.iter().rfind(|said| said.role == "assistant");
        let end = match last.and_then(|last| last.finish_reason.as_str()) {
            _ if !is_ours => AnswerEnd::Doubtful,
            Some("stop") => AnswerEnd::Whole,
            Some("length") => AnswerEnd::Cut,
            Some(_) | None => AnswerEnd::Unproven,
        };
        Some(KeptAnswer { texts: texts(answer), end })
    }

    /// Finds the answer to a prompt that earlier turns had too.
    pub fn find(&self, prompt: &str, before: EqualTurns) -> SearchResult {
        let said = &self.data;
        let asks = |said: &UpstreamMessage| said.role == "user" && said.text() == Some(prompt);
        match said.iter().filter(|said| asks(said)).count() {
            times if times == before.answered => return SearchResult::Unfinished { asked_at: None },
            // With fewer, the last one may be that of a turn whose end is not known.
            times if times != before.answered + before.unclear + 1 => return SearchResult::Never,
            _ => {}
        }
        let Some(at) = last_question(said, asks) else { return SearchResult::Never };
        let Some(question) = said.get(at).filter(|said| asks(said)) else { return SearchResult::Never };
        let asked_at = question.timestamp.as_f64().and_then(UtcMoment::from_unix);
        let answer = said.get(at + 1..).unwrap_or_default();
        let Some(end) = answer.last() else { return SearchResult::Unfinished { asked_at } };
        let whole = || texts(answer).join("\n\n");
        match (end.text(), end.finish_reason.as_str()) {
            // The agent works with its tools, or its model is asked to go on.
            _ if end.role != "assistant" || end.calls_tools() => SearchResult::Unfinished { asked_at },
            (Some(_), Some("stop")) => SearchResult::Answer(RecoveredAnswer::Complete(whole())),
            (Some(_), None | Some(_)) => SearchResult::Answer(RecoveredAnswer::Partial(whole())),
            (None, None) => SearchResult::Unfinished { asked_at },
            // The agent ended without a text.
            (None, Some(_)) => SearchResult::Never,
        }
    }
}

/// Position of the last message that a person has said.
fn last_question(said: &[UpstreamMessage], is_prompt: impl Fn(&UpstreamMessage) -> bool) -> Option<usize> {
    said.iter().rposition(|said| said.role == "user" && (is_prompt(said) || !said.is_of_the_agent()))
}

/// The texts of an answer. A text that goes on where another one was cut is a part of it.
fn texts(answer: &[UpstreamMessage]) -> Vec<String> {
    let (mut texts, mut goes_on) = (Vec::<String>::new(), false);
    for said in answer {
        if said.role == "user" {
            goes_on = said.text().is_some_and(|text| text.contains(GOES_ON));
        }
        let Some(text) =
            said.content.as_str().filter(|text| said.role == "assistant" && !text.trim().is_empty())
        else {
            continue;
        };
        match texts.last_mut().filter(|_| std::mem::take(&mut goes_on)) {
            Some(cut) => cut.push_str(text),
            None => texts.push(text.to_owned()),
        }
    }
    texts.iter().map(|text| text.trim().to_owned()).collect()
}

impl UpstreamMessage {
    fn text(&self) -> Option<&str> {
        self.content.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    /// Whether the agent itself has said it in the role of a person.
    fn is_of_the_agent(&self) -> bool {
        self.text().is_some_and(|text| text.starts_with(OWN))
    }

    fn calls_tools(&self) -> bool {
        match &self.tool_calls {
            Value::Null => false,
            Value::Array(calls) => !calls.is_empty(),
            Value::String(calls) => !matches!(calls.trim(), "" | "[]" | "null"),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
