//! `GET /health/detailed`: whether people and programs are served, and if not, what is in the way.

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

/// How things are.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Detailed")]
pub struct DetailedHealth {
    /// `ok`, or `not_ready` and the HTTP status is 503.
    status: &'static str,
    platform: &'static str,
    version: &'static str,
    pid: u32,
    /// `running` or `draining`.
    gateway_state: &'static str,
    /// What must hold, and whether it does.
    checks: BTreeMap<&'static str, HealthCheck>,
    /// The accounts on chat networks, by their names.
    platforms: BTreeMap<String, PlatformHealth>,
    /// Turns that run.
    active_agents: usize,
    /// Turns that wait for another of their session.
    waiting_turns: usize,
    /// Seconds since 1970.
    since: u64,
    /// Seconds since 1970.
    updated_at: i64,
}

/// One thing that must hold.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Check")]
struct HealthCheck {
    ok: bool,
    /// For people, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// One account.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Platform")]
struct PlatformHealth {
    /// `reads`, or what it does instead.
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
    let (store, agent) = tokio::join!(server.store.check(), server.turns.agent_health());
    let agent = agent.trouble().map_or(Ok(()), |trouble| Err(format!("it {trouble}")));
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
        platforms: platforms.into_iter().map(|(name, state)| (name, PlatformHealth { state })).collect(),
        active_agents,
        waiting_turns,
        since: server.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        updated_at: unix_now(),
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(detailed)))
}

/// Whether any platform reads, where there are any.
fn reads(platforms: &BTreeMap<String, &'static str>) -> Result<(), String> {
    match platforms.is_empty() || platforms.values().any(|state| *state == READS) {
        true => Ok(()),
        false => Err("no platform reads".to_owned()),
    }
}

/// What [`state`] says of a platform that does what it should.
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
