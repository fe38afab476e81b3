//! `/api/sessions`: sessions and their messages as a resource.
//!
//! An app sees only its own sessions; the owner also sees those of rooms. An invalid name, an unknown session
//! and a session of another caller get byte for byte the same answer, so that probing reveals nothing.

mod chat;
mod page;
mod remove;
mod request;
mod stream;
mod view;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};

pub use chat::{ChatRequest, SessionCompletion, chat, chat_stream};
pub use page::{ListQuery, PageQuery};
pub use remove::remove;
pub use request::{ChangeRequest, ForkRequest, NewRequest};
use request::{SHORT, name, short, system_text, title};
pub use view::{DeletedSession, MessagePage, SessionDetail, SessionListing};
use view::{MessageView, SessionView};

use super::agent_choice::agent_of;
use super::body::JsonBody;
use super::path_params::SessionName;
use super::revocable_body::held;
use super::sse::SseBuffer;
use super::text_budget::LoadResult;
use super::{ApiError, Caller, Server, forge};
use crate::ids::SessionId;
use crate::store::{NewSession, SessionChange, SessionOwner, SessionPage, Tx};
use crate::util::one_line;

/// Most messages of a page, and the default.
const MESSAGES: usize = 10_000;

/// `GET /api/sessions`
pub async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    query: ListQuery,
) -> Result<Json<SessionListing>, ApiError> {
    let ListQuery { limit, offset, after } = query;
    let limit = limit.unwrap_or(50).min(200);
    let whose = match caller.is_owner() {
        true => SessionOwner::Owners,
        false => SessionOwner::App(caller.app().to_owned()),
    };
    // One more than is shown, to know whether there are more.
    let page = SessionPage { after: after.map(|name| caller.session(&name)), offset, limit: limit + 1 };
    let seen = server.store.read(move |tx| tx.seen_sessions(&whose, &page)).await?;
    let mut seen = seen.ok_or_else(|| {
        ApiError::wrong("after", "There is no such session any more; begin again without `after`")
    })?;
    let has_more = seen.len() > limit;
    seen.truncate(limit);
    let data = seen.into_iter().map(|seen| SessionView::new(&server, &caller, seen)).collect();
    Ok(Json(SessionListing { object: "list", data, limit, offset, has_more }))
}

/// `POST /api/sessions`
pub async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    JsonBody { value, .. }: JsonBody<NewRequest>,
) -> Result<(StatusCode, Json<SessionDetail>), ApiError> {
    let system_prompt = system_text(value.system_prompt, "system_prompt")?;
    if system_prompt.is_some() {
        caller.may_instruct()?;
    }
    let model = short(value.model, "model")?;
    let new = NewSession {
        title: title(value.title)?,
        agent: server.agent_named(&caller, model.as_deref()).await?,
        model,
        system_prompt,
        ..NewSession::new(&caller.session(&name(value.id.or(value.session_id))?), caller.app())
    };
    let seen = server.store.write(move |tx| {
        let id = SessionId(new.id.clone());
        if tx.has_session(&id)? {
            return Ok(None);
        }
        tx.create_session(&new)?;
        tx.seen_session(&id)
    });
    let seen = seen.await?.ok_or_else(exists)?;
    Ok((StatusCode::CREATED, Json(SessionDetail::new(&server, &caller, seen))))
}

/// `GET /api/sessions/{session_id}`
pub async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<SessionDetail>, ApiError> {
    let id = caller.session(&name);
    let seen = server.store.read(move |tx| tx.seen_session(&id)).await?;
    Ok(Json(SessionDetail::new(&server, &caller, seen.ok_or_else(ApiError::no_session)?)))
}

/// `PATCH /api/sessions/{session_id}`
pub async fn change(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    JsonBody { value, .. }: JsonBody<ChangeRequest>,
) -> Result<Json<SessionDetail>, ApiError> {
    let change = SessionChange {
        title: value.title.map(title).transpose()?,
        end_reason: short(value.end_reason, "end_reason")?,
    };
    let id = caller.session(&name);
    let seen = server.store.write(move |tx| {
        if change.end_reason.is_some() && tx.forge_session(&id)?.is_some() {
            return Ok(Err(forge::ended_elsewhere()));
        }
        // Does nothing if the session does not exist.
        tx.change_session(&id, &change)?;
        Ok(tx.seen_session(&id)?.ok_or_else(ApiError::no_session))
    });
    let seen = seen.await??;
    server.turns.end_sessions();
    Ok(Json(SessionDetail::new(&server, &caller, seen)))
}

/// `GET /api/sessions/{session_id}/messages`
pub async fn messages(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    page: PageQuery,
) -> Result<Response, ApiError> {
    let PageQuery { limit, offset } = page;
    let (id, limit) = (caller.session(&name), limit.unwrap_or(MESSAGES).min(MESSAGES));
    let read = move |tx: &Tx<'_>, most| {
        if !tx.has_session(&id)? {
            return Ok(LoadResult::Whole(None));
        }
        let (size, bytes) = tx.page_size(&id, limit, offset)?;
        Ok(match bytes > most {
            true => LoadResult::TooLong(bytes),
            false => LoadResult::Whole(Some(tx.page_of_messages(&id, size, offset)?)),
        })
    };
    let (page, room) = server.texts.load_soon(&server.store, &caller, read).await?;
    let page = page.ok_or_else(ApiError::no_session)?;
    let total = page.total;
    let mut frames = SseBuffer::default();
    let messages = page.messages.into_iter().zip(offset + 1..);
    let data: Vec<_> = messages.map(|(said, id)| MessageView::new(&name, id, said, &mut frames)).collect();
    let has_more = (offset + data.len()) < usize::try_from(total).unwrap_or(usize::MAX);
    let messages = MessagePage { object: "list", session_id: name, data, offset, total, has_more };
    Ok(held(frames.into_json(&messages), caller.revoked, room))
}

/// `POST /api/sessions/{session_id}/fork`
pub async fn fork(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(source): SessionName,
    JsonBody { value, .. }: JsonBody<ForkRequest>,
) -> Result<(StatusCode, Json<SessionDetail>), ApiError> {
    let (id, source) = (caller.session(&name(value.id.or(value.session_id))?), caller.session(&source));
    let (title, app) = (title(value.title)?, caller.app().to_owned());
    let forked = server.store.write(move |tx| {
        let Some(from) = tx.seen_session(&source)? else { return Ok(Err(ApiError::no_session())) };
        // A fork ends its source, whose agent would begin anew with the next turn.
        if tx.forge_session(&source)?.is_some() {
            return Ok(Err(forge::ended_elsewhere()));
        }
        if tx.has_session(&id)? {
            return Ok(Err(exists()));
        }
        let inherited = from.title.map(|title| one_line(&format!("{title} (fork)"), SHORT));
        let new = NewSession {
            title: title.or(inherited),
            model: from.model,
            system_prompt: tx.system_prompt(&source)?,
            agent: agent_of(tx, &source)?,
            parent: Some(source.0.clone()),
            ..NewSession::new(&id, &app)
        };
        tx.branch(&source, &new)?;
        Ok(tx.seen_session(&id)?.ok_or_else(ApiError::no_session))
    });
    let seen = forked.await??;
    server.turns.end_sessions();
    Ok((StatusCode::CREATED, Json(SessionDetail::new(&server, &caller, seen))))
}

fn exists() -> ApiError {
    let message = "There is a session of this id already; choose another one, or leave it out";
    ApiError::new(StatusCode::CONFLICT, "session_exists", message)
}
