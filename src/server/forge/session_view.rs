//! Forge sessions and their audit as clients see them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::server::{Caller, Server};
use crate::store::{ForgeEvent, ForgeSession, folder_name};

/// A session that was begun.
#[derive(Serialize, JsonSchema)]
pub struct MadeForgeSession {
    ok: bool,
    session_id: String,
    agent: String,
    model: Option<String>,
    /// Seconds since 1970.
    created_at: i64,
}

/// A session.
#[derive(Serialize, JsonSchema)]
pub struct ForgeSessionView {
    ok: bool,
    session_id: String,
    agent: String,
    model: Option<String>,
    /// What the app said about it when it began.
    meta: Option<Map<String, Value>>,
    /// Number of turns that were accepted.
    turn_count: u64,
    /// Seconds since 1970.
    last_turn_at: Option<i64>,
    /// Seconds since 1970.
    created_at: i64,
    /// Seconds since 1970.
    closed_at: Option<i64>,
    /// Whether a process of its agent is up.
    live: bool,
}

/// Sessions of an app.
#[derive(Serialize, JsonSchema)]
pub struct ForgeSessionList {
    ok: bool,
    /// Number of all of them.
    count: u64,
    /// The newest first, at most 1,000.
    sessions: Vec<ForgeSessionView>,
}

/// A session that is closed.
#[derive(Serialize, JsonSchema)]
pub struct ClosedForgeSession {
    ok: bool,
    /// It was closed before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(with = "Option<bool>")]
    already_closed: bool,
}

/// The audit of a session.
#[derive(Serialize, JsonSchema)]
pub struct AuditView {
    ok: bool,
    session_id: String,
    /// The newest 10,000, oldest first.
    events: Vec<AuditEventView>,
}

/// An audit row of a session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ForgeAuditEvent")]
struct AuditEventView {
    /// `create`, `turn`, `close`, `sweep_close` or `hard_delete`.
    event: String,
    /// Seconds since 1970.
    at: i64,
    /// Id of the accepted turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
}

impl MadeForgeSession {
    pub(super) fn new(caller: &Caller, session: ForgeSession) -> Self {
        Self {
            ok: true,
            session_id: caller.name_of(&session.session),
            agent: session.agent.to_string(),
            model: session.model,
            created_at: session.created,
        }
    }
}

impl ForgeSessionView {
    pub(super) fn new(server: &Server, caller: &Caller, session: ForgeSession) -> Self {
        let agents = server.turns.agents();
        let live = session.closed.is_none()
            && agents
                .get(&session.agent)
                .is_some_and(|agent| agent.has_process(&folder_name(&session.session)));
        Self {
            ok: true,
            session_id: caller.name_of(&session.session),
            agent: session.agent.to_string(),
            model: session.model,
            meta: session.meta,
            turn_count: session.turns,
            last_turn_at: session.last_turn,
            created_at: session.created,
            closed_at: session.closed,
            live,
        }
    }
}

impl ForgeSessionList {
    pub(super) fn new(count: u64, sessions: Vec<ForgeSessionView>) -> Self {
        Self { ok: true, count, sessions }
    }
}

impl ClosedForgeSession {
    pub(super) fn new(already_closed: bool) -> Self {
        Self { ok: true, already_closed }
    }
}

impl AuditView {
    pub(super) fn new(session_id: String, events: Vec<ForgeEvent>) -> Self {
        let view =
            |ForgeEvent { event, at, turn }| AuditEventView { event, at, run_id: turn.map(|turn| turn.0) };
        Self { ok: true, session_id, events: events.into_iter().map(view).collect() }
    }
}
