//! Runs: turns that are started to be looked after later, and every other turn of the caller by its id.

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
use super::turn_result::{RunTokens, TurnResult, status_after};
use super::{ApiError, Caller, Server, approvals};
use crate::agent::ModelParams;
use crate::ids::{AskId, TurnId};
use crate::store::{self, AskRecord, RunRecord, TurnRow};

/// What all answers here are about.
const RUN: &str = "hermes.run";

/// What may be asked.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RunRequest {
    /// What is asked: text, a list of parts, or a list of messages of which the last is asked.
    #[serde(default)]
    pub input: Value,
    /// For the system message of this run alone.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The session that is talked in; a fresh one if it is not said.
    #[serde(default)]
    pub session_id: Option<String>,
    /// What was said before, if the session is not known here.
    #[serde(default)]
    pub conversation_history: Option<Vec<ChatMessage>>,
    /// Echoed; there is one agent.
    #[serde(default)]
    pub model: Option<String>,
}

/// A run, if it is there and the caller's to see.
pub async fn own_run(server: &Server, caller: &Caller, run: TurnId) -> Result<TurnRow, ApiError> {
    let found = server.store.read(move |tx| tx.turn_head(&run)).await?;
    found.filter(|turn| caller.owns(turn)).ok_or_else(ApiError::no_run)
}

/// A run that was started, or when the same was asked before.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
pub struct StartedRun {
    object: &'static str,
    run_id: String,
    status: &'static str,
    session_id: String,
    model: String,
}

/// A run that was asked to end.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stopping")]
pub struct StoppingRun {
    object: &'static str,
    run_id: String,
    status: &'static str,
}

/// How a run is.
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
    /// What waits for an answer, as the events tell it.
    pending_approvals: Vec<Value>,
    /// Everything that was asked, and what became of it.
    approvals: Vec<ApprovalRecord>,
    /// The whole text, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<RunTokens>,
    /// Why it failed, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why it failed, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

/// A question as it stays on record.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
struct ApprovalRecord {
    approval_id: String,
    title: String,
    /// `pending`, `approved` or `denied`.
    status: &'static str,
    choice: Option<String>,
    /// `approved`, `denied`, `timeout`, `stopped`, `restart` or `gone`. What was denied without being asked is only
    /// told in the events.
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
    let turn_request = TurnRequest {
        session: session_id
            .or_else(|| turn_headers.session.clone())
            .map_or(SessionSelector::Fresh, SessionSelector::Named),
        spoken,
        turn_headers: turn_headers.clone(),
        params: ModelParams::default(),
        answer: AnswerMode::Background,
        fingerprint: fingerprint("/v1/runs", bytes),
    };
    // They may be large.
    drop((input, conversation_history));
    let SubmittedTurn { reader, session } = submit_turn(&server, &caller, turn_request).await?;
    let run = reader.run.clone();
    let started = status(&server, &run).await.map(|status| StartedRun {
        object: RUN,
        run_id: run.0.clone(),
        status: status.word(),
        session_id: session.clone(),
        model: model.unwrap_or_else(|| server.settings.model.clone()),
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
        // It may end between the two looks. Without its output a run that is over would pass for an empty answer.
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
        model: server.settings.model.clone(),
        created_at: created,
        updated_at: over.unwrap_or(created),
        pending_approvals: pending(&server, &turn.id, &asks),
        approvals: asks.into_iter().map(told).collect(),
        usage: ended.as_ref().map(TurnResult::usage_of_a_run),
        code: ended.as_ref().filter(|_| failure.is_some()).map(TurnResult::code),
        output: ended.map(|ended| frames.long(&ended.text)),
        error: failure,
        run_id: turn.id.0,
    };
    Ok(held(frames.into_json(&run), caller.revoked, room))
}

/// `POST /v1/runs/{run_id}/stop`. One that is over stays as it is, and that is said.
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

/// How a run is, in one word.
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
        // Each of these has an outcome.
        store::TurnState::Finalizing
        | store::TurnState::Done
        | store::TurnState::Failed
        | store::TurnState::Interrupted
        | store::TurnState::Cancelled => "running",
    }))
}

/// What waits for an answer, in full: only the process that asks has all of it.
fn pending(server: &Server, run: &TurnId, asks: &[AskRecord]) -> Vec<Value> {
    let Some(log) = server.turns.log_of(run) else { return Vec::new() };
    let open = |id: &AskId| asks.iter().any(|ask| ask.id == *id && ask.is_open());
    log.asked().iter().filter(|one| open(&one.id)).map(|one| approvals::requested(run, one)).collect()
}

fn told(ask: AskRecord) -> ApprovalRecord {
    let (status, choice) = match (ask.is_open(), ask.is_allowed()) {
        (true, _) => ("pending", None),
        (false, true) => ("approved", ask.scope),
        (false, false) => ("denied", Some("deny".to_owned())),
    };
    ApprovalRecord {
        approval_id: ask.id.0,
        title: ask.title,
        status,
        choice,
        reason: ask.rule,
        asked_at: ask.asked,
        expires_at: ask.expires,
        answered_at: ask.ended,
    }
}
