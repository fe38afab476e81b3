//! Asks of agents in the turns of HTTP callers: their events on every stream, and the endpoint that answers
//! them.
//!
//! An ask with options or free text has the fields `options` and `text` in its event, and `option` or `text` in the event
//! of its answer. An approval has none of them. An ask that does not show its whole action has the field `gap`, a sentence for
//! people about the rest; a server in front of this one reads it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_platform::spawn_task;

use super::body::JsonBody;
use super::path_params::RunName;
use super::runs::own_run;
use super::{ApiError, Caller, Server};
use crate::access::GrantScope;
use crate::agent::{ANSWER_CHARS, AnswerError, AnswerForm, AskChoice, AskOpened, AskResolved};
use crate::ids::{AskId, TurnId};
use crate::turns::{AnswerResult, AskReply};

/// Type of the event for an ask.
pub const REQUEST: &str = "approval.request";

/// Type of the event for an answer.
pub const RESPONDED: &str = "approval.responded";

/// Choices of an approval.
const CHOICES: [&str; 4] = ["once", "session", "always", "deny"];

/// The choice of an answer that names an option or has a text.
const ANSWER: &str = "answer";

/// Data of the event for an ask. `command` and `description` repeat `detail` and `title` under other servers'
/// names.
pub fn requested(run: &TurnId, asked: &AskOpened) -> Value {
    let AskOpened { id, ask, expires, .. } = asked;
    let title = ask.title.to_string();
    let mut data = json!({
        "run_id": run.0, "approval_id": id.0,
        "title": title, "description": title, "command": ask.detail, "detail": ask.detail, "cwd": ask.cwd,
        "choices": CHOICES, "expires_at": expires,
    });
    if let Some(reason) = &ask.reason {
        data["reason"] = json!(reason);
    }
    if let Some(gap) = &ask.gap {
        data["gap"] = json!(gap.to_string());
    }
    if !ask.form.is_approval() {
        let once = ask.form.approve(GrantScope::Once).is_ok().then_some("once");
        data["choices"] = once.into_iter().chain([ANSWER, "deny"]).collect();
        data["options"] = json!(ask.form.options);
        data["text"] = json!(ask.form.takes_text);
    }
    data
}

/// Data of the event for an answer.
pub fn responded(run: &TurnId, answered: &AskResolved) -> Value {
    let AskResolved { id, choice } = answered;
    let mut data = json!({
        "run_id": run.0, "approval_id": id.0, "choice": word(choice), "reason": choice.rule(), "resolved": 1,
    });
    match choice {
        AskChoice::Option(option) => data["option"] = json!(option),
        AskChoice::Text(text) => data["text"] = json!(text),
        AskChoice::Deny(_) | AskChoice::Allow(_) => {}
    }
    data
}

fn word(choice: &AskChoice) -> &'static str {
    match choice {
        AskChoice::Deny(_) => "deny",
        AskChoice::Allow(scope) => scope.name(),
        AskChoice::Option(_) | AskChoice::Text(_) => ANSWER,
    }
}

/// Body of a request that answers an ask.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ApprovalRequest {
    /// `once`, `session`, `always` or `deny`. For an ask with options or free text: `answer`, together with `option` or
    /// `text`, or `deny`; `once` chooses the only option that allows, if that one allows once.
    pub choice: String,
    /// Id of the ask; optional if the run has only one.
    #[serde(default)]
    pub approval_id: Option<String>,
    /// Id of the chosen option.
    #[serde(default)]
    pub option: Option<String>,
    /// The answer in words, at most 4,000 characters.
    #[serde(default)]
    pub text: Option<String>,
}

/// Confirms the answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Responded")]
pub struct ApprovalResponse {
    object: &'static str,
    run_id: String,
    approval_id: String,
    /// `once`, `session`, `always`, `answer` or `deny`.
    choice: &'static str,
    /// Id of the chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    option: Option<String>,
    /// Number of asks that were answered.
    resolved: u32,
}

