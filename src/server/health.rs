//! `GET /health/detailed`: whether the server is ready, and if not, why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::discovery::PLATFORM;
use super::{ApiError, Caller, Server};
use crate::delivery::{DeliveryAccount, ReadingState};
use crate::store::unix_now;

/// State of the server and its parts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Detailed")]
pub struct DetailedHealth {
    /// `ok`; or `not_ready`, with the HTTP status 503.
    status: &'static str,
    platform: &'static str,
    version: &'static str,
    pid: u32,
    /// `running` or `draining`.
    gateway_state: &'static str,
    /// Conditions for being ready.
    checks: BTreeMap<&'static str, HealthCheck>,
    /// Agents, by name. Only the default one is a condition for being ready.
    agents: BTreeMap<String, AgentView>,
    /// Accounts on chat networks, by name.
    platforms: BTreeMap<String, PlatformHealth>,
    /// Turns that run.
    active_agents: usize,
    /// Turns that wait for another turn of their session.
    waiting_turns: usize,
    /// Seconds since 1970.
    since: u64,
    /// Seconds since 1970.
    updated_at: i64,
}

/// One condition for being ready.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Check")]
struct HealthCheck {
    ok: bool,
    /// Reason for people, if the condition is not met.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// State of one agent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AgentState")]
struct AgentView {
    /// Whether it answers where no other agent is named.
    default: bool,
    /// Whether it would answer now.
    ok: bool,
    /// Reason for people, if it would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// State of one account.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Platform")]
struct PlatformHealth {
    /// `reads` if all is well; else `starting`, `away`, `pausing`, `ended` or `lost`.
    state: &'static str,
}

impl HealthCheck {
    fn of(result: Result<(), String>) -> Self {
        Self { ok: result.is_ok(), why: result.err() }
    }
}

/// `GET /health/detailed`
pub async fn detailed(
    State(server): State<Arc<Server>>,
    caller: Caller,
) -> Result<(StatusCode, Json<DetailedHealth>), ApiError> {
    caller.must_be_owner()?;
    let platforms: BTreeMap<_, _> =
        server.turns.accounts().map(|account| (account.id().to_string(), state(account))).collect();
    let draining = server.draining.is_cancelled();
    let (store, checked) = tokio::join!(server.store.check(), server.turns.all_agents_health());
    let default = server.turns.agents().default_name().clone();
    let agents: BTreeMap<_, _> = checked
        .into_iter()
        .map(|checked| {
            let why = checked.health.trouble().map(|trouble| format!("it {trouble}"));
            (checked.name.to_string(), AgentView { default: checked.name == default, ok: why.is_none(), why })
        })
        .collect();
    let agent = agents.values().find(|agent| agent.default).and_then(|agent| agent.why.clone());
    let agent = agent.map_or(Ok(()), Err);
    let checks = BTreeMap::from([
        ("store", HealthCheck::of(store)),
        ("agent", HealthCheck::of(agent)),
        ("platforms", HealthCheck::of(reads(&platforms))),
        (
            "taking",
            HealthCheck::of(if draining { Err("the process is about to end".to_owned()) } else { Ok(()) }),
        ),
    ]);
    let ready = checks.values().all(|check| check.ok);
    let (active_agents, waiting_turns) = server.turns.count();
    let detailed = DetailedHealth {
        status: if ready { "ok" } else { "not_ready" },
        platform: PLATFORM,
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        gateway_state: if draining { "draining" } else { "running" },
        checks,
        agents,
        platforms: platforms.into_iter().map(|(name, state)| (name, PlatformHealth { state })).collect(),
        active_agents,
        waiting_turns,
        since: server.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        updated_at: unix_now(),
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(detailed)))
}

/// Checks that at least one platform reads, if there are any.
fn reads(platforms: &BTreeMap<String, &'static str>) -> Result<(), String> {
    match platforms.is_empty() || platforms.values().any(|state| *state == READS) {
        true => Ok(()),
        false => Err("no platform reads".to_owned()),
    }
}

/// State of a platform that works.
const READS: &str = "reads";

fn state(account: &Arc<DeliveryAccount>) -> &'static str {
    if account.lost().is_cancelled() {
        return "lost";
    }
    match account.reading() {
        ReadingState::Starting => "starting",
        ReadingState::Reads if account.platform().is_away() => "away",
        ReadingState::Reads => READS,
        ReadingState::Pausing => "pausing",
        ReadingState::Ended => "ended",
    }
}
