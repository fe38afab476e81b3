//! Requests to run a command, to type into a running one, or to reach a host on the network.

use serde_json::{Value, json};

use super::{ApprovalAnswer, ApprovalContext, Verdict, once_only, reason_of};
use crate::access::GrantScope;
use crate::agent::{AnswerForm, Ask};
use crate::agents::codex::sorted_json::{sorted, text_field};
use crate::i18n::{LocalizedText, TextKey};

pub(super) async fn answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let request = CommandRequest::new(params);
    let Some(detail) = request.detail() else {
        let decline = json!({ "decision": "decline" });
        return ApprovalAnswer::declined(decline, TextKey::CodexDeclinedUnclear);
    };
    let ask = Ask {
        title: request.title(),
        detail,
        cwd: context.folder(params),
        reason: reason_of(params),
        form: if request.is_plain_kind() { AnswerForm::default() } else { once_only() },
    };
    let decision = context.decide_approval(ask.clone()).await;
    let (word, kept_grant) = match &decision.verdict {
        Verdict::Allowed(GrantScope::Session | GrantScope::Always) if request.may_be_kept() => {
            ("acceptForSession", Some(ask))
        }
        Verdict::Allowed(_) => ("accept", None),
        Verdict::Declined | Verdict::Chosen(_) | Verdict::Answered(_) => ("decline", None),
        Verdict::Cancelled | Verdict::Halted => ("cancel", None),
    };
    ApprovalAnswer { kept_grant, ..ApprovalAnswer::after(decision, json!({ "decision": word })) }
}

/// The parts of a request that decide how it is asked.
struct CommandRequest<'a> {
    kind: &'a str,
    command: &'a str,
    /// The host that the command wants to reach; null if there is none.
    network: &'a Value,
    /// Permissions beyond the sandbox; null if there are none.
    permissions: &'a Value,
}

impl<'a> CommandRequest<'a> {
    fn new(params: &'a Value) -> Self {
        Self {
            // Older versions do not send it.
            kind: Some(text_field(params, "kind")).filter(|kind| !kind.is_empty()).unwrap_or("command"),
            command: text_field(params, "command"),
            network: &params["networkApprovalContext"],
            permissions: &params["additionalPermissions"],
        }
    }

    /// Whether codex may be told not to ask again. Other kinds want a person each time.
    fn is_plain_kind(&self) -> bool {
        matches!(self.kind, "command" | "writeStdin")
    }

    fn may_be_kept(&self) -> bool {
        self.is_plain_kind() && self.network.is_null() && self.permissions.is_null()
    }

    fn title(&self) -> LocalizedText {
        match self.kind {
            _ if self.command.trim().is_empty() => TextKey::CodexAskNetwork.into(),
            _ if !self.network.is_null() || !self.permissions.is_null() => {
                TextKey::CodexAskCommandMore.into()
            }
            "writeStdin" => TextKey::CodexAskInput.into(),
            _ => TextKey::CodexAskCommand.into(),
        }
    }

    /// The exact command. What it gets beyond the sandbox stands before it, where the command itself cannot write.
    /// `None` if there is nothing that a person could judge.
    fn detail(&self) -> Option<String> {
        let extras = [("network", self.network), ("permissions", self.permissions)];
        let extras = extras.into_iter().filter(|(_, value)| !value.is_null());
        let mut parts: Vec<_> = extras.map(|(name, value)| format!("{name}: {}", sorted(value))).collect();
        if !self.command.trim().is_empty() {
            parts.push(self.command.to_owned());
        }
        Some(parts.join("\n")).filter(|detail| !detail.is_empty())
    }
}