/// `POST /v1/runs/{run_id}/approval`
pub async fn respond(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RunName(run): RunName,
    JsonBody { value, .. }: JsonBody<ApprovalRequest>,
) -> Result<Json<ApprovalResponse>, ApiError> {
    let turn = own_run(&server, &caller, run).await?;
    let ApprovalRequest { choice, approval_id, option, text } = value;
    let reply = read_reply(&choice, option, text)?;
    if turn.source.app().is_none() {
        let message = "A room asks its own people: answer it there";
        return Err(ApiError::new(StatusCode::CONFLICT, "approval_in_room", message));
    }
    // On a task of its own: the client may disconnect, and an answer that is stored must reach the agent at
    // once.
    let (turns, id, by) = (server.turns.clone(), turn.id.clone(), caller.actor());
    let answering = async move { turns.answer(&id, approval_id.map(AskId), reply, by).await };
    match spawn_task("answer-an-ask", answering).await.map_err(ApiError::mistake)?? {
        AnswerResult::Taken(ask, choice) => Ok(Json(ApprovalResponse {
            object: "hermes.run.approval_response",
            run_id: turn.id.0,
            approval_id: ask.0,
            choice: word(&choice),
            option: match choice {
                AskChoice::Option(id) => Some(id),
                AskChoice::Deny(_) | AskChoice::Allow(_) | AskChoice::Text(_) => None,
            },
            resolved: 1,
        })),
        AnswerResult::Nothing => {
            let message = "Nothing waits for this answer: it was answered, came too late, or was never asked";
            Err(ApiError::new(StatusCode::CONFLICT, "approval_not_pending", message))
        }
        AnswerResult::Unclear => {
            let message = "More than one thing is asked: say which by its approval_id; nothing was decided";
            Err(ApiError::new(StatusCode::CONFLICT, "approval_unclear", message))
        }
        AnswerResult::Unfit(error, form) => Err(misfit(error, &form)),
    }
}

/// Reads the answer of a request. Other servers' words for `once` are accepted.
fn read_reply(choice: &str, option: Option<String>, text: Option<String>) -> Result<AskReply, ApiError> {
    let choice = choice.trim().to_ascii_lowercase();
    let scope = match choice.as_str() {
        "approve" | "approved" | "allow" => Some(GrantScope::Once),
        word => GrantScope::ALL.into_iter().find(|scope| scope.name() == word),
    };
    match (choice.as_str(), option, text) {
        (ANSWER, Some(option), None) => Ok(AskReply::Option(option)),
        (ANSWER, None, Some(text)) => Ok(AskReply::Text(text)),
        (ANSWER, ..) => {
            Err(wrong_choice("The choice answer comes with either an option or a text; nothing was decided"))
        }
        (_, Some(_), _) | (_, _, Some(_)) => {
            Err(wrong_choice("With an option or a text the choice is answer; nothing was decided"))
        }
        ("deny", None, None) => Ok(AskReply::Deny),
        (_, None, None) => scope.map(AskReply::Approve).ok_or_else(|| {
            wrong_choice("The choice is one of once, session, always and deny; nothing was decided")
        }),
    }
}

fn wrong_choice(message: &str) -> ApiError {
    ApiError { code: "invalid_approval_choice", ..ApiError::wrong("choice", message) }
}

/// The error for an answer that does not fit its ask. Lists the options, because a client may not have read the event.
fn misfit(error: AnswerError, form: &AnswerForm) -> ApiError {
    let ids: Vec<_> = form.options.iter().map(|option| format!("{:?}", option.id)).collect();
    let fitting = match (ids.is_empty(), form.takes_text) {
        (true, _) => "a text".to_owned(),
        (false, true) => format!("a text or one of the options {}", ids.join(", ")),
        (false, false) => format!("one of the options {}", ids.join(", ")),
    };
    let (param, code, problem) = match error {
        AnswerError::IsApproval => {
            return wrong_choice(
                "This ask has no options and takes no text: the choice is one of once, session, always and deny; \
                 nothing was decided",
            );
        }
        AnswerError::TooLong => {
            let message = format!("A text has at most {ANSWER_CHARS} characters; nothing was decided");
            return ApiError { code: "text_too_long", ..ApiError::wrong("text", message) };
        }
        AnswerError::NeedsAnswer => ("choice", "answer_required", "This ask cannot be approved like that"),
        AnswerError::UnknownOption | AnswerError::AmbiguousOption => {
            ("option", "unknown_option", "There is no such option")
        }
        AnswerError::NoText => ("text", "text_not_accepted", "This ask takes no text"),
        AnswerError::Empty => ("text", "text_empty", "The text is empty"),
    };
    let message = format!("{problem}: send the choice answer with {fitting}; nothing was decided");
    ApiError { code, ..ApiError::wrong(param, message) }
}
