//! `POST /sessions/{session_id}/turn` and `…/cancel`: one turn in a forge session, answered in one piece or as a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_platform::spawn_task;

use super::agent_lines::AgentLines;
use super::prompt_files::with_files;
use super::turn_answer::{EventSource, answer};
use super::turn_clock::TurnClock;
use super::turn_events::TurnEvents;
use super::turn_outcome::ForgeEnd;
use super::{checked_prompt, closed, timeout};
use crate::agent::ModelParams;
use crate::ids::SessionId;
use crate::server::body::JsonBody;
use crate::server::content::{ParsedMessages, PromptContent};
use crate::server::headers::TurnHeaders;
use crate::server::path_params::SessionName;
use crate::server::submit::{
    AnswerMode, ForgeSubmission, SessionSelector, SubmittedTurn, TurnRequest, fingerprint,
};
use crate::server::turn_result::{EndParts, TurnResult};
use crate::server::{ApiError, Caller, Server};
use crate::turn_source::ForgeTurn;

/// Time between the limit of a turn and the answer, at most. The engine ends a turn much sooner; clients wait for 30 seconds.
pub(super) const LATE: Duration = Duration::from_secs(20);

/// Body of a request for a turn. Other fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ForgeTurnRequest")]
pub struct TurnBody {
    /// The prompt.
    #[schemars(required)]
    pub prompt: String,
    /// Tokens of files that were sent to `POST /files`; the agent is told where they are.
    pub files: Option<Vec<String>>,
    /// Seconds after which the turn is stopped and answered with what there is; the agent's own `turn_timeout` may stop it
    /// earlier. Default: 120.
    pub timeout_secs: Option<u64>,
}

/// Answer to a request that stops a turn.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CancelledForgeTurn")]
pub struct CancelledTurn {
    ok: bool,
    /// Whether a turn ran.
    cancelled: bool,
}

/// `POST /sessions/{session_id}/turn`
pub async fn turn(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    turn_headers: TurnHeaders,
    headers: HeaderMap,
    JsonBody { bytes, value }: JsonBody<TurnBody>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let session = server.own_forge_session(&caller, &name).await?;
    if session.closed.is_some() {
        return Err(closed());
    }
    let TurnBody { prompt, files, timeout_secs } = value;
    let (prompt, limit) = (checked_prompt(prompt)?, timeout(timeout_secs)?);
    let agent = server.forge_agent(&caller, Some(session.agent.as_str())).await;
    let folder = server.forge.make_for_session(&session.session).await?;
    // A request that no agent takes is refused by the submission, or answered with the turn that an equal one began.
    let tokens = files.filter(|_| agent.is_ok()).unwrap_or_default();
    let key = turn_headers.key.as_deref();
    let files = server.copy_files(&caller, &session.session, &tokens, key).await?;
    let streams = wants_events(&headers);
    let request = TurnRequest {
        fingerprint: fingerprint(&format!("/sessions/{name}/turn"), bytes),
        session: SessionSelector::Existing(name.clone()),
        agent,
        spoken: spoken(with_files(prompt, files.paths()), None),
        turn_headers: turn_headers.clone(),
        params: ModelParams::default(),
        answer: if streams { AnswerMode::Streamed } else { AnswerMode::Whole },
        forge: Some(ForgeSubmission {
            turn: ForgeTurn {
                folder,
                reads_only_the_end: !streams,
                model: session.model,
                ..ForgeTurn::default()
            },
            one_shot: None,
        }),
    };
    let submitted = server.submit_with_files(&caller, request, files).await?;
    let run = submitted.reader.run.clone();
    let clock = TurnClock::start(&server, session.session.clone(), &run, limit);
    let answering = ForgeAnswer { id: session.session, began, clock, limit };
    let answer = match streams {
        true => Ok(answering.stream(&server, submitted)),
        false => answering.whole(&server, submitted).await,
    };
    Ok(turn_headers.name(answer, &name, &run))
}

