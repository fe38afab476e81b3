//! Routes of the control socket, and the handlers that only read.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use talaria_platform::{AccountId, RoomId, spawn_task};

use super::actions;
use super::api::{
    AgentStatus, AliveReport, AuditReport, AuditRequest, ForgeAudit, ForgeAuditRequest, GatewayStatus,
    GrantList, GrantView, HealthReport, PairingList, PlatformStatus, RefusedList, ServerStatus, SessionList,
    SessionsRequest,
};
use super::command_error::CommandError;
use super::health::{self, state};
use super::{ControlRules, ControlState, RunningGateway};
use crate::hub::pairing;
use crate::ids::SessionId;
use crate::store::{self, GrantRow, Tx, room_hash, unix_now};

/// Most bytes of a request. A list of filters takes a few hundred.
const QUESTION: usize = 64 * 1024;

/// Longest time to handle a request.
const WORK: Duration = Duration::from_secs(20);

/// Most decisions in one response; a client asks for further pages.
pub const PAGE: i64 = 5000;

/// Listed people who were refused: the age of the oldest refusal in seconds, and their largest number.
const REFUSED: (i64, usize) = (7 * 24 * 60 * 60, 50);

/// Result of a handler.
pub(super) type HandlerResult<T> = Result<Json<T>, CommandError>;

/// Unparsed body of a request; see [`read`].
pub(super) type RawRequest = Result<Bytes, BytesRejection>;

/// All routes of the control socket.
pub fn router(control: Arc<ControlState>) -> Router {
    Router::new()
        .merge(super::accounts::routes())
        .merge(super::codex::routes())
        .merge(super::tokens::routes())
        .route("/status", get(status))
        .route("/health", get(health))
        .route("/live", get(live))
        .route("/sessions", post(sessions))
        .route("/turns/stop", post(actions::stop))
        .route("/reload", post(actions::reload))
        .route("/pairings", get(pairings))
        .route("/pairings/approve", post(actions::approve))
        .route("/pairings/revoke", post(actions::revoke))
        .route("/audit", post(audit))
        .route("/forge/audit", post(forge_audit))
        .route("/refused", get(refused))
        .route("/grants", get(grants))
        .route("/grants/revoke", post(actions::revoke_grant))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .layer(from_fn(in_time))
        .layer(DefaultBodyLimit::max(QUESTION))
        // Behind the layers: tools have limits of their own.
        .merge(super::tools::routes())
        .with_state(control)
}

impl ControlState {
    /// The running gateway; an error if none runs.
    pub(super) fn running(&self) -> Result<&RunningGateway, CommandError> {
        self.running.as_ref().ok_or_else(|| CommandError::not_running(&self.home))
    }

    /// The current rules; an error if the configuration is wrong.
    pub(super) fn rules_now(&self) -> Result<Arc<crate::rules::Rules>, CommandError> {
        match &self.rules {
            ControlRules::Live(live) => Ok(live.now()),
            ControlRules::Written(config) => match &**config {
                Ok(config) => Ok(Arc::new(config.rules.clone())),
                Err(errors) => Err(CommandError::config(errors.clone())),
            },
        }
    }
}

/// Parses the body of a request.
pub(super) fn read<T: DeserializeOwned>(asked: RawRequest) -> Result<T, CommandError> {
    parse(&bytes(asked)?)
}

/// The body of a request.
pub(super) fn bytes(asked: RawRequest) -> Result<Bytes, CommandError> {
    asked
        .map_err(|error| CommandError::wrong(format!("the question is not readable: {error}"), OTHER_VERSION))
}

/// Parses JSON of a client.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CommandError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(&error))
}

/// The question of a client cannot be read.
pub(super) fn malformed(error: &dyn Display) -> CommandError {
    CommandError::wrong(format!("the question is not understood: {error}"), OTHER_VERSION)
}

/// Hint for a request that this version does not understand.
const OTHER_VERSION: &str = "this looks like another version of talaria; use the one that runs";

/// Handles a request in a task of its own, as the hub does: changes that the store has committed must be acted
/// on even if the client is gone or the time is up.
async fn in_time(request: Request, next: Next) -> Response {
    let answering = spawn_task("answer-a-command", next.run(request));
    let problem = match tokio::time::timeout(WORK, answering).await {
        Ok(Ok(response)) => return response,
        Ok(Err(_panicked)) => CommandError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "a bug kept talaria from answering",
            "look at the log; `talaria status` shows what holds now",
        ),
        Err(_) => CommandError::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("no answer within {} seconds; what was asked for may still happen", WORK.as_secs()),
            "look at the log and at `talaria status`, then try again",
        ),
    };
    problem.into_response()
}

async fn unknown(uri: Uri) -> CommandError {
    unknown_path(uri.path())
}

/// This version has no such route.
pub(super) fn unknown_path(path: &str) -> CommandError {
    let message = format!("the talaria that runs does not know `{path}`");
    CommandError::missing(message, "it is probably another version; restart it")
}

