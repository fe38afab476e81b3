//! Asks: a question of an agent that a person must answer.
//!
//! Most asks are approvals: may the agent do this? Others offer options, or take a text. Everything in an ask is the
//! agent's word: people are shown all of it, and our own rules never trust a label or a kind to allow less than an
//! approval does.

use serde::{Deserialize, Serialize};

use crate::access::GrantScope;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::util::code_span;

/// Longest text that answers an ask, in characters. Enough for a long letter; it is kept in the store and in the
/// memory of the turn.
pub const ANSWER_CHARS: usize = 4_000;

/// Options of one ask. Nobody reads a longer list before they answer.
const OPTIONS: usize = 32;

/// Characters of a label. It is the name of an answer; a longer explanation belongs into the detail.
const LABEL: usize = 200;

/// Bytes of an option's id.
const OPTION_ID: usize = 128;

/// Id and label of the option that allows an action once, where it cannot be allowed for longer.
const ONCE: &str = "once";

/// Id and label of the option beside it.
const DENY: &str = "deny";

/// A question of an agent for the people of the turn's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// A few words for people: the agent's own, or ours in the language of the room.
    pub title: LocalizedText,
    /// The exact action, such as the whole command, or the whole question. An ask that cannot be shown in full is
    /// denied.
    pub detail: String,
    /// Working directory of the action.
    pub cwd: Option<String>,
    /// Whether that may be another folder than the one in which the session works, and the detail does not name it. The list
    /// of an app was written for the session's own folder, and permits nothing elsewhere.
    pub is_elsewhere: bool,
    /// The agent's reason for the action. It is no part of the action: it may be shown in part, and an approval holds for
    /// the same action with another reason too.
    pub reason: Option<String>,
    /// The answers that fit. The default makes the ask an approval.
    pub form: AnswerForm,
    /// What the detail does not tell, if it is not the whole action, in words that a room shows as they are: a text of ours,
    /// or another server's words as code. Neither a policy nor an earlier approval decides about such an ask.
    pub gap: Option<LocalizedText>,
}

/// The answers that fit an ask. Without options and without text it is an approval: once, for the session, always.
///
/// An agent with several questions at once makes one ask of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerForm {
    /// Options in the order of the agent; a person chooses one of them.
    pub options: Vec<AskOption>,
    /// Whether a person may answer in their own words.
    pub takes_text: bool,
}

/// One offered answer. The serialized form is stored, and is a part of events over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskOption {
    /// The agent's name for it, returned when it is chosen.
    pub id: String,
    /// Words for people.
    pub label: String,
    /// The agent's word for what choosing it does.
    #[serde(default)]
    pub kind: OptionKind,
}

/// The effect of an option, in the agent's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    /// Neither allows nor rejects: the answer to a question.
    #[default]
    Answer,
    /// Allows the action this once.
    AllowOnce,
    /// Allows the action, and the agent does not ask again. Only people who may approve `always` may choose it.
    AllowAlways,
    /// Rejects the action this once.
    RejectOnce,
    /// Rejects the action, and the agent does not ask again.
    RejectAlways,
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskChoice {
    /// Nothing may be done. Agents tell their models different things for different reasons.
    Deny(DenyReason),
    /// The approved action may be done once. The scope is for agents that report it; whether equal asks must be
    /// asked again is decided by the engine.
    Allow(GrantScope),
    /// A person chose the option with this id.
    Option(String),
    /// A person answered in their own words.
    Text(String),
}

/// The reason of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyReason {
    /// A person said no.
    Person,
    /// Nobody answered in time.
    Timeout,
    /// A person stopped the turn.
    Stopped,
    /// The process ended, or the next one found the ask open.
    Restart,
    /// The agent no longer waits, or there is nobody to ask.
    Gone,
    /// The ask cannot be shown in full.
    TooLong,
    /// The ask has no detail that a person could judge.
    NothingToJudge,
    /// The turn asks more than people can answer.
    TooMany,
    /// The answer could not be stored.
    Failed,
    /// The policy of the app does not permit it.
    Policy,
    /// The app wants to be asked, but awaits the whole answer of the turn and reads nothing before it.
    NotStreamed,
}

