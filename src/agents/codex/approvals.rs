//! Answers the requests of codex that need a person's decision.
//!
//! Nothing is allowed by itself but calls of our own tools server. A request becomes an ask in the turn's place with all
//! that a person must judge, or it is declined in its own vocabulary, with a line that says so. A request that we do not
//! know is answered with an error, so that codex never waits for ever.

mod command;
mod elicitation;
mod elicited_form;
mod file_change;
mod item_cache;
mod permissions;
#[cfg(test)]
mod tests;
mod user_input;

use std::path::Path;

use serde_json::{Value, json};

use crate::access::GrantScope;
use crate::agent::{AgentOutput, Ask, AskChoice, DenyReason};
use crate::agents::jsonrpc::{IncomingMessage, RpcFault};
use crate::agents::sorted_json::text_field;
use crate::config::PermissionPolicy;
use crate::i18n::{LocalizedText, TextKey};
use crate::util::code_span;

pub use item_cache::ItemCache;

/// Stands for a folder that nobody told.
const UNKNOWN_FOLDER: &str = "<unknown>";

/// Name that codex has for this machine among its environments.
const LOCAL: &str = "local";

/// Characters of a name in a title or a remark.
const NAME_CHARS: usize = 60;

/// Code of the error for parameters that do not fit.
const INVALID_PARAMS: i64 = -32_602;

/// The turn that a request belongs to.
pub struct ApprovalContext<'a> {
    /// Asks people.
    pub out: &'a dyn AgentOutput,
    /// Folder of the session; empty if nobody knows it.
    pub cwd: &'a str,
    /// Items that began in this turn.
    pub items: &'a ItemCache,
    /// Rules of the agent.
    pub policy: &'a ApprovalPolicy,
    /// The thread of the turn. Requests of another one are refused.
    pub thread: &'a str,
}

/// Rules of the agent for requests of codex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// Whether people are asked for more permissions.
    pub permissions: PermissionPolicy,
    /// Name of our own tools server, if the block that we wrote into codex' configuration contains it.
    pub own_server: Option<String>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalAnswer {
    /// The result for codex, or the error.
    pub reply: Result<Value, RpcFault>,
    /// Lines for people, one about each thing that was declined without asking them.
    pub remarks: Vec<LocalizedText>,
    /// The turn must end because nobody answered in time. Not every family of requests lets the answer itself end it, so
    /// the caller interrupts the turn.
    pub halts: bool,
    /// The ask, if codex was told not to ask this again: once our own grant of it is gone, the thread must be opened anew.
    pub kept_grant: Option<Ask>,
}

impl ApprovalAnswer {
    /// An answer about which people need not be told anything.
    pub fn new(reply: Value) -> Self {
        Self { reply: Ok(reply), remarks: Vec::new(), halts: false, kept_grant: None }
    }

    /// The answer after people were asked.
    fn after(decision: Decision, reply: Value) -> Self {
        let halts = decision.verdict == Verdict::Halted;
        Self { remarks: decision.remark.into_iter().collect(), halts, ..Self::new(reply) }
    }

    /// An answer that refuses, with a line that says so.
    fn declined(reply: Value, remark: impl Into<LocalizedText>) -> Self {
        Self { remarks: vec![remark.into()], ..Self::new(reply) }
    }

    fn error(fault: RpcFault) -> Self {
        Self { reply: Err(fault), remarks: Vec::new(), halts: false, kept_grant: None }
    }
}

/// Answers one request of codex. Never fails open: everything unknown is declined in its own vocabulary, or refused with
/// an error. Waits as long as people think; dropping the future withdraws the ask.
pub async fn answer(request: &IncomingMessage, context: &ApprovalContext<'_>) -> ApprovalAnswer {
    let params = &request.params;
    let thread = text_field(params, "threadId");
    if !thread.is_empty() && thread != context.thread {
        return ApprovalAnswer::error(RpcFault::new(INVALID_PARAMS, "the thread has no turn here"));
    }
    match request.method.as_str() {
        "item/commandExecution/requestApproval" => command::answer(params, context).await,
        "item/fileChange/requestApproval" => file_change::answer(params, context).await,
        "item/permissions/requestApproval" => permissions::answer(params, context).await,
        "mcpServer/elicitation/request" => elicitation::answer(params, context).await,
        "item/tool/requestUserInput" => user_input::answer(params, context).await,
        // Names of before 0.125. They carry no thread of ours, so nobody can be asked.
        "execCommandApproval" | "applyPatchApproval" => {
            let denied = json!({ "denied": { "rejection": "not supported" } });
            let remark = TextKey::CodexDeclinedOld.with("method", code_span(&request.method, NAME_CHARS));
            ApprovalAnswer::declined(json!({ "decision": denied }), remark)
        }
        method => unknown_request(method),
    }
}

