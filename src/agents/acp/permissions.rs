//! Answers the agent's requests for permission.
//!
//! Nothing is allowed but by a person, or by an entry of the configuration that names the whole action. Everything that
//! is unclear is refused, in the agent's own options: by the one that rejects once, or as cancelled if there is none.

mod detail;
mod options;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Value, json};

use self::options::PermissionOptions;
use super::tool_calls::ToolCall;
use crate::access::{AppPermissions, PermissionDecision};
use crate::agent::{AgentOutput, AgentTurn, Ask, AskChoice, DenyReason};
use crate::agents::sorted_json::text_field;
use crate::i18n::{LocalizedText, TextKey};
use crate::util::code_span;

/// Characters of the agent's words in a remark.
const SHOWN_CHARS: usize = 60;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionAnswer {
    /// The result for the agent.
    pub reply: Value,
    /// A line for people, if it was refused without asking them.
    pub remark: Option<LocalizedText>,
    /// The call, if it was refused.
    pub declined: Option<String>,
    /// The turn must end because nobody answered in time.
    pub halts: bool,
}

/// The result for a request that is refused because its turn ends.
pub fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// Answers one request of a turn. `call` is what is known about the call, `cwd` the folder of the session. Waits as long as
/// people think; dropping the future withdraws the ask.
pub async fn answer(
    call: ToolCall,
    options: &Value,
    turn: &AgentTurn,
    cwd: &str,
    policy: &AppPermissions,
    out: &dyn AgentOutput,
) -> PermissionAnswer {
    let options = match turn.app {
        None => PermissionOptions::read(options),
        Some(_) => PermissionOptions::read(options).only_once(),
    };
    let call = detail::with_input(call);
    let declined = |remark: Option<LocalizedText>| PermissionAnswer {
        reply: options.reject(),
        remark,
        declined: Some(call.id.clone()),
        halts: false,
    };
    let allowed = |option: &str| PermissionAnswer {
        reply: selected(option),
        remark: None,
        declined: None,
        halts: false,
    };
    let Some(detail) = detail::of(&call, cwd) else {
        tracing::warn!("an agent asked for permission and did not say for what");
        return declined(Some(TextKey::AcpDeclinedUnclear.into()));
    };
    if !options.can_allow() {
        tracing::warn!("an agent asked for permission and offered no answer that allows this action alone");
        return declined(Some(TextKey::AcpDeclinedNoOption.into()));
    }
    let folder = Some(text_field(&call.raw_input, "cwd")).filter(|folder| !folder.trim().is_empty());
    let elsewhere = folder.filter(|folder| Path::new(folder) != Path::new(cwd));
    // The list of an app was written for the folder of its session, so another folder is a part of the action.
    let detail = match elsewhere {
        Some(folder) if turn.app.is_some() => format!("in {folder}:\n{detail}"),
        _ => detail,
    };
    let title = title_of(&call.kind);
    let shown = || code_span(if call.title.trim().is_empty() { &detail } else { &call.title }, SHOWN_CHARS);
    match policy.decide(&detail) {
        PermissionDecision::Ask => {}
        // The list was written for the folder of the session.
        PermissionDecision::AllowOnce if elsewhere.is_some() => {}
        // The app has a policy of its own, which must agree: the engine answers the ask by it.
        PermissionDecision::AllowOnce if turn.app.is_some() => {}
        PermissionDecision::AllowOnce => {
            return match options.allow_once() {
                Some(option) => allowed(option),
                None => declined(Some(TextKey::AcpDeclinedUnclear.into())),
            };
        }
        PermissionDecision::Deny => return declined(Some(TextKey::AcpDeclined.with("action", shown()))),
    }
    let reason = [text_field(&call.raw_input, "description"), text_field(&call.raw_input, "reason")];
    let reason = reason.into_iter().find(|reason| !reason.trim().is_empty()).map(str::to_owned);
    let ask = Ask {
        title: title.into(),
        detail: detail.clone(),
        cwd: Some(folder.unwrap_or(cwd).to_owned()),
        is_elsewhere: elsewhere.is_some() && !turn.wants_raw,
        reason,
        form: options.form(),
        gap: None,
    };
    match out.ask(ask).await {
        AskChoice::Option(id) if options.allows(&id) => allowed(&id),
        // The same action again may be rejected by itself: a person chose that.
        AskChoice::Option(id) if options.rejects(&id) => {
            PermissionAnswer { reply: selected(&id), ..declined(None) }
        }
        AskChoice::Allow(_) => match options.allow_once() {
            Some(option) => allowed(option),
            None => declined(Some(TextKey::AcpDeclinedUnclear.into())),
        },
        AskChoice::Option(_) | AskChoice::Text(_) => declined(Some(TextKey::AcpDeclinedUnclear.into())),
        AskChoice::Deny(reason) => match reason {
            // The agent must not go on meanwhile.
            DenyReason::Timeout => PermissionAnswer { reply: cancelled(), halts: true, ..declined(None) },
            DenyReason::Stopped | DenyReason::Restart => {
                PermissionAnswer { reply: cancelled(), ..declined(None) }
            }
            // The engine has told the room why.
            DenyReason::Person
            | DenyReason::Policy
            | DenyReason::NotStreamed
            | DenyReason::TooLong
            | DenyReason::NothingToJudge
            | DenyReason::TooMany => declined(None),
            DenyReason::Gone | DenyReason::Failed => {
                declined(Some(TextKey::CodexDeclinedUnasked.with("title", shown())))
            }
        },
    }
}

fn selected(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

/// The title of an ask, by the kind of the call.
fn title_of(kind: &str) -> TextKey {
    match kind {
        "execute" => TextKey::AcpAskExecute,
        "edit" => TextKey::AcpAskEdit,
        "delete" => TextKey::AcpAskDelete,
        "move" => TextKey::AcpAskMove,
        "read" | "search" => TextKey::AcpAskRead,
        "fetch" => TextKey::AcpAskFetch,
        _ => TextKey::AcpAskOther,
    }
}