/// The reason why an answer does not fit its ask. Nothing is decided by such an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// An approval, where an option must be chosen or a text given.
    NeedsAnswer,
    /// An option or a text, where the ask is an approval.
    IsApproval,
    /// No option is called that.
    UnknownOption,
    /// More than one option is called that.
    AmbiguousOption,
    /// A text, where only an option fits.
    NoText,
    /// An answer without words.
    Empty,
    /// A text of more than [`ANSWER_CHARS`] characters.
    TooLong,
}

impl AnswerForm {
    /// The form of an action that can be allowed once and not for longer.
    pub fn once_only() -> Self {
        let option = |id: &str, kind| AskOption { id: id.to_owned(), label: id.to_owned(), kind };
        let options = vec![option(ONCE, OptionKind::AllowOnce), option(DENY, OptionKind::RejectOnce)];
        Self { options, takes_text: false }
    }

    /// Whether this is [that form](Self::once_only). Rooms are told of `/approve` then, and not of its two options.
    pub fn is_once_only(&self) -> bool {
        let is =
            |option: &AskOption, id: &str, kind| option.id == id && option.label == id && option.kind == kind;
        match self.options.as_slice() {
            [once, deny] => {
                !self.takes_text
                    && is(once, ONCE, OptionKind::AllowOnce)
                    && is(deny, DENY, OptionKind::RejectOnce)
            }
            _ => false,
        }
    }

    /// Whether the ask is an approval.
    pub fn is_approval(&self) -> bool {
        self.options.is_empty() && !self.takes_text
    }

    /// Whether the options are few and short enough to be shown in full, and can be told apart. A form that is not
    /// valid is never shown: its ask is denied.
    pub fn is_valid(&self) -> bool {
        let fits = |(at, option): (usize, &AskOption)| {
            let before = self.options.get(..at).unwrap_or_default();
            !option.id.is_empty()
                && option.id.len() <= OPTION_ID
                && !option.label.trim().is_empty()
                && option.label.chars().nth(LABEL).is_none()
                && before.iter().all(|other| other.id != option.id)
        };
        self.options.len() <= OPTIONS && self.options.iter().enumerate().all(fits)
    }

    /// The option with this id.
    pub fn option(&self, id: &str) -> Option<&AskOption> {
        self.options.iter().find(|option| option.id == id)
    }

    /// The numbered options, one line each, for a room. Empty without options.
    pub fn options_text(&self, words: &TextCatalog) -> String {
        let line = |(number, option): (usize, &AskOption)| {
            words.say(&TextKey::AskOption.with("number", number).with("label", option.shown()))
        };
        (1..).zip(&self.options).map(line).collect::<Vec<_>>().join("\n")
    }

    /// The answer of a person who approves. Where options are offered, an approval `once` chooses the only option
    /// that allows, if that one allows once; everything else would be a guess.
    pub fn approve(&self, scope: GrantScope) -> Result<AskChoice, AnswerError> {
        if self.is_approval() {
            return Ok(AskChoice::Allow(scope));
        }
        let mut allowing = self.options.iter().filter(|option| option.kind.allows());
        match (allowing.next(), allowing.next(), scope) {
            (Some(only), None, GrantScope::Once) if only.kind == OptionKind::AllowOnce => Ok(only.chosen()),
            _ => Err(AnswerError::NeedsAnswer),
        }
    }

    /// The answer that allows the action this once and nothing more; `None` if the options do not have exactly one such.
    pub fn allow_once(&self) -> Option<AskChoice> {
        if self.is_approval() {
            return Some(AskChoice::Allow(GrantScope::Once));
        }
        let mut once = self.options.iter().filter(|option| option.kind == OptionKind::AllowOnce);
        once.next().filter(|_| once.next().is_none()).map(AskOption::chosen)
    }

    /// The answer of an app that names an option by its id.
    pub fn choose(&self, id: &str) -> Result<AskChoice, AnswerError> {
        match self.option(id) {
            Some(option) => Ok(option.chosen()),
            None if self.is_approval() => Err(AnswerError::IsApproval),
            None => Err(AnswerError::UnknownOption),
        }
    }