/// `POST /sessions/{session_id}/cancel`
pub async fn cancel(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<CancelledTurn>, ApiError> {
    let id = server.own_forge_session(&caller, &name).await?.session;
    let session = id.clone();
    let open = server.store.read(move |tx| tx.open_turns(&session)).await?;
    for turn in &open {
        server.turns.stop(&id, &turn.id).await?;
    }
    Ok(Json(CancelledTurn { ok: true, cancelled: !open.is_empty() }))
}

/// The prompt of a turn, with a system text if there is one.
pub(super) fn spoken(text: String, system: Option<String>) -> ParsedMessages {
    ParsedMessages { system, history: Vec::new(), now: PromptContent { text, parts: Vec::new() } }
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().flat_map(|value| value.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// A turn that was accepted and is to be answered.
struct ForgeAnswer {
    id: SessionId,
    began: Instant,
    clock: TurnClock,
    limit: Duration,
}

impl ForgeAnswer {
    fn stream(self, server: &Arc<Server>, submitted: SubmittedTurn) -> Response {
        let SubmittedTurn { reader, session, forge_index } = submitted;
        let Self { id, began, clock, .. } = self;
        let is_raw = server.turns.log_of(&reader.run).is_some_and(|log| log.has_raw());
        let on_end = {
            let server = server.clone();
            Box::new(move |end: &ForgeEnd| server.close_if_lost(&id, end))
        };
        let events = TurnEvents {
            lines: AgentLines::new(&session, &reader.run, is_raw),
            session,
            run: reader.run.clone(),
            turn_index: forge_index,
            began,
            clock,
            live: server.live.clone(),
            on_end: Some(on_end),
        };
        reader.stream(events)
    }

    async fn whole(self, server: &Arc<Server>, submitted: SubmittedTurn) -> Result<Response, ApiError> {
        let SubmittedTurn { reader, session, forge_index } = submitted;
        let Self { id, began, clock, limit } = self;
        let run = reader.run.clone();
        // Kept for the events, however long the answer takes to be sent.
        let log = server.turns.log_of(&run);
        let parts = if log.is_some() { EndParts::Outcome } else { EndParts::Text };
        let make = |result: Option<TurnResult>| {
            if let Some(unavailable) = result.as_ref().and_then(TurnResult::unavailable) {
                return unavailable.into_response();
            }
            let end = ForgeEnd::of(result.as_ref(), clock.has_timed_out());
            server.close_if_lost(&id, &end);
            let duration = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let lines = AgentLines::new(&session, &run, log.as_ref().is_some_and(|log| log.has_raw()));
            let source = match (log, result) {
                (Some(log), _) => EventSource::Log(log),
                (None, Some(result)) => EventSource::Stored(Box::new(result)),
                (None, None) => EventSource::Stored(Box::new(TurnResult::gone(Arc::default()))),
            };
            answer(end.status(), end.fields(&session, forge_index, duration), lines, &end.stop_reason, source)
        };
        let mut make = Some(make);
        let ended = tokio::time::timeout(limit + LATE, async {
            let answered = reader.until_the_end_with(parts, |result| match make.take() {
                Some(make) => make(Some(result)),
                None => closed().into_response(),
            });
            answered.await
        });
        match ended.await {
            Ok(answered) => answered,
            // The turn goes on against its stop; whatever it is, the client gets an answer.
            Err(_) => Ok(make.take().map_or_else(|| closed().into_response(), |make| make(None))),
        }
    }
}

impl Server {
    /// Closes a session that its agent has lost: it must not go on as an empty one.
    pub(super) fn close_if_lost(self: &Arc<Self>, id: &SessionId, end: &ForgeEnd) {
        if !end.session_lost {
            return;
        }
        let (server, id) = (self.clone(), id.clone());
        spawn_task("close-a-lost-session", async move {
            if let Err(problem) = server.close_forge_session(id).await {
                tracing::warn!(problem = problem.message, "a session that its agent has lost stays open");
            }
        });
    }
}
