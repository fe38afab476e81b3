//! Requests for more permissions than the sandbox gives. Declined visibly, unless the agent's entry lets people decide.

use serde_json::{Map, Value, json};

use super::{ApprovalAnswer, ApprovalContext, Verdict, other_environment, reason_of};
use crate::agent::{AnswerForm, Ask};
use crate::agents::sorted_json::sorted;
use crate::config::PermissionPolicy;
use crate::i18n::TextKey;

/// Permissions that can be granted, by codex' names. Others that it may name one day are not.
const GRANTABLE: [&str; 2] = ["fileSystem", "network"];

pub(super) async fn answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let wanted = wanted(&params["permissions"]);
    match context.policy.permissions {
        PermissionPolicy::Decline => {
            ApprovalAnswer::declined(granted(Map::new()), TextKey::CodexDeclinedPermissions)
        }
        PermissionPolicy::Ask if wanted.is_empty() => {
            ApprovalAnswer::declined(granted(Map::new()), TextKey::CodexDeclinedUnclear)
        }
        PermissionPolicy::Ask => {
            let shown = Value::Object(wanted.clone());
            let mut detail = serde_json::to_string_pretty(&shown).unwrap_or_default();
            let environment = other_environment(params);
            if !environment.is_null() {
                detail = format!("environment: {environment}\n{detail}");
            }
            let ask = Ask {
                title: TextKey::CodexAskPermissions.into(),
                detail,
                is_elsewhere: context.is_elsewhere(params),
                cwd: context.folder(params),
                reason: reason_of(params),
                form: AnswerForm::default(),
                gap: None,
            };
            let decision = context.decide_approval(ask).await;
            let reply = match &decision.verdict {
                Verdict::Allowed(_) => granted(wanted),
                Verdict::Declined
                | Verdict::Chosen(_)
                | Verdict::Answered(_)
                | Verdict::Cancelled
                | Verdict::Halted => granted(Map::new()),
            };
            ApprovalAnswer::after(decision, reply)
        }
    }
}

/// The permissions that codex wants, as far as they can be granted.
fn wanted(permissions: &Value) -> Map<String, Value> {
    let wanted = GRANTABLE.into_iter().filter_map(|name| {
        let value = permissions.get(name).filter(|value| value.is_object())?;
        Some((name.to_owned(), sorted(value)))
    });
    wanted.collect()
}

/// The reply. Permissions hold for the turn at most: an approval for longer is ours, and is given anew each time.
fn granted(permissions: Map<String, Value>) -> Value {
    json!({ "permissions": permissions, "scope": "turn" })
}
