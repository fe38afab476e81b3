//! Asks of agents in the turns of HTTP callers: their events on every stream, and the endpoint that answers
//! them.

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
use crate::agent::{AskChoice, AskOpened, AskResolved};
use crate::ids::{AskId, TurnId};
use crate::turns::{AnswerResult, choice};

/// Type of the event for an ask.
pub const REQUEST: &str = "approval.request";

/// Type of the event for an answer.
pub const RESPONDED: &str = "approval.responded";

/// Answers that an ask accepts.
pub const CHOICES: [&str; 4] = ["once", "session", "always", "deny"];

/// Data of the event for an ask. `command` and `description` repeat `detail` and `title` under other servers'
/// names.
pub fn requested(run: &TurnId, asked: &AskOpened) -> Value {
    let AskOpened { id, ask, expires, .. } = asked;
    json!({
        "run_id": run.0, "approval_id": id.0,
        "title": ask.title, "description": ask.title, "command": ask.detail, "detail": ask.detail, "cwd": ask.cwd,
        "choices": CHOICES, "expires_at": expires,
    })
}

/// Data of the event for an answer.
pub fn responded(run: &TurnId, answered: &AskResolved) -> Value {
    json!({
        "run_id": run.0, "approval_id": answered.id.0,
        "choice": word(answered.choice), "reason": answered.rule, "resolved": 1,
    })
}

fn word(choice: AskChoice) -> &'static str {
    match choice {
        AskChoice::Deny => "deny",
        AskChoice::Allow(GrantScope::Once) => "once",
        AskChoice::Allow(GrantScope::Session) => "session",
        AskChoice::Allow(GrantScope::Always) => "always",
    }
}

/// Body of a request that answers an ask.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ApprovalRequest {
    /// `once`, `session`, `always` or `deny`.
    pub choice: String,
    /// Id of the ask; optional if the run has only one.
    #[serde(default)]
    pub approval_id: Option<String>,
}

/// Confirms the answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Responded")]
pub struct ApprovalResponse {
    object: &'static str,
    run_id: String,
    approval_id: String,
    choice: &'static str,
    /// Number of asks that were answered.
    resolved: u32,
}

/// `POST /v1/runs/{run_id}/approval`
pub async fn respond(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RunName(run): RunName,
    JsonBody { value: ApprovalRequest { choice: said, approval_id }, .. }: JsonBody<ApprovalRequest>,
) -> Result<Json<ApprovalResponse>, ApiError> {
    let turn = own_run(&server, &caller, run).await?;
    let said = said.trim().to_ascii_lowercase();
    let said = match said.as_str() {
        "approve" | "approved" | "allow" => "once",
        said => said,
    };
    let Some(choice) = choice(said) else {
        let message = "The choice is one of once, session, always and deny; nothing was decided";
        let wrong = ApiError::wrong("choice", message);
        return Err(ApiError { code: "invalid_approval_choice", ..wrong });
    };
    if turn.source.app().is_none() {
        let message = "A room asks its own people: answer it there";
        return Err(ApiError::new(StatusCode::CONFLICT, "approval_in_room", message));
    }
    // On a task of its own: the client may disconnect, and an answer that is stored must reach the agent at
    // once.
    let (turns, id, by) = (server.turns.clone(), turn.id.clone(), caller.actor());
    let answering = async move { turns.answer(&id, approval_id.map(AskId), choice, by).await };
    match spawn_task("answer-an-ask", answering).await.map_err(ApiError::mistake)?? {
        AnswerResult::Taken(ask) => Ok(Json(ApprovalResponse {
            object: "hermes.run.approval_response",
            run_id: turn.id.0,
            approval_id: ask.0,
            choice: word(choice),
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
    }
}
