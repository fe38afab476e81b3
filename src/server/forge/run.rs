//! `POST /run`: one turn in a session of its own, which is over with it. Answers with exactly the fields that clients of this
//! surface know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_platform::spawn_task;

use super::folders::FolderHold;
use super::prompt_files::with_files;
use super::result_text::result_value;
use super::sessions::new_name;
use super::turn::{LATE, spoken};
use super::turn_clock::TurnClock;
use super::turn_outcome::ForgeEnd;
use super::{checked_prompt, model, timeout};
use crate::agent::{MessageRole, ModelParams};
use crate::ids::SessionId;
use crate::server::body::JsonBody;
use crate::server::headers::TurnHeaders;
use crate::server::submit::{
    AnswerMode, ForgeSubmission, SessionSelector, SubmittedTurn, TurnRequest, fingerprint, submit_turn,
};
use crate::server::turn_result::{EndParts, TranscriptEntry, TurnResult};
use crate::server::{ApiError, Caller, Server};
use crate::store::{NewForgeSession, ephemeral_expiry};
use crate::turn_source::{ForgeTurn, WhenUnread};

/// Longest wait for the end of a turn whose client is gone, before its folder is left to the sweeper.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// Most bytes of a system text.
const LONGEST_SYSTEM: usize = 1024 * 1024;

/// Words for effort.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// Body of a request. Other fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ForgeRunRequest")]
pub struct RunBody {
    /// The prompt.
    #[schemars(required)]
    pub prompt: String,
    /// Name of the agent; without it, the agent of `forge.run_agent`.
    pub agent: Option<String>,
    /// Model of the agent; without it, the agent's usual one.
    pub model: Option<String>,
    /// Text for the system message.
    pub system: Option<String>,
    /// `append` puts `system` behind the operator's text; `replace`, which the token must allow, in its place.
    #[schemars(extend("enum" = ["append", "replace"]))]
    pub system_mode: Option<String>,
    /// `low`, `medium`, `high`, `xhigh` or `max`. An agent that does not offer it ignores it.
    pub effort: Option<String>,
    /// Tokens of files that were sent to `POST /files`; the agent is told where they are.
    pub files: Option<Vec<String>>,
    /// Seconds after which the turn is stopped; the agent's own `turn_timeout` may stop it earlier. Default: 120.
    pub timeout_secs: Option<u64>,
}

/// The answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ForgeRun")]
pub struct RunResult {
    ok: bool,
    /// The agent's answer: parsed where it is JSON, without a code fence around it, else text.
    result: Value,
    duration_ms: u64,
    stop_reason: String,
}

/// The answer to a request whose turn failed.
#[derive(Serialize)]
struct FailedRun {
    ok: bool,
    error: String,
    stderr: String,
    duration_ms: u64,
    stop_reason: String,
}

/// `POST /run`
pub async fn run(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    turn_headers: TurnHeaders,
    JsonBody { bytes, value }: JsonBody<RunBody>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let RunBody { prompt, agent, model: wanted, system, system_mode, effort, files, timeout_secs } = value;
    let (prompt, limit, wanted) = (checked_prompt(prompt)?, timeout(timeout_secs)?, model(wanted)?);
    let replaces_system = replaces(&caller, system_mode.as_deref())?;
    let system = system.filter(|system| !system.trim().is_empty());
    if system.as_ref().is_some_and(|system| system.len() > LONGEST_SYSTEM) {
        return Err(ApiError::wrong("system", format!("It has at most {LONGEST_SYSTEM} bytes")));
    }
    let effort = checked_effort(effort)?;
    let agent = server.forge_agent(&caller, agent.as_deref()).await?;
    let name = new_name();
    let id = caller.session(&name);
    let patience = if turn_headers.key.is_some() { WhenUnread::AWhile } else { WhenUnread::None };
    // From here on whatever the session leaves is cleaned up, also if the client goes away.
    let hold = server.forge.hold(&id);
    let clean_up = Arc::new(CleanUp { server: server.clone(), id: id.clone(), patience, _hold: hold });
    let folder = server.forge.make_for_session(&id).await?;
    let key = turn_headers.key.as_deref();
    // Also the files of a refused turn go with the folder.
    let files = server.copy_files(&caller, &id, &files.unwrap_or_default(), key).await?.keep();
    let one_shot = NewForgeSession {
        session: id.clone(),
        app: caller.app().to_owned(),
        agent: agent.clone(),
        model: wanted.clone(),
        meta: None,
    };
    let request = TurnRequest {
        fingerprint: fingerprint("/run", bytes),
        session: SessionSelector::Named(name),
        agent: Ok(agent),
        spoken: spoken(with_files(prompt, &files), system),
        turn_headers: turn_headers.clone(),
        params: ModelParams::default(),
        answer: AnswerMode::Whole,
        forge: Some(ForgeSubmission {
            turn: ForgeTurn {
                folder,
                reads_only_the_end: true,
                replaces_system,
                model: wanted,
                effort,
                ..ForgeTurn::default()
            },
            one_shot: Some(one_shot),
        }),
    };
    let submitted = submit(&server, &caller, request, clean_up.clone()).await?;
    let SubmittedTurn { reader, session, .. } = submitted;
    let run = reader.run.clone();
    let clock = TurnClock::start(&server, caller.session(&session), &run, limit);
    let ended = tokio::time::timeout(limit + LATE, {
        let clock = clock.clone();
        reader.until_the_end_with(EndParts::TextAndTranscript, move |result| {
            answer(Some(&result), clock.has_timed_out(), began)
        })
    });
    let answered = ended.await.unwrap_or_else(|_| Ok(answer(None, true, began)));
    drop(clean_up);
    Ok(turn_headers.name(answered, &session, &run))
}

