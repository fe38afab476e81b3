//! `/v1/runs`: turns that are started in the background and looked at later. Every other turn of the caller can
//! be looked at by its id too.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::JsonBody;
use super::content::{ChatMessage, join_system, read_input};
use super::headers::{TurnHeaders, check_name};
use super::path_params::RunName;
use super::revocable_body::held;
use super::sse::SseBuffer;
use super::submit::{AnswerMode, SessionSelector, SubmittedTurn, TurnRequest, fingerprint, submit_turn};
use super::turn_result::{RunTokens, STOP_REASON, TurnResult, status_after};
use super::{ApiError, Caller, Server, approvals};
use crate::agent::ModelParams;
use crate::ids::{AskId, TurnId};
use crate::store::{self, AskRecord, RunRecord, TurnRow};

/// `object` field of all answers here.
const RUN: &str = "hermes.run";

/// Body of a request that starts a run.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RunRequest {
    /// The prompt: text, a list of parts, or a list of messages of which the last is the prompt.
    #[serde(default)]
    pub input: Value,
    /// Added to the system message of this run alone.
    #[serde(default)]
    pub instructions: Option<String>,
    /// Session of the run; without it, a new one.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Messages before the prompt, for a session that the server does not know.
    #[serde(default)]
    pub conversation_history: Option<Vec<ChatMessage>>,
    /// Name of the agent that answers; any other name means the default agent. Echoed.
    #[serde(default)]
    pub model: Option<String>,
}

/// Finds a run by its id, if the caller may see it.
pub async fn own_run(server: &Server, caller: &Caller, run: TurnId) -> Result<TurnRow, ApiError> {
    let found = server.store.read(move |tx| tx.turn_head(&run)).await?;
    found.filter(|turn| caller.owns(turn)).ok_or_else(ApiError::no_run)
}

/// A run that was started, now or by an earlier request with the same idempotency key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
pub struct StartedRun {
    object: &'static str,
    run_id: String,
    status: &'static str,
    session_id: String,
    model: String,
}

/// A run that was asked to stop.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stopping")]
pub struct StoppingRun {
    object: &'static str,
    run_id: String,
    status: &'static str,
}

/// Current state of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct RunView {
    object: &'static str,
    run_id: String,
    /// `queued`, `running`, `waiting_for_approval`, `stopping`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    session_id: String,
    model: String,
    created_at: i64,
    updated_at: i64,
    /// Asks that wait for an answer, as the events of the run describe them. One that does not show its whole action says so
    /// in `gap`.
    pending_approvals: Vec<Value>,
    /// All asks of the run, and how each was answered.
    approvals: Vec<ApprovalRecord>,
    /// The whole text, when the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<RunTokens>,
    /// Whether the agent said all that it wanted; present when the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<bool>,
    /// Whether there is an answer, but not all of it; present when the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
    /// `stop`, `length` or `error`, as in a chat completion; present when the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'static str>,
    /// The agent's own word for why it ended, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
    /// Codex' ids of the thread and the turn, if codex answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    codex_thread_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    codex_turn_id: Option<String>,
    /// Sentences of ours below the answer, such as that something was declined without asking anybody: `message` is for
    /// people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<serde_json::Value>,
    /// Why it failed, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why it failed, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

/// An ask and its answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
struct ApprovalRecord {
    approval_id: String,
    title: String,
    /// `pending`, `approved`, `answered` or `denied`.
    status: &'static str,
    choice: Option<String>,
    /// Id of the chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    option: Option<String>,
    /// The answer in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// `approved`, `answered`, `denied`, `timeout`, `stopped`, `restart` or `gone`. A denial by a rule, without an ask,
    /// appears only in the events.
    reason: Option<String>,
    asked_at: i64,
    expires_at: i64,
    answered_at: Option<i64>,
}

/// `POST /v1/runs`
pub async fn start(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    turn_headers: TurnHeaders,
    JsonBody { bytes, value }: JsonBody<RunRequest>,
) -> Result<Response, ApiError> {
    let RunRequest { input, instructions, session_id, conversation_history, model } = value;
    let mut spoken = read_input(&input, conversation_history.as_deref())?;
    spoken.system = join_system([instructions, spoken.system]);
    if let Some(name) = &session_id {
        check_name(name).map_err(|message| ApiError::wrong("session_id", message))?;
    }
    let session = session_id
        .or_else(|| turn_headers.session.clone())
        .map_or(SessionSelector::Fresh, SessionSelector::Named);
    let agent = server.agent_for(&caller, model.as_deref(), &session).await;
    let answering = server.model_name(agent.as_ref().ok());
    let turn_request = TurnRequest {
        session,
        agent,
        spoken,
        turn_headers: turn_headers.clone(),
        params: ModelParams::default(),
        answer: AnswerMode::Background,
        fingerprint: fingerprint("/v1/runs", bytes),
        forge: None,
    };
    // Frees these early: they may be large.
    drop((input, conversation_history));
    let SubmittedTurn { reader, session, .. } = submit_turn(&server, &caller, turn_request).await?;
    let run = reader.run.clone();
    let started = status(&server, &run).await.map(|status| StartedRun {
        object: RUN,
        run_id: run.0.clone(),
        status: status.word(),
        session_id: session.clone(),
        model: model.unwrap_or(answering),
    });
    let answer = started.map(|started| (StatusCode::ACCEPTED, Json(started)).into_response());
    Ok(turn_headers.name(answer, &session, &run))
}

