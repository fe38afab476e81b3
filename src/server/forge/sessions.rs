//! `/sessions`: begins, lists, reads and closes forge sessions, and reads their audit.
//!
//! An app sees its own sessions only. A session of another caller, one that was deleted and one that never was get the same
//! answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use talaria_platform::spawn_task;

use super::session_view::{
    AuditView, ClosedForgeSession, ForgeSessionList, ForgeSessionView, MadeForgeSession,
};
use super::{full, model};
use crate::ids::SessionId;
use crate::server::body::JsonBody;
use crate::server::path_params::SessionName;
use crate::server::{ApiError, Caller, Server};
use crate::store::{CloseResult, ForgeEventKind, ForgeSession, NewForgeSession, Tx, unix_now};
use crate::util::random_hex;

/// Most bytes of `meta` as JSON.
const LONGEST_META: usize = 16 * 1024;

/// Most sessions of an app that are stored, with those that are closed and not deleted yet.
const MOST_KEPT: u64 = 5_000;

/// `Retry-After` of an app that has so many: the oldest of them must be deleted first.
const KEPT_AGAIN: Duration = Duration::from_secs(600);

/// Body of a request that begins a session. Other fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "NewForgeSession")]
pub struct NewSessionBody {
    /// Name of the agent; without it, the agent of `forge.run_agent`.
    pub agent: Option<String>,
    /// Model of the agent; without it, the agent's usual one.
    pub model: Option<String>,
    /// Anything that the app wants to be told of the session again.
    pub meta: Option<Map<String, Value>>,
}

/// Query string of the list.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub struct ForgeListQuery {
    /// Whether closed sessions are listed too. Default: `false`.
    #[schemars(with = "Option<bool>")]
    include_closed: bool,
}

impl ForgeListQuery {
    fn read(query: &str) -> Result<Self, ApiError> {
        let value = query.split('&').filter_map(|pair| pair.split_once('=').or(Some((pair, ""))));
        let value = value.into_iter().rfind(|(name, _)| *name == "include_closed").map(|(_, value)| value);
        match value.map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "false" | "0" | "no" | "off") => Ok(Self { include_closed: false }),
            Some("true" | "1" | "yes" | "on") => Ok(Self { include_closed: true }),
            Some(_) => Err(ApiError::wrong("include_closed", "It is true or false")),
        }
    }
}

/// Name for a new session. Random, so that it never is that of a deleted one.
pub fn new_name() -> String {
    format!("fs_{}", random_hex(16))
}

/// `POST /sessions`
pub async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    JsonBody { value, .. }: JsonBody<NewSessionBody>,
) -> Result<Json<MadeForgeSession>, ApiError> {
    if server.draining.is_cancelled() {
        return Err(ApiError::draining());
    }
    let NewSessionBody { agent, model: wanted, meta } = value;
    let agent = server.forge_agent(&caller, agent.as_deref()).await?;
    let meta_bytes = meta.as_ref().map_or(0, |meta| Value::Object(meta.clone()).to_string().len());
    if meta_bytes > LONGEST_META {
        return Err(ApiError::wrong("meta", format!("It has at most {LONGEST_META} bytes as JSON")));
    }
    let new = NewForgeSession {
        session: caller.session(&new_name()),
        app: caller.app().to_owned(),
        agent,
        model: model(wanted)?,
        meta,
    };
    let most = server.settings.forge.config.max_live_sessions;
    let made = server.store.write(move |tx| {
        if tx.count_forge_sessions(&new.app, true)? >= MOST_KEPT {
            return Ok(Err(too_many_kept()));
        }
        Ok(tx.create_forge_session(&new, most)?.ok_or_else(full))
    });
    Ok(Json(MadeForgeSession::new(&caller, made.await??)))
}