async fn status(State(control): State<Arc<ControlState>>) -> HandlerResult<GatewayStatus> {
    let running = control.running()?;
    let rules = control.rules_now()?;
    let mut platforms = Vec::new();
    for account in &running.accounts {
        let (id, now) = (account.id().clone(), unix_now());
        let waiting = move |tx: &Tx<'_>| Ok((tx.pending_count(&id, now)?, tx.cleanup_count(&id)?));
        let (outbox, cleanups) = control.store.read(waiting).await?;
        let (name, state) = (account.id().to_string(), state(running, account));
        platforms.push(PlatformStatus { name, state, outbox, cleanups });
    }
    let (health, checked) = health::judge(&control, running).await?;
    let default = running.turns.agents().default_name().clone();
    let agents = checked.into_iter().map(|checked| AgentStatus {
        default: checked.name == default,
        agent: rules.words.say(&checked.about.answering()),
        trouble: checked.health.trouble(),
        lines: checked.lines.iter().map(|line| rules.words.say(line)).collect(),
        name: checked.name.to_string(),
    });
    let agents = agents.collect();
    Ok(Json(GatewayStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: running.started.elapsed().as_secs(),
        home: control.home.display().to_string(),
        agent: rules.words.say(&running.turns.agent().answering()),
        stand_in: health.stand_in.clone(),
        agents,
        mcp_servers: running.services.as_ref().map(|services| services.mcp.status()).unwrap_or_default(),
        health,
        platforms,
        server: running.served.as_ref().map(|served| ServerStatus {
            address: format!("http://{}", served.address),
            readers: running.turns.metrics().readers.get(),
        }),
        turns: control.store.read(|tx| tx.turns_under_way()).await?,
    }))
}

async fn health(State(control): State<Arc<ControlState>>) -> HandlerResult<HealthReport> {
    let (health, _) = health::judge(&control, control.running()?).await?;
    Ok(Json(health))
}

async fn live(State(control): State<Arc<ControlState>>) -> Json<AliveReport> {
    let served = control.running.as_ref().and_then(|running| running.served.as_ref());
    let server = served.map(|served| format!("http://{}", reachable_here(served.address)));
    Json(AliveReport { alive: true, pid: std::process::id(), server })
}

/// The address at which this machine reaches a server that listens here; every address of it includes loopback.
fn reachable_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

async fn sessions(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<SessionList> {
    let SessionsRequest { limit } = read(asked)?;
    Ok(Json(SessionList { sessions: control.store.read(move |tx| tx.all_sessions(limit)).await? }))
}

async fn pairings(State(control): State<Arc<ControlState>>) -> HandlerResult<PairingList> {
    let (pairings, locked_until) = control
        .store
        .write(|tx| {
            let now = unix_now();
            pairing::forget_lapsed(tx, now)?;
            Ok((tx.pairings()?, pairing::locked_until(tx)?))
        })
        .await?;
    Ok(Json(PairingList { pairings, locked_until }))
}

async fn audit(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<AuditReport> {
    let AuditRequest { mut filter, room } = read(asked)?;
    filter.limit = Some(filter.limit.unwrap_or(PAGE).clamp(0, PAGE));
    let decisions = control
        .store
        .read(move |tx| {
            if let Some(room) = room {
                // The audit identifies rooms by a hash that differs for each account.
                let id = RoomId::new(room.clone());
                let hashed = |account: String| room_hash(&AccountId::new(account), &id);
                filter.rooms = tx.audited_accounts()?.into_iter().map(hashed).collect();
                filter.rooms.push(room);
            }
            tx.audited(&filter)
        })
        .await?;
    Ok(Json(AuditReport { decisions }))
}

/// The audit of a session that a program began: also of one that was deleted, and of an app whose token was revoked.
async fn forge_audit(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<ForgeAudit> {
    let ForgeAuditRequest { session } = read(asked)?;
    let id = SessionId(session);
    Ok(Json(ForgeAudit { events: control.store.read(move |tx| tx.forge_events(None, &id)).await? }))
}

async fn grants(State(control): State<Arc<ControlState>>) -> HandlerResult<GrantList> {
    let grants = control.store.read(|tx| tx.grants()).await?;
    Ok(Json(GrantList { grants: grants.into_iter().map(GrantView::from).collect() }))
}

impl From<GrantRow> for GrantView {
    fn from(row: GrantRow) -> Self {
        let GrantRow { id, title, session, account, room, by, granted, expires, agent: _ } = row;
        let (account, room) = (account.to_string(), room.to_string());
        Self { id, title, session: session.map(|session| session.0), account, room, by, granted, expires }
    }
}

async fn refused(State(control): State<Arc<ControlState>>) -> HandlerResult<RefusedList> {
    Ok(Json(control.store.read(refused_list).await?))
}

/// People who were recently refused because no list names them.
pub fn refused_list(tx: &Tx<'_>) -> store::Result<RefusedList> {
    let refused = tx.refused(unix_now() - REFUSED.0, REFUSED.1)?;
    let mut paired = Vec::new();
    for one in &refused {
        if tx.is_paired(&AccountId::from(one.account.as_str()), &one.actor)? {
            paired.push((one.account.clone(), one.actor.clone()));
        }
    }
    Ok(RefusedList { refused, paired })
}
