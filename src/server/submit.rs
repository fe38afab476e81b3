//! Accepts a turn that an app or the owner asks for: once, although the request may be repeated, and only when the turn
//! is on disk.

mod transaction;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use talaria_platform::spawn_task;

use self::transaction::{SubmitResult, SubmitTransaction};
use super::body::CountedBody;
use super::content::{ParsedMessages, PromptContent};
use super::headers::TurnHeaders;
use super::turn_stream::TurnReader;
use super::{ApiError, Caller, Server};
use crate::agent::{ModelParams, TurnOrigin};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::store::{NewForgeSession, TurnRow, TurnState, unix_now};
use crate::turn_source::{AppRequest, ForgeTurn, TurnSource, WhenAway, WhenUnread};
use crate::turns::InputPermit;
use crate::util::{hash, hex, random_hex};

/// The session that a request names.
pub enum SessionSelector {
    /// A new session.
    Fresh,
    /// The session of this name. If there is none, it begins now, with the messages of the request as its history.
    Named(String),
    /// The session of this name, which must exist.
    Existing(String),
    /// The session of this response of the caller; a fork of it as it was then, if it has gone on since.
    After(String),
}

/// Data that is stored with a turn that answers `/v1/responses`.
pub struct ResponseRecord {
    /// Id of the response that this one continues.
    pub previous: Option<String>,
    /// The fields of the request that the response repeats, as JSON.
    pub request: String,
}

/// A request for a turn, as one of the endpoints read it.
pub struct TurnRequest {
    /// The session that the turn belongs to.
    pub session: SessionSelector,
    /// The agent that is asked, or the reason why none is. The reason counts only for a new request: a repeat is answered
    /// with its turn, even if the agent is gone since.
    pub agent: Result<AgentName, ApiError>,
    /// The prompt and the messages before it.
    pub spoken: ParsedMessages,
    /// Values of the request's headers.
    pub turn_headers: TurnHeaders,
    /// Sampling and output format, if a model will answer.
    pub params: ModelParams,
    /// The way in which the client reads the answer.
    pub answer: AnswerMode,
    /// Tells this request from every other: see [`fingerprint`].
    pub fingerprint: RequestFingerprint,
    /// What only a turn of a forge session has.
    pub forge: Option<ForgeSubmission>,
}

/// A turn of a forge session, as it is submitted.
pub struct ForgeSubmission {
    /// What is stored with the turn.
    pub turn: ForgeTurn,
    /// The session of a single request, which begins with this turn; `None` for a session that must exist.
    pub one_shot: Option<NewForgeSession>,
}

/// Identity of a request, and the charge for its bytes until the turn is stored.
pub struct RequestFingerprint {
    /// Hash of the endpoint and of all bytes.
    digest: String,
    /// Charge for the parsed request in memory.
    permit: InputPermit,
}

/// The way in which the client of a request reads its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMode {
    /// The client gets the answer in one piece. Until then it sees nothing, not even that the agent is away.
    Whole,
    /// The client reads a stream, which also says that the agent is away.
    Streamed,
    /// The client asks for the answer later, by its id: the turn runs to its end with or without readers.
    Background,
}

/// A turn that was accepted, by this request or by an equal one before it.
pub struct SubmittedTurn {
    /// Reads the events of the turn.
    pub reader: TurnReader,
    /// The caller's name for its session.
    pub session: String,
    /// Number of the turn in its forge session; 0 in any other session.
    pub forge_index: u64,
}

impl SubmittedTurn {
    /// Unix time at which the turn was accepted: equal for every reader.
    pub async fn asked_at(&self, server: &Server) -> i64 {
        let run = self.reader.run.clone();
        let asked = server.store.read(move |tx| tx.asked_at(&run)).await;
        asked.ok().flatten().unwrap_or_else(unix_now)
    }
}

/// Identifies a request by its endpoint and all of its bytes.
pub fn fingerprint(endpoint: &str, body: CountedBody) -> RequestFingerprint {
    let digest = hash([endpoint, &hex(&Sha256::digest(&*body))]);
    RequestFingerprint { digest, permit: body.into_permit() }
}

/// Accepts a turn, or finds the one that an equal request began. Runs on its own task: the client may leave at any
/// moment, and a committed turn must run.
pub async fn submit_turn(
    server: &Arc<Server>,
    caller: &Caller,
    turn_request: TurnRequest,
) -> Result<SubmittedTurn, ApiError> {
    submit_response(server, caller, turn_request, None).await
}

/// Accepts a turn like [`submit_turn`], and stores it as a response if `keep` is given.
pub async fn submit_response(
    server: &Arc<Server>,
    caller: &Caller,
    turn_request: TurnRequest,
    keep: Option<ResponseRecord>,
) -> Result<SubmittedTurn, ApiError> {
    let (server, caller) = (server.clone(), caller.clone());
    let submitted =
        spawn_task("submit-a-turn", async move { submit_here(&server, &caller, turn_request, keep).await })
            .await;
    submitted.unwrap_or_else(|error| Err(ApiError::mistake(error)))
}

