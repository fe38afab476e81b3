//! Requests to run a command, to type into a running one, or to reach a host on the network.

use serde_json::{Value, json};

use super::{ApprovalAnswer, ApprovalContext, Verdict, other_environment, reason_of};
use crate::access::GrantScope;
use crate::agent::{AnswerForm, Ask};
use crate::agents::sorted_json::sorted;
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
        is_elsewhere: context.is_elsewhere(params),
        cwd: context.folder(params),
        reason: reason_of(params),
        form: if request.kind == CommandKind::Other {
            AnswerForm::once_only()
        } else {
            AnswerForm::default()
        },
        gap: None,
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
    kind: CommandKind,
    command: &'a Value,
    /// The environment in which it runs; null for this machine.
    environment: &'a Value,
    /// The host that the command wants to reach; null if there is none.
    network: &'a Value,
    /// Permissions beyond the sandbox; null if there are none.
    permissions: &'a Value,
}

impl<'a> CommandRequest<'a> {
    fn new(params: &'a Value) -> Self {
        Self {
            kind: CommandKind::read(&params["kind"]),
            command: &params["command"],
            environment: other_environment(params),
            network: &params["networkApprovalContext"],
            permissions: &params["additionalPermissions"],
        }
    }

    /// Whether codex may be told not to ask again. It has its own rules for anything but a plain command.
    fn may_be_kept(&self) -> bool {
        let is_plain = self.network.is_null() && self.permissions.is_null() && self.environment.is_null();
        is_plain && self.kind != CommandKind::Other
    }

    fn title(&self) -> LocalizedText {
        let title = match self.kind {
            // Codex asks for the host alone, whichever command it names beside it.
            _ if !self.network.is_null() => TextKey::CodexAskNetwork,
            _ if !self.permissions.is_null() => TextKey::CodexAskCommandMore,
            _ if !self.environment.is_null() => TextKey::CodexAskCommandElsewhere,
            CommandKind::Input => TextKey::CodexAskInput,
            CommandKind::Command | CommandKind::Other => TextKey::CodexAskCommand,
        };
        title.into()
    }

    /// The exact command. Its environment and everything beyond the sandbox stand before it, where the command itself
    /// cannot write. `None` if there is nothing that a person could judge: only a request for a host needs no command.
    fn detail(&self) -> Option<String> {
        let command = match self.command {
            Value::String(command) if !command.trim().is_empty() => Some(command.clone()),
            Value::String(_) | Value::Null if !self.network.is_null() => None,
            _ => return None,
        };
        let extras =
            [("environment", self.environment), ("network", self.network), ("permissions", self.permissions)];
        let extras = extras.into_iter().filter(|(_, value)| !value.is_null());
        let extras = extras.map(|(name, value)| format!("{name}: {}", sorted(value)));
        Some(extras.chain(command).collect::<Vec<_>>().join("\n"))
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandKind {
    /// A command.
    Command,
    /// Words for a command that runs.
    Input,
    /// One that wants a person each time, or that we do not know.
    Other,
}

impl CommandKind {
    fn read(kind: &Value) -> Self {
        match kind {
            // Older versions do not send it.
            Value::Null => Self::Command,
            kind if *kind == "command" => Self::Command,
            kind if *kind == "writeStdin" => Self::Input,
            _ => Self::Other,
        }
    }
}
