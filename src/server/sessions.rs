//! `/api/sessions`: what is remembered, as a resource.
//!
//! An app has its own sessions and knows of no others; the owner also has those of rooms. A name that cannot be one is
//! as absent as one that is not there, and what is not the caller's is absent too: the answers are the same byte for
//! byte.

mod chat;
mod page;
mod remove;
mod stream;
mod view;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

pub use chat::{ChatRequest, Completion, chat, chat_stream};
pub use page::Page;
pub use remove::remove;
pub use view::{Deleted, Listed, Messages, One};
use view::{Message, Session};

use super::begin::fresh_name;
use super::body::Body;
use super::heads::check_name;
use super::path::SessionName;
use super::{Caller, Problem, Server};
use crate::reply::one_line;
use crate::session::SessionId;
use crate::store::{Change, NewSession, Whose};

/// Characters of a title, a model and a reason.
const SHORT: usize = 200;

/// Bytes of what a session says in every system message.
const SYSTEM_PROMPT: usize = 64 * 1024;

/// Messages of a page, if nobody says how many, and the most.
const MESSAGES: usize = 10_000;

/// What a session begins with. Whatever else is sent changes nothing: whose it is follows from the key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionRequest")]
pub struct NewRequest {
    /// What it is called; a name is made for one that has none.
    #[serde(default)]
    pub id: Option<String>,
    /// The same, as some clients call it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
    /// For people: there is one agent.
    #[serde(default)]
    pub model: Option<String>,
    /// Said in the system message of every turn.
    #[serde(default)]
    pub system_prompt: Option<String>,
}

/// What of a session may be changed, and nothing else.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionChange")]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Another title; `null` for none.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", length(max = 200))]
    pub title: Option<Option<String>>,
    /// Why it is over.
    #[serde(default)]
    pub end_reason: Option<String>,
}

/// What a branch begins with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionForkRequest")]
pub struct ForkRequest {
    /// What it is called; a name is made for one that has none.
    #[serde(default)]
    pub id: Option<String>,
    /// The same, as some clients call it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
}

/// `GET /api/sessions`
pub async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    page: Page,
) -> Result<Json<Listed>, Problem> {
    let Page { limit, offset } = page;
    let limit = limit.unwrap_or(50).min(200);
    let whose = match caller.is_owner() {
        true => Whose::Owners,
        false => Whose::App(caller.app().to_owned()),
    };
    // One more than is shown says whether there are more.
    let mut seen = server.store.read(move |tx| tx.seen_sessions(&whose, limit + 1, offset)).await?;
    let has_more = seen.len() > limit;
    seen.truncate(limit);
    let data = seen.into_iter().map(|seen| Session::new(&server, &caller, seen)).collect();
    Ok(Json(Listed { object: "list", data, limit, offset, has_more }))
}