async fn submit_here(
    server: &Arc<Server>,
    caller: &Caller,
    turn_request: TurnRequest,
    keep: Option<ResponseRecord>,
) -> Result<SubmittedTurn, ApiError> {
    if server.draining.is_cancelled() {
        return Err(ApiError::draining());
    }
    // Every app may instruct an agent in a folder of its own.
    if turn_request.spoken.system.is_some() && turn_request.forge.is_none() {
        caller.may_instruct()?;
    }
    let TurnRequest {
        session,
        agent,
        spoken: ParsedMessages { system, history, now },
        turn_headers,
        params,
        answer,
        fingerprint,
        forge,
    } = turn_request;
    let (forge, one_shot) = match forge {
        Some(ForgeSubmission { turn, one_shot }) => (Some(Box::new(turn)), one_shot),
        None => (None, None),
    };
    let RequestFingerprint { digest, permit } = fingerprint;
    let (name, must_exist) = match &session {
        // After a response, the fresh name is used only if the session is forked.
        SessionSelector::Fresh | SessionSelector::After(_) => (fresh_name(), false),
        SessionSelector::Named(name) => (name.clone(), false),
        SessionSelector::Existing(name) => (name.clone(), true),
    };
    let ephemeral = matches!(session, SessionSelector::Fresh);
    let after = match session {
        SessionSelector::After(response) => Some(response),
        SessionSelector::Fresh | SessionSelector::Named(_) | SessionSelector::Existing(_) => None,
    };
    let patience = match (answer, &turn_headers.key) {
        (AnswerMode::Background, _) => WhenUnread::Endless,
        (AnswerMode::Whole | AnswerMode::Streamed, Some(_)) => WhenUnread::AWhile,
        (AnswerMode::Whole | AnswerMode::Streamed, None) => WhenUnread::None,
    };
    // A client that is told nothing while it waits, and cannot ask for the same turn again, had better ask later.
    // A session with an agent never queues.
    let when_away = match (answer, &turn_headers.key) {
        _ if forge.is_some() => WhenAway::Fail,
        (AnswerMode::Whole, None) => WhenAway::Fail,
        (AnswerMode::Whole, Some(_)) | (AnswerMode::Streamed | AnswerMode::Background, _) => WhenAway::Wait,
    };
    let history = server.turns.newest(history);
    let PromptContent { text, parts } = now;
    let memory = turn_headers.memory.map(|scope| caller.memory(&scope));
    // Whom an app relays for is its own word, and would go on under our key.
    let origin = if caller.is_owner() { turn_headers.origin } else { TurnOrigin::default() };
    let (app, hops) = (caller.app().to_owned(), turn_headers.hops);
    let request = AppRequest { app, parts, system, params, memory, hops, origin, patience, when_away, forge };
    let (agent, no_agent) = match agent {
        Ok(agent) => (agent, None),
        Err(problem) => (server.turns.agents().default_name().clone(), Some(problem)),
    };
    let row = turn_row(caller.session(&name), agent, text, request);
    // Before it is committed: the same may be asked again at this very moment, and must find it.
    let permit_to_run = server.limits.take(caller);
    let has_capacity = permit_to_run.is_ok();
    server.turns.announce(&row, permit_to_run);
    let id = row.id.clone();
    let taking = SubmitTransaction {
        turn: row,
        app: caller.app().to_owned(),
        key: turn_headers.key,
        digest,
        relayed: turn_headers.hops > 0,
        has_capacity,
        after,
        must_exist,
        ephemeral,
        history,
        keep,
        no_agent,
        one_shot,
    };
    let taken = server.store.write(move |tx| taking.take(tx)).await;
    drop(permit);
    if !matches!(taken, Ok(SubmitResult::Anew(..))) {
        server.turns.retract(&id);
    }
    let (run, session, forge_index) = match taken? {
        SubmitResult::Anew(session, forge_index) => {
            server.turns.place(&id, &session);
            server.turns.enqueue(&session, id.clone());
            (id, session, forge_index)
        }
        SubmitResult::Before(run) => {
            let wanted = run.clone();
            let before =
                server.store.read(move |tx| Ok((tx.turn_head(&wanted)?, tx.forge_turn_index(&wanted)?)));
            let (before, forge_index) = before.await?;
            (run, before.ok_or_else(ApiError::no_run)?.session, forge_index.unwrap_or_default())
        }
        SubmitResult::Refused(problem) => return Err(problem),
    };
    let session = caller.name_of(&session);
    let reader = TurnReader::open(server, caller, &run, turn_headers.last_event.as_deref());
    let reader = reader.map_err(|late| ApiError::from(late).about(&session, &run))?;
    Ok(SubmittedTurn { reader, session, forge_index })
}

/// The name of a session that nobody named.
pub fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("api_{now}_{}", random_hex(4))
}

fn turn_row(session: SessionId, agent: AgentName, prompt: String, request: AppRequest) -> TurnRow {
    let id = TurnId::random_run();
    TurnRow {
        session,
        source: TurnSource::App(Box::new(request)),
        prompt,
        agent: Some(agent),
        key: id.0.clone(),
        state: TurnState::Queued,
        stop: false,
        prepared: None,
        id,
    }
}