    /// The answer in somebody's own words.
    pub fn write(&self, text: &str) -> Result<AskChoice, AnswerError> {
        let text = text.trim();
        if self.is_approval() {
            Err(AnswerError::IsApproval)
        } else if !self.takes_text {
            Err(AnswerError::NoText)
        } else if text.is_empty() {
            Err(AnswerError::Empty)
        } else if text.chars().nth(ANSWER_CHARS).is_some() {
            Err(AnswerError::TooLong)
        } else {
            Ok(AskChoice::Text(text.to_owned()))
        }
    }

    /// The answer that a person wrote in a room: the number of an option, its label, or their own words. Never its id,
    /// which the room does not show: own words must not choose an option that is called otherwise there. `#2` is always the second option, for options whose labels are numbers or alike.
    pub fn read(&self, words: &str) -> Result<AskChoice, AnswerError> {
        let words = words.trim();
        if self.is_approval() {
            return Err(AnswerError::IsApproval);
        }
        if words.is_empty() {
            return Err(AnswerError::Empty);
        }
        if let Some(number) = words.strip_prefix('#').and_then(number)
            && !self.options.is_empty()
        {
            let option = number.checked_sub(1).and_then(|at| self.options.get(at));
            return option.map(AskOption::chosen).ok_or(AnswerError::UnknownOption);
        }
        let by_number = number(words);
        let mut named =
            (1..).zip(&self.options).filter(|(at, option)| by_number == Some(*at) || option.is_called(words));
        match (named.next(), named.next()) {
            (Some((_, option)), None) => Ok(option.chosen()),
            (Some(_), Some(_)) => Err(AnswerError::AmbiguousOption),
            (None, _) if self.takes_text => self.write(words),
            (None, _) => Err(AnswerError::UnknownOption),
        }
    }
}

impl AskOption {
    /// The label as a room shows it: one line, in full, with everything invisible made visible.
    pub fn shown(&self) -> String {
        code_span(&self.label, usize::MAX)
    }

    fn chosen(&self) -> AskChoice {
        AskChoice::Option(self.id.clone())
    }

    /// Whether a person may have meant this option: case, spaces and the backticks around a label do not matter.
    fn is_called(&self, words: &str) -> bool {
        let words = plain(words.trim_matches('`'));
        [&*self.label, self.shown().trim_matches('`')].into_iter().any(|name| words == plain(name))
    }
}

fn plain(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// A number as people write it. Longer ones are no number of an option.
fn number(words: &str) -> Option<usize> {
    let digits = (1..=3).contains(&words.len()) && words.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| words.parse().ok()).flatten()
}

impl OptionKind {
    /// Name in the audit and over HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
        }
    }

    /// Whether choosing it allows an action.
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }

    /// Whether choosing it rejects an action.
    pub fn rejects(self) -> bool {
        matches!(self, Self::RejectOnce | Self::RejectAlways)
    }
}

impl AskChoice {
    /// Name of the decision in the store, in the audit and over HTTP.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Deny(reason) => reason.name(),
            Self::Allow(_) => "approved",
            Self::Option(_) | Self::Text(_) => "answered",
        }
    }
}

impl DenyReason {
    const ALL: [Self; 11] = [
        Self::Person,
        Self::Timeout,
        Self::Stopped,
        Self::Restart,
        Self::Gone,
        Self::TooLong,
        Self::NothingToJudge,
        Self::TooMany,
        Self::Failed,
        Self::Policy,
        Self::NotStreamed,
    ];

    /// Name in the store, in the audit and over HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Person => "denied",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::Restart => "restart",
            Self::Gone => "gone",
            Self::TooLong => "too long",
            Self::NothingToJudge => "nothing to judge",
            Self::TooMany => "too many",
            Self::Failed => "failed",
            Self::Policy => "policy",
            Self::NotStreamed => "not streamed",
        }
    }

    /// The reason with this name. A name that nobody knows is a plain no.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|reason| reason.name() == name).unwrap_or(Self::Person)
    }
}

#[cfg(test)]
mod tests;