/// `POST /api/sessions`
pub async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Body { value, .. }: Body<NewRequest>,
) -> Result<(StatusCode, Json<One>), Problem> {
    let system_prompt = system_prompt(value.system_prompt)?;
    if system_prompt.is_some() {
        caller.may_instruct()?;
    }
    let new = NewSession {
        title: title(value.title)?,
        model: short(value.model, "model")?,
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
    Ok((StatusCode::CREATED, Json(One::new(&server, &caller, seen))))
}

/// `GET /api/sessions/{session_id}`
pub async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<One>, Problem> {
    let id = caller.session(&name);
    let seen = server.store.read(move |tx| tx.seen_session(&id)).await?;
    Ok(Json(One::new(&server, &caller, seen.ok_or_else(Problem::no_session)?)))
}

/// `PATCH /api/sessions/{session_id}`
pub async fn change(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    Body { value, .. }: Body<ChangeRequest>,
) -> Result<Json<One>, Problem> {
    let change = Change {
        title: value.title.map(title).transpose()?,
        end_reason: short(value.end_reason, "end_reason")?,
    };
    let id = caller.session(&name);
    let seen = server.store.write(move |tx| {
        // Of one that is not there nothing is changed.
        tx.change_session(&id, &change)?;
        tx.seen_session(&id)
    });
    Ok(Json(One::new(&server, &caller, seen.await?.ok_or_else(Problem::no_session)?)))
}

/// `GET /api/sessions/{session_id}/messages`
pub async fn messages(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    page: Page,
) -> Result<Json<Messages>, Problem> {
    let Page { limit, offset } = page;
    let (id, limit) = (caller.session(&name), limit.unwrap_or(MESSAGES).min(MESSAGES));
    let page = server.store.read(move |tx| match tx.has_session(&id)? {
        true => tx.page_of_messages(&id, limit, offset).map(Some),
        false => Ok(None),
    });
    let page = page.await?.ok_or_else(Problem::no_session)?;
    let total = page.total;
    let messages = page.messages.into_iter().enumerate();
    let data: Vec<_> = messages.map(|(index, said)| Message::new(&name, offset + index + 1, said)).collect();
    let has_more = (offset + data.len()) < usize::try_from(total).unwrap_or(usize::MAX);
    Ok(Json(Messages { object: "list", session_id: name, data, offset, total, has_more }))
}

/// `POST /api/sessions/{session_id}/fork`
pub async fn fork(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(source): SessionName,
    Body { value, .. }: Body<ForkRequest>,
) -> Result<(StatusCode, Json<One>), Problem> {
    let (id, source) = (caller.session(&name(value.id.or(value.session_id))?), caller.session(&source));
    let (title, app) = (title(value.title)?, caller.app().to_owned());
    let forked = server.store.write(move |tx| {
        let Some(from) = tx.seen_session(&source)? else { return Ok(Err(Problem::no_session())) };
        if tx.has_session(&id)? {
            return Ok(Err(exists()));
        }
        let inherited = from.title.map(|title| one_line(&format!("{title} (fork)"), SHORT));
        let new = NewSession {
            title: title.or(inherited),
            model: from.model,
            system_prompt: tx.system_prompt(&source)?,
            parent: Some(source.0.clone()),
            ..NewSession::new(&id, &app)
        };
        tx.branch(&source, &new)?;
        Ok(tx.seen_session(&id)?.ok_or_else(Problem::no_session))
    });
    let seen = forked.await??;
    Ok((StatusCode::CREATED, Json(One::new(&server, &caller, seen))))
}

fn exists() -> Problem {
    let message = "There is a session of this id already; choose another one, or leave it out";
    Problem::new(StatusCode::CONFLICT, "session_exists", message)
}

/// The name that was asked for, or a new one.
fn name(asked: Option<String>) -> Result<String, Problem> {
    match asked.as_deref().map(str::trim) {
        None | Some("") => Ok(fresh_name()),
        Some(name) => match check_name(name) {
            Ok(()) => Ok(name.to_owned()),
            Err(message) => Err(Problem::wrong("id", message)),
        },
    }
}

/// A title as rooms show them too: one line. Nothing visible is none.
fn title(title: Option<String>) -> Result<Option<String>, Problem> {
    let title = short(title, "title")?;
    Ok(title.map(|title| one_line(&title, SHORT)).filter(|title| !title.is_empty()))
}

fn short(text: Option<String>, param: &str) -> Result<Option<String>, Problem> {
    let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if text.as_deref().is_some_and(|text| text.chars().count() > SHORT || text.chars().any(char::is_control))
    {
        let message = format!("It has at most {SHORT} characters and no control characters");
        return Err(Problem::wrong(param, message));
    }
    Ok(text)
}

fn system_prompt(prompt: Option<String>) -> Result<Option<String>, Problem> {
    match prompt {
        Some(prompt) if prompt.len() > SYSTEM_PROMPT => {
            Err(Problem::wrong("system_prompt", format!("It has at most {SYSTEM_PROMPT} bytes")))
        }
        prompt => Ok(prompt.filter(|prompt| !prompt.trim().is_empty())),
    }
}

/// Tells `null` from nothing at all.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}