/// `GET /sessions`
pub async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<ForgeSessionList>, ApiError> {
    let ForgeListQuery { include_closed } = ForgeListQuery::read(&query.unwrap_or_default())?;
    let app = caller.app().to_owned();
    let read = move |tx: &Tx<'_>| {
        Ok((tx.count_forge_sessions(&app, include_closed)?, tx.forge_sessions(&app, include_closed)?))
    };
    let (count, sessions) = server.store.read(read).await?;
    let sessions = sessions.into_iter().map(|session| ForgeSessionView::new(&server, &caller, session));
    Ok(Json(ForgeSessionList::new(count, sessions.collect())))
}

/// `GET /sessions/{session_id}`
pub async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<ForgeSessionView>, ApiError> {
    let session = server.own_forge_session(&caller, &name).await?;
    Ok(Json(ForgeSessionView::new(&server, &caller, session)))
}

/// `DELETE /sessions/{session_id}`: stops what runs and closes the session. A second close is no error, so that clients can
/// close in any case.
pub async fn close(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<ClosedForgeSession>, ApiError> {
    let id = server.own_forge_session(&caller, &name).await?.session;
    match server.close_forge_session(id).await? {
        CloseResult::Absent => Err(ApiError::no_session()),
        CloseResult::AlreadyClosed => Ok(Json(ClosedForgeSession::new(true))),
        CloseResult::Closed(_) => Ok(Json(ClosedForgeSession::new(false))),
    }
}

/// `GET /sessions/{session_id}/audit`: also of a session that was deleted, for 30 days.
pub async fn audit(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<AuditView>, ApiError> {
    let (app, id) = (caller.app().to_owned(), caller.session(&name));
    let events = server.store.read(move |tx| tx.forge_events(Some(&app), &id)).await?;
    match events.is_empty() {
        true => Err(ApiError::no_session()),
        false => Ok(Json(AuditView::new(name, events))),
    }
}

fn too_many_kept() -> ApiError {
    let message =
        "This app has closed too many sessions lately; ask again when the oldest of them are deleted";
    ApiError { code: "too_many_sessions", ..ApiError::busy(message, KEPT_AGAIN) }
}

impl Server {
    /// The caller's session of this name. The session of a single request is none.
    pub(super) async fn own_forge_session(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<ForgeSession, ApiError> {
        let (id, app) = (caller.session(name), caller.app().to_owned());
        let found = self.store.read(move |tx| tx.forge_session(&id)).await?;
        // The id of the owner's session could have the form of an app's.
        found.filter(|session| session.app == app && !session.one_shot).ok_or_else(ApiError::no_session)
    }

    /// Closes a session and stops what runs in it, also if the client is gone meanwhile.
    pub(super) async fn close_forge_session(
        self: &Arc<Self>,
        id: SessionId,
    ) -> Result<CloseResult, ApiError> {
        let server = self.clone();
        let closing = async move {
            let session = id.clone();
            let closed = server
                .store
                .write(move |tx| tx.close_forge_session(&session, ForgeEventKind::Close, unix_now()))
                .await?;
            if let CloseResult::Closed(open) = &closed {
                open.iter().for_each(|turn| server.turns.stop_turn(&id, turn));
                server.turns.end_sessions();
            }
            Ok(closed)
        };
        spawn_task("close-a-session", closing).await.unwrap_or_else(|error| Err(ApiError::mistake(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_sessions_are_listed_only_if_that_is_asked_clearly() {
        let read = |query: &str| ForgeListQuery::read(query).map(|query| query.include_closed).ok();
        for query in
            ["", "include_closed", "include_closed=", "include_closed=false", "x=true", "include_closed=0"]
        {
            assert_eq!(read(query), Some(false), "{query}");
        }
        for query in ["include_closed=true", "a=b&include_closed=1", "include_closed=True"] {
            assert_eq!(read(query), Some(true), "{query}");
        }
        assert_eq!(read("include_closed=perhaps"), None);
    }

    #[test]
    fn a_session_has_a_name_that_nobody_guesses() {
        let name = new_name();
        assert!(name.len() >= 16 && name != new_name());
        assert!(crate::server::headers::check_name(&name).is_ok());
    }
}