/// `GET /v1/runs/{run_id}`
pub async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RunName(run): RunName,
) -> Result<Response, ApiError> {
    let turn = own_run(&server, &caller, run).await?;
    let (status, ended, room) = loop {
        let (ended, room) = TurnResult::read_soon(&server, &caller, &turn.id).await?;
        if let Some(ended) = ended {
            break (ended.status(), Some(ended), room);
        }
        // The run may end between the two reads. Without its output, a finished run would look like an empty
        // answer.
        if let RunStatus::Open(status) = status(&server, &turn.id).await? {
            break (status, None, room);
        }
    };
    let id = turn.id.clone();
    let record = server.store.read(move |tx| tx.run_record(&id)).await?.ok_or_else(ApiError::no_run)?;
    let RunRecord { created, ended: over, asks } = record;
    let failure = ended.as_ref().and_then(|ended| ended.failure.clone());
    let mut frames = SseBuffer::default();
    let run = RunView {
        object: RUN,
        status,
        session_id: caller.name_of(&turn.session),
        model: server.model_name(turn.agent.as_ref()),
        created_at: created,
        updated_at: over.unwrap_or(created),
        pending_approvals: pending(&server, &turn.id, &asks),
        approvals: asks.into_iter().map(told).collect(),
        usage: ended.as_ref().map(TurnResult::usage_of_a_run),
        completed: ended.as_ref().map(TurnResult::is_completed),
        partial: ended.as_ref().map(TurnResult::is_partial),
        finish_reason: ended.as_ref().map(TurnResult::finish_reason),
        stop_reason: ended.as_ref().and_then(|ended| ended.fact(STOP_REASON)),
        codex_thread_id: ended.as_ref().and_then(|ended| ended.fact("codex_thread_id")),
        codex_turn_id: ended.as_ref().and_then(|ended| ended.fact("codex_turn_id")),
        remarks: ended.as_ref().map(|ended| ended.remarks().to_vec()).unwrap_or_default(),
        code: ended.as_ref().filter(|_| failure.is_some()).map(TurnResult::code),
        output: ended.map(|ended| frames.long(&ended.text)),
        error: failure,
        run_id: turn.id.0,
    };
    Ok(held(frames.into_json(&run), caller.revoked, room))
}

/// `POST /v1/runs/{run_id}/stop`. A finished run stays as it is, and the answer says so.
pub async fn stop(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RunName(run): RunName,
) -> Result<Json<StoppingRun>, ApiError> {
    let turn = own_run(&server, &caller, run).await?;
    if !TurnResult::is_there(&server, &turn.id).await? {
        server.turns.stop(&turn.session, &turn.id).await?;
    }
    let status = status(&server, &turn.id).await?.word();
    Ok(Json(StoppingRun { object: RUN, run_id: turn.id.0, status }))
}

/// Status of a run in one word.
enum RunStatus {
    Open(&'static str),
    Over(&'static str),
}

impl RunStatus {
    fn word(&self) -> &'static str {
        match self {
            Self::Open(word) | Self::Over(word) => word,
        }
    }
}

async fn status(server: &Server, run: &TurnId) -> Result<RunStatus, ApiError> {
    let id = run.clone();
    let read = server.store.read(move |tx| Ok((tx.ended(&id)?, tx.turn_head(&id)?, tx.run_record(&id)?)));
    let (ended, turn, record) = read.await?;
    if let Some((_, outcome)) = ended {
        return Ok(RunStatus::Over(status_after(&outcome)));
    }
    let (Some(turn), Some(record)) = (turn, record) else { return Err(ApiError::no_run()) };
    Ok(RunStatus::Open(match turn.state {
        _ if turn.stop => "stopping",
        _ if record.asks.iter().any(AskRecord::is_open) => "waiting_for_approval",
        store::TurnState::Queued => "queued",
        store::TurnState::Dispatched | store::TurnState::Streaming => "running",
        // Unreachable: each of these states has an outcome.
        store::TurnState::Finalizing
        | store::TurnState::Done
        | store::TurnState::Failed
        | store::TurnState::Interrupted
        | store::TurnState::Cancelled => "running",
    }))
}

/// Open asks in full. Only the process that asked has the details.
fn pending(server: &Server, run: &TurnId, asks: &[AskRecord]) -> Vec<Value> {
    let Some(log) = server.turns.log_of(run) else { return Vec::new() };
    let open = |id: &AskId| asks.iter().any(|ask| ask.id == *id && ask.is_open());
    log.asked().iter().filter(|one| open(&one.id)).map(|one| approvals::requested(run, one)).collect()
}

fn told(ask: AskRecord) -> ApprovalRecord {
    let is_answered = ask.is_answered();
    let (status, choice) = match (ask.is_open(), is_answered) {
        (true, _) => ("pending", None),
        (false, true) if ask.chosen.is_some() || ask.answer.is_some() => {
            ("answered", Some("answer".to_owned()))
        }
        (false, true) => ("approved", ask.scope),
        (false, false) => ("denied", Some("deny".to_owned())),
    };
    ApprovalRecord {
        approval_id: ask.id.0,
        title: ask.title,
        status,
        choice,
        // A restart denies even an answer that the agent did not get; then it was not given.
        option: ask.chosen.filter(|_| is_answered),
        text: ask.answer.filter(|_| is_answered),
        reason: ask.rule,
        asked_at: ask.asked,
        expires_at: ask.expires,
        answered_at: ask.ended,
    }
}