/// Refuses a request that is no ask, or one of a newer codex.
fn unknown_request(method: &str) -> ApprovalAnswer {
    tracing::warn!(method = %code_span(method, NAME_CHARS), "codex sent a request that is not known here");
    let refused = ApprovalAnswer::error(RpcFault::new(RpcFault::UNKNOWN_METHOD, "unknown method"));
    match method {
        // Nobody is asked anything by these.
        "item/tool/call"
        | "account/chatgptAuthTokens/refresh"
        | "attestation/generate"
        | "currentTime/read" => refused,
        // It may be a new kind of approval.
        _ => {
            let remark = TextKey::CodexDeclinedUnknown.with("method", code_span(method, NAME_CHARS));
            ApprovalAnswer { remarks: vec![remark], ..refused }
        }
    }
}

/// The decision about an ask.
struct Decision {
    verdict: Verdict,
    /// A line for people, if they could not be asked.
    remark: Option<LocalizedText>,
}

/// The effect of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The action is allowed.
    Allowed(GrantScope),
    /// A person chose this option of a question.
    Chosen(String),
    /// A person answered in their own words.
    Answered(String),
    /// The action is refused, and codex goes on without it.
    Declined,
    /// The turn ends anyway.
    Cancelled,
    /// Nobody answered in time: the turn ends.
    Halted,
}

impl ApprovalContext<'_> {
    /// Asks people, and waits for the decision.
    async fn decide(&self, ask: Ask) -> Decision {
        let title = match &ask.title {
            LocalizedText::Said(words) => LocalizedText::Said(code_span(words, NAME_CHARS)),
            LocalizedText::Text(..) => ask.title.clone(),
        };
        let mut remark = None;
        let verdict = match self.out.ask(ask).await {
            AskChoice::Allow(scope) => Verdict::Allowed(scope),
            AskChoice::Option(id) => Verdict::Chosen(id),
            AskChoice::Text(text) => Verdict::Answered(text),
            AskChoice::Deny(reason) => match reason {
                DenyReason::Timeout => Verdict::Halted,
                DenyReason::Stopped | DenyReason::Restart => Verdict::Cancelled,
                // The engine has told the room why.
                DenyReason::Person
                | DenyReason::TooLong
                | DenyReason::NothingToJudge
                | DenyReason::TooMany
                | DenyReason::Policy
                | DenyReason::NotStreamed => Verdict::Declined,
                DenyReason::Gone | DenyReason::Failed => {
                    remark = Some(TextKey::CodexDeclinedUnasked.with("title", title));
                    Verdict::Declined
                }
            },
        };
        Decision { verdict, remark }
    }

    /// Asks whether an action is allowed. An option counts as its kind says, and words of a person allow nothing.
    async fn decide_approval(&self, ask: Ask) -> Decision {
        let once = ask.form.allow_once();
        let decision = self.decide(ask).await;
        let verdict = match decision.verdict {
            Verdict::Chosen(id) if once == Some(AskChoice::Option(id.clone())) => {
                Verdict::Allowed(GrantScope::Once)
            }
            Verdict::Chosen(_) | Verdict::Answered(_) => Verdict::Declined,
            verdict => verdict,
        };
        Decision { verdict, ..decision }
    }

    /// The folder of an action: the one that codex names, else that of the session. One in a form that we do not know is
    /// shown as it is.
    fn folder(&self, params: &Value) -> Option<String> {
        let named = match &params["cwd"] {
            Value::Null => "",
            Value::String(cwd) => cwd.as_str(),
            other => return Some(other.to_string()),
        };
        let named = [named, self.cwd].into_iter().find(|cwd| !cwd.trim().is_empty());
        Some(named.unwrap_or(UNKNOWN_FOLDER).to_owned())
    }

    /// Whether the folder of an action may be another one than that of the session.
    fn is_elsewhere(&self, params: &Value) -> bool {
        self.folder(params).is_some_and(|folder| Path::new(&folder) != Path::new(self.cwd))
    }
}

/// The reason that codex gives.
fn reason_of(params: &Value) -> Option<String> {
    Some(text_field(params, "reason").to_owned()).filter(|reason| !reason.trim().is_empty())
}

/// The environment of an action, if it is another one than this machine; null otherwise.
fn other_environment(params: &Value) -> &Value {
    const NONE: &Value = &Value::Null;
    match &params["environmentId"] {
        Value::String(name) if name == LOCAL => NONE,
        environment => environment,
    }
}