/// Submits the turn. The clean-up waits for that also if the client is gone meanwhile: the session could begin behind it.
async fn submit(
    server: &Arc<Server>,
    caller: &Caller,
    request: TurnRequest,
    clean_up: Arc<CleanUp>,
) -> Result<SubmittedTurn, ApiError> {
    let (server, caller) = (server.clone(), caller.clone());
    let submitting = async move {
        let submitted = submit_turn(&server, &caller, request).await;
        drop(clean_up);
        submitted
    };
    spawn_task("submit-a-run", submitting).await.unwrap_or_else(|error| Err(ApiError::mistake(error)))
}

fn answer(result: Option<&TurnResult>, timed_out: bool, began: Instant) -> Response {
    let end = ForgeEnd::of(result, timed_out);
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = result.map(|result| result.text.as_str()).unwrap_or_default();
    let is_timeout = end.is_timeout();
    let ForgeEnd { ok, was_stopped, stop_reason, error, stderr, .. } = end;
    if ok && !was_stopped {
        return Json(RunResult {
            ok,
            result: result_value(text, last_message(result)),
            duration_ms,
            stop_reason,
        })
        .into_response();
    }
    let error = match error {
        Some((_, detail)) => detail,
        None if is_timeout => "The turn did not end within its time limit".to_owned(),
        None => "The turn was stopped".to_owned(),
    };
    let body = Json(FailedRun { ok: false, error, stderr, duration_ms, stop_reason });
    match result.and_then(TurnResult::unavailable) {
        // Nothing ran; the client is told when to ask again.
        Some(unavailable) => {
            let mut response = (unavailable.status, body).into_response();
            let mut other = unavailable.into_response();
            if let Some(after) = other.headers_mut().remove(axum::http::header::RETRY_AFTER) {
                response.headers_mut().insert(axum::http::header::RETRY_AFTER, after);
            }
            response
        }
        None => (StatusCode::BAD_GATEWAY, body).into_response(),
    }
}

/// The last words of the agent: what it said after its last tool call.
fn last_message(result: Option<&TurnResult>) -> Option<&str> {
    let said =
        |entry: &&TranscriptEntry| entry.message.role == MessageRole::Assistant && !entry.range.is_empty();
    let last = result?.transcript.iter().rfind(said)?;
    last.text.get(last.range.clone())
}

/// Reads `system_mode`.
fn replaces(caller: &Caller, mode: Option<&str>) -> Result<bool, ApiError> {
    match mode {
        None | Some("append") => Ok(false),
        Some("replace") if caller.rights().may_replace => Ok(true),
        Some("replace") => {
            let message = "This app may not replace the system text; send system_mode append, or ask the owner for a token \
                           that may";
            Err(ApiError::new(StatusCode::FORBIDDEN, "system_not_allowed", message))
        }
        Some(_) => Err(ApiError::wrong("system_mode", "It is append or replace")),
    }
}

fn checked_effort(effort: Option<String>) -> Result<Option<String>, ApiError> {
    match effort.filter(|effort| !effort.is_empty()) {
        Some(effort) if !EFFORTS.contains(&effort.as_str()) => {
            Err(ApiError::wrong("effort", "It is one of low, medium, high, xhigh and max"))
        }
        effort => Ok(effort),
    }
}

/// Ends the session of a single request when its handler and its submission have ended, however they end.
struct CleanUp {
    server: Arc<Server>,
    id: SessionId,
    patience: WhenUnread,
    /// The folder is there before the row of the session.
    _hold: FolderHold,
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        let (server, id, expires) = (self.server.clone(), self.id.clone(), ephemeral_expiry(self.patience));
        spawn_task("end-a-single-run", async move {
            // A turn whose client is gone ends soon, or goes on for a while for a client with a key.
            if tokio::time::timeout(CLEAN_UP, server.turns.idle_in(&id)).await.is_err() {
                return;
            }
            let session = id.clone();
            if let Err(error) = server.store.write(move |tx| tx.end_one_shot(&session, expires)).await {
                tracing::warn!(%error, "the session of a single run is left to the sweeper");
                return;
            }
            server.turns.end_sessions_now().await;
            server.forge.remove_of_session(&id).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_exactly_the_fields_that_clients_know() {
        let keys = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let run =
            RunResult { ok: true, result: json!(1), duration_ms: 1, stop_reason: "end_turn".to_owned() };
        assert_eq!(keys(json!(run)), ["duration_ms", "ok", "result", "stop_reason"]);
        let (error, stderr, stop_reason) = ("e".to_owned(), "s".to_owned(), "error".to_owned());
        let failed = FailedRun { ok: false, error, stderr, duration_ms: 1, stop_reason };
        assert_eq!(keys(json!(failed)), ["duration_ms", "error", "ok", "stderr", "stop_reason"]);
    }

    #[test]
    fn an_effort_is_one_of_a_few_words() {
        assert_eq!(checked_effort(Some("max".to_owned())).ok().flatten().as_deref(), Some("max"));
        assert!(checked_effort(None).is_ok_and(|effort| effort.is_none()));
        assert!(checked_effort(Some("enormous".to_owned())).is_err());
    }
}
