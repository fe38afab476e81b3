//! `/v1/responses`: the same turns in the shape of OpenAI's newer protocol, kept to be found again and gone on from.
//!
//! A response is a turn, and its id is the turn's under another name. It goes on from an earlier one
//! (`previous_response_id`) in the same session if nothing came after that there, otherwise in a session made of what
//! was said up to it; instructions are for their own turn alone. One that is asked with `store: false` runs like any
//! other, but nobody finds it, and nothing goes on from it.

mod events;
mod input;
mod object;
mod questions;
mod request;
mod seen;
mod stored;

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;

use self::events::ResponseEvents;
use self::object::Answer;
pub use self::object::{Deleted, Response as ResponseObject};
use self::request::Asked;
pub use self::request::ResponsesRequest;
use self::seen::Seen;
pub use self::stored::{InputItems, ItemsQuery, cancel, input_items};
use super::begin::{AnswerMode, Asking, Begun, Kept, Which, begin_kept, fingerprint};
use super::body::Body;
use super::ended::Ended;
use super::follow::Follow;
use super::heads::{Heads, LAST_EVENT_ID};
use super::held::held;
use super::path::ResponseName;
use super::{Caller, Problem, Server};
use crate::session::TurnId;

/// What the id of every response begins with; then the digits of its turn.
const PREFIX: &str = "resp_";

/// `POST /v1/responses`
pub async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    mut heads: Heads,
    Body { bytes, value }: Body<ResponsesRequest>,
) -> Result<Response, Problem> {
    let Asked { spoken, echo, params, store, stream } = value.read(&server.settings.model)?;
    let mut params = params.for_agent(&server.turns.agent())?;
    let seen = Seen::before(heads.last_event.take().as_deref(), None);
    let background = echo.background;
    let session = match (&echo.previous_response_id, &echo.conversation, &heads.session) {
        (Some(previous), _, _) => Which::After(previous.clone()),
        (None, Some(name), _) | (None, None, Some(name)) => Which::Named(name.clone()),
        (None, None, None) => Which::Fresh,
    };
    let asking = Asking {
        session,
        spoken,
        heads: heads.clone(),
        params: params.take(),
        answer: match (stream, background) {
            (_, true) => AnswerMode::Background,
            (true, false) => AnswerMode::Streamed,
            (false, false) => AnswerMode::Whole,
        },
        fingerprint: fingerprint("/v1/responses", bytes),
    };
    let keep = store.then(|| Kept { previous: echo.previous_response_id.clone(), request: echo.written() });
    let begun = begin_kept(&server, &caller, asking, keep).await?;
    let created = begun.asked_at(&server).await;
    let Begun { follow, session } = begun;
    let run = follow.run.clone();
    let answer = Answer { id: id_of(&run), created, store, echo };
    let answer = match (stream, background) {
        (true, _) => Ok(follow.stream(ResponseEvents::new(answer, &run, seen))),
        (false, true) => answer.so_far(&server, &caller, &run).await,
        (false, false) => {
            follow
                .until_the_end(|end| match end.problem(&heads) {
                    Some(problem) => problem.into_response(),
                    None => answer.ended(&end),
                })
                .await
        }
    };
    Ok(params.tell(heads.name(answer, &session, &run)))
}

/// `GET /v1/responses/{response_id}`, with `?stream=true` as a stream.
pub async fn retrieve(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wanted = ResponseQuery::read(query.as_deref().unwrap_or_default())?;
    let app = caller.app().to_owned();
    let kept = server.store.read(move |tx| tx.response(&app, &id)).await?.ok_or_else(Problem::no_response)?;
    let run = kept.turn.clone();
    let answer = Answer::kept(kept);
    if !wanted.stream {
        return answer.so_far(&server, &caller, &run).await;
    }
    let last_event = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let seen = Seen::before(last_event, wanted.starting_after);
    Ok(Follow::open(&server, &caller, &run, None)?.stream(ResponseEvents::new(answer, &run, seen)))
}

/// `DELETE /v1/responses/{response_id}`
pub async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
) -> Result<Json<Deleted>, Problem> {
    let (app, wanted) = (caller.app().to_owned(), id.clone());
    match server.store.write(move |tx| tx.forget_response(&app, &wanted)).await? {
        true => Ok(Json(Deleted { id, object: "response", deleted: true })),
        false => Err(Problem::no_response()),
    }
}

/// How a response is to be shown.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub struct ResponseQuery {
    stream: bool,
    starting_after: Option<u64>,
}

impl ResponseQuery {
    /// Reads the part of the address behind the question mark. What is not known there is for others.
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "stream" => {
                    wanted.stream = match value {
                        "true" | "True" | "1" => true,
                        "false" | "False" | "0" => false,
                        _ => return Err(Problem::wrong("stream", "It is true or false")),
                    }
                }
                "starting_after" => {
                    let number = value.parse().map_err(|_| Problem::wrong(name, "It must be a number"))?;
                    wanted.starting_after = Some(number);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

impl Answer {
    /// As it is now: whole if its turn is over.
    async fn so_far(&self, server: &Server, caller: &Caller, run: &TurnId) -> Result<Response, Problem> {
        let (ended, room) = Ended::read_soon(server, caller, run).await?;
        Ok(match ended {
            Some(ended) => held(self.ended(&ended), caller.revoked.clone(), room),
            None => Json(self.running()).into_response(),
        })
    }
}

/// What a turn is called as a response.
pub fn id_of(run: &TurnId) -> String {
    format!("{PREFIX}{}", run.0.rsplit('_').next().unwrap_or(&run.0))
}
