//! The options of a request for permission. Pure.

use serde_json::Value;

use super::{cancelled, selected};
use crate::agent::{AnswerForm, AskOption, OptionKind};
use crate::agents::sorted_json::text_field;

/// Options of a request that are looked at.
const OPTIONS: usize = 16;

/// Characters of a label. A longer one cannot be shown in full.
const LABEL: usize = 200;

/// Parts of the ids of options that write a rule into the agent's own configuration, where it holds for every
/// conversation of everybody. Nobody is offered them.
const RULE_WORDS: [&str; 3] = ["execpolicy", "policyamendment", "policyrule"];

/// The options that people can be offered.
#[derive(Debug, Default)]
pub struct PermissionOptions {
    options: Vec<AskOption>,
}

impl PermissionOptions {
    /// Reads the options of a request. One of a kind that we do not know, and one that allows for longer and cannot be
    /// shown in full, is left out. Two with the same id make all of them worthless.
    pub fn read(written: &Value) -> Self {
        let list = written.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut options: Vec<AskOption> = Vec::new();
        for option in list.iter().take(OPTIONS) {
            let id = text_field(option, "optionId").to_owned();
            if id.is_empty() || options.iter().any(|other| other.id == id) {
                return Self::default();
            }
            if writes_rule(&id) {
                continue;
            }
            let kind = match text_field(option, "kind") {
                "allow_once" => OptionKind::AllowOnce,
                "allow_always" => OptionKind::AllowAlways,
                "reject_once" => OptionKind::RejectOnce,
                "reject_always" => OptionKind::RejectAlways,
                _ => continue,
            };
            let name = text_field(option, "name").trim();
            let can_be_shown = !name.is_empty() && name.chars().count() <= LABEL;
            // For a name that cannot be shown, the protocol's word says all there is.
            let label = match kind {
                _ if can_be_shown => name,
                OptionKind::AllowOnce => "allow_once",
                OptionKind::RejectOnce => "reject_once",
                OptionKind::AllowAlways | OptionKind::RejectAlways | OptionKind::Answer => continue,
            };
            options.push(AskOption { id, label: label.to_owned(), kind });
        }
        Self { options }
    }

    /// The options that hold for this action alone: nothing of what an app decides may hold for others, and most agents
    /// remember an answer for all of their conversations.
    pub fn only_once(mut self) -> Self {
        self.options.retain(|option| matches!(option.kind, OptionKind::AllowOnce | OptionKind::RejectOnce));
        self
    }

    /// Whether anything can be allowed at all.
    pub fn can_allow(&self) -> bool {
        self.options.iter().any(|option| is_allowing(option.kind))
    }

    /// The option that allows the action this once, if there is exactly one.
    pub fn allow_once(&self) -> Option<&str> {
        let mut once = self.options.iter().filter(|option| option.kind == OptionKind::AllowOnce);
        once.next().filter(|_| once.next().is_none()).map(|option| option.id.as_str())
    }

    /// Whether the option with this id allows the action.
    pub fn allows(&self, id: &str) -> bool {
        self.options.iter().any(|option| option.id == id && is_allowing(option.kind))
    }

    /// Whether the option with this id rejects the action.
    pub fn rejects(&self, id: &str) -> bool {
        let is_rejecting = |kind| matches!(kind, OptionKind::RejectOnce | OptionKind::RejectAlways);
        self.options.iter().any(|option| option.id == id && is_rejecting(option.kind))
    }

    /// The result that refuses the action this once.
    pub fn reject(&self) -> Value {
        let once = self.options.iter().find(|option| option.kind == OptionKind::RejectOnce);
        once.map_or_else(cancelled, |option| selected(&option.id))
    }

    /// The options as people are offered them.
    pub fn form(&self) -> AnswerForm {
        AnswerForm { options: self.options.clone(), takes_text: false }
    }
}

/// Whether choosing the option with this id writes a rule into the agent's configuration.
fn writes_rule(id: &str) -> bool {
    let plain: String = id.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    RULE_WORDS.iter().any(|word| plain.contains(word))
}

fn is_allowing(kind: OptionKind) -> bool {
    matches!(kind, OptionKind::AllowOnce | OptionKind::AllowAlways)
}
