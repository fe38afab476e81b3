//! Elicitations of MCP servers: approvals of their tools, which codex asks in this form, and questions of the servers
//! themselves.

use serde_json::{Map, Value, json};

use super::elicited_form::{ElicitedForm, FormRefusal};
use super::{ApprovalAnswer, ApprovalContext, NAME_CHARS, Verdict};
use crate::agent::{AnswerForm, Ask};
use crate::agents::sorted_json::{sorted, text_field};
use crate::i18n::TextKey;
use crate::util::code_span;

/// The approval kind of a tool call, the only one that our own server is allowed by itself.
const TOOL_CALL: &str = "mcp_tool_call";

pub(super) async fn answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    match text_field(&params["_meta"], "codex_approval_kind") {
        "" => form_answer(params, context).await,
        _ if !is_bare_form(params) => form_answer(params, context).await,
        kind => approval_answer(kind, params, context).await,
    }
}

/// Whether nothing is to be filled in or opened, as in every approval of codex. A server can write codex' member into its
/// own question, too: a bare one gains it an empty answer, and anything else is asked as what it is.
fn is_bare_form(params: &Value) -> bool {
    let fields = params["requestedSchema"].get("properties").and_then(Value::as_object);
    text_field(params, "mode") == "form" && fields.is_none_or(Map::is_empty)
}

/// Asks whether a tool may be called.
async fn approval_answer(kind: &str, params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let server = text_field(params, "serverName");
    if kind == TOOL_CALL && !server.is_empty() && context.policy.own_server.as_deref() == Some(server) {
        return ApprovalAnswer::new(accepted(json!({})));
    }
    let (meta, name) = (&params["_meta"], code_span(server, NAME_CHARS));
    let (title, subject) = match text_field(meta, "tool_name") {
        // Versions before 0.169 name the tool only in their message.
        "" => (TextKey::CodexAskServer.with("server", name), &params["message"]),
        tool => {
            let tool = code_span(tool, NAME_CHARS);
            (TextKey::CodexAskTool.with("server", name).with("tool", tool), &meta["tool_name"])
        }
    };
    let arguments = serde_json::to_string_pretty(&sorted(&meta["tool_params"])).unwrap_or_default();
    // A grant would hold for every call whose arguments nobody is told.
    let form = if meta["tool_params"].is_null() { AnswerForm::once_only() } else { AnswerForm::default() };
    let ask = Ask {
        title,
        // Quoted, so that no name can pass for the next line.
        detail: format!("MCP {} {subject}\n{arguments}", params["serverName"]),
        cwd: None,
        is_elsewhere: false,
        reason: None,
        form,
        gap: None,
    };
    let decision = context.decide_approval(ask).await;
    let reply = match &decision.verdict {
        Verdict::Allowed(_) => accepted(json!({})),
        Verdict::Declined | Verdict::Chosen(_) | Verdict::Answered(_) => refused("decline"),
        Verdict::Cancelled | Verdict::Halted => refused("cancel"),
    };
    ApprovalAnswer::after(decision, reply)
}

/// Asks the question of a server, if it is one that fits into an ask.
async fn form_answer(params: &Value, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let server = code_span(text_field(params, "serverName"), NAME_CHARS);
    let declined = |remark: TextKey| {
        ApprovalAnswer::declined(refused("decline"), remark.with("server", server.as_str()))
    };
    let form = match text_field(params, "mode") {
        "form" => ElicitedForm::new(&params["requestedSchema"], text_field(params, "message")),
        "url" => return declined(TextKey::CodexDeclinedLink),
        _ => Err(FormRefusal::Unfit),
    };
    let form = match form {
        Ok(form) => form,
        Err(FormRefusal::Unfit) => return declined(TextKey::CodexDeclinedForm),
        Err(FormRefusal::Secret) => return declined(TextKey::CodexDeclinedSecretForm),
    };
    let ask = Ask {
        title: TextKey::CodexAskServer.with("server", server.as_str()),
        detail: form.question(text_field(params, "message")),
        cwd: None,
        is_elsewhere: false,
        reason: None,
        form: form.answers(),
        gap: None,
    };
    let decision = context.decide(ask).await;
    let reply = match &decision.verdict {
        Verdict::Chosen(id) => form.chosen(id).map_or_else(|| refused("decline"), accepted),
        Verdict::Answered(text) => accepted(form.written(text)),
        Verdict::Allowed(_) | Verdict::Declined => refused("decline"),
        Verdict::Cancelled | Verdict::Halted => refused("cancel"),
    };
    ApprovalAnswer::after(decision, reply)
}

fn accepted(content: Value) -> Value {
    json!({ "action": "accept", "content": content, "_meta": null })
}

fn refused(action: &str) -> Value {
    json!({ "action": action, "content": null, "_meta": null })
}
