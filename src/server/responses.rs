//! `/v1/responses`: turns in the form of OpenAI's Responses API, stored to be retrieved and continued.
//!
//! A response is a turn, and its id is the turn's in another form. It continues an earlier one
//! (`previous_response_id`) in the same session if that was the last turn there, otherwise in a new session
//! with the history up to it; instructions apply to their own turn alone. A response with `store: false` runs
//! like any other, but it can be neither retrieved nor continued.

mod approvals;
mod events;
mod input;
mod object;
mod request;
mod sequence;
mod stored;

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;

use self::events::ResponseEvents;
use self::object::ResponseInfo;
pub use self::object::{DeletedResponse, ResponseObject};
use self::request::CheckedRequest;
pub use self::request::ResponsesRequest;
use self::sequence::SeenSequence;
pub use self::stored::{InputItems, ItemsQuery, cancel, input_items};
use super::body::JsonBody;
use super::headers::{LAST_EVENT_ID, TurnHeaders};
use super::parameters::AgentParams;
use super::path_params::ResponseName;
use super::revocable_body::held;
use super::submit::{
    AnswerMode, ResponseRecord, SessionSelector, SubmittedTurn, TurnRequest, fingerprint, submit_response,
};
use super::turn_result::TurnResult;
use super::turn_stream::TurnReader;
use super::{ApiError, Caller, Server};
use crate::ids::TurnId;

/// Prefix of every response id; the digits of its turn follow.
const PREFIX: &str = "resp_";

/// `POST /v1/responses`
pub async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    mut turn_headers: TurnHeaders,
    JsonBody { bytes, value }: JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let model = value.model.clone();
    let CheckedRequest { spoken, echo, params, store, stream } = value.read(&server.settings.model)?;
    let seen = SeenSequence::before(turn_headers.last_event.take().as_deref(), None);
    let background = echo.background;
    let session = match (&echo.previous_response_id, &echo.conversation, &turn_headers.session) {
        (Some(previous), _, _) => SessionSelector::After(previous.clone()),
        (None, Some(name), _) | (None, None, Some(name)) => SessionSelector::Named(name.clone()),
        (None, None, None) => SessionSelector::Fresh,
    };
    let agent = server.agent_for(&caller, model.as_deref(), &session).await;
    let chosen = agent.and_then(|agent| Ok((params.for_agent(&server.turns.about(&agent))?, agent)));
    let (mut params, agent) = match chosen {
        Ok((params, agent)) => (params, Ok(agent)),
        Err(problem) => (AgentParams::default(), Err(problem)),
    };
    let turn_request = TurnRequest {
        session,
        agent,
        spoken,
        turn_headers: turn_headers.clone(),
        params: params.take(),
        answer: match (stream, background) {
            (_, true) => AnswerMode::Background,
            (true, false) => AnswerMode::Streamed,
            (false, false) => AnswerMode::Whole,
        },
        fingerprint: fingerprint("/v1/responses", bytes),
        forge: None,
    };
    let keep = store
        .then(|| ResponseRecord { previous: echo.previous_response_id.clone(), request: echo.written() });
    let submitted = submit_response(&server, &caller, turn_request, keep).await?;
    let created = submitted.asked_at(&server).await;
    let SubmittedTurn { reader, session, .. } = submitted;
    let run = reader.run.clone();
    let answer = ResponseInfo { id: id_of(&run), created, store, echo };
    let answer = match (stream, background) {
        (true, _) => Ok(reader.stream(ResponseEvents::new(answer, &run, seen))),
        (false, true) => answer.so_far(&server, &caller, &run).await,
        (false, false) => {
            reader
                .until_the_end(|end| match end.problem(&turn_headers) {
                    Some(problem) => problem.into_response(),
                    None => answer.ended(&end),
                })
                .await
        }
    };
    Ok(params.tell(turn_headers.name(answer, &session, &run)))
}

/// `GET /v1/responses/{response_id}`, with `?stream=true` as a stream.
pub async fn retrieve(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wanted = ResponseQuery::read(query.as_deref().unwrap_or_default())?;
    let app = caller.app().to_owned();
    let kept =
        server.store.read(move |tx| tx.response(&app, &id)).await?.ok_or_else(ApiError::no_response)?;
    let run = kept.turn.clone();
    let answer = ResponseInfo::kept(kept);
    if !wanted.stream {
        return answer.so_far(&server, &caller, &run).await;
    }
    let last_event = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let seen = SeenSequence::before(last_event, wanted.starting_after);
    Ok(TurnReader::open(&server, &caller, &run, None)?.stream(ResponseEvents::new(answer, &run, seen)))
}

/// `DELETE /v1/responses/{response_id}`
pub async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
) -> Result<Json<DeletedResponse>, ApiError> {
    let (app, wanted) = (caller.app().to_owned(), id.clone());
    match server.store.write(move |tx| tx.forget_response(&app, &wanted)).await? {
        true => Ok(Json(DeletedResponse { id, object: "response", deleted: true })),
        false => Err(ApiError::no_response()),
    }
}

/// Query string of a request that retrieves a response.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub struct ResponseQuery {
    stream: bool,
    starting_after: Option<u64>,
}

impl ResponseQuery {
    /// Parses the query string; ignores unknown parameters.
    fn read(query: &str) -> Result<Self, ApiError> {
        let mut wanted = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "stream" => {
                    wanted.stream = match value {
                        "true" | "True" | "1" => true,
                        "false" | "False" | "0" => false,
                        _ => return Err(ApiError::wrong("stream", "It is true or false")),
                    }
                }
                "starting_after" => {
                    let number = value.parse().map_err(|_| ApiError::wrong(name, "It must be a number"))?;
                    wanted.starting_after = Some(number);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

impl ResponseInfo {
    /// The response in its current state: complete if its turn has ended.
    async fn so_far(&self, server: &Server, caller: &Caller, run: &TurnId) -> Result<Response, ApiError> {
        let (ended, room) = TurnResult::read_soon(server, caller, run).await?;
        Ok(match ended {
            Some(ended) => held(self.ended(&ended), caller.revoked.clone(), room),
            None => Json(self.running()).into_response(),
        })
    }
}

/// Response id of a turn.
pub fn id_of(run: &TurnId) -> String {
    format!("{PREFIX}{}", run.0.rsplit('_').next().unwrap_or(&run.0))
}
