//! Requests and responses of the control socket.

use serde::{Deserialize, Serialize};

use crate::agents::mcp::McpServerStatus;
use crate::store::{AuditFilter, AuditRow, ForgeEvent, Pairing, RefusedRow, SessionOverview, TurnOverview};

/// `GET /status`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GatewayStatus {
    pub version: String,
    pub pid: u32,
    pub uptime_seconds: u64,
    pub home: String,
    /// The agent, in words.
    pub agent: String,
    /// The fallback for when the agent is away, if there is one.
    pub stand_in: Option<FallbackStatus>,
    /// Every agent, the default one first.
    #[serde(default)]
    pub agents: Vec<AgentStatus>,
    /// MCP servers whose tools agents have, by name.
    #[serde(default)]
    pub mcp_servers: Vec<McpServerStatus>,
    /// Whether people are served.
    pub health: HealthReport,
    pub platforms: Vec<PlatformStatus>,
    /// The agent server, if it runs.
    pub server: Option<ServerStatus>,
    /// Running and waiting turns, in order.
    pub turns: Vec<TurnOverview>,
}

/// One agent, in [`GatewayStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its name.
    pub name: String,
    /// Whether it answers where no other agent is named.
    pub default: bool,
    /// The agent in words.
    pub agent: String,
    /// Its fault in words, to follow its name; `None` if it would answer.
    pub trouble: Option<String>,
    /// Lines about parts of it, such as the account that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

/// The fallback, in [`GatewayStatus`] and [`HealthReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// The fallback agent, in words.
    pub name: String,
    /// Whether it answers now, because the agent itself is away.
    pub answers: bool,
}

/// The agent server, in [`GatewayStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Address that it listens on.
    pub address: String,
    /// HTTP clients that read an answer now.
    pub readers: i64,
}

/// One platform, in [`GatewayStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformStatus {
    /// Name of its configuration entry.
    pub name: String,
    /// Whether it receives messages.
    pub state: PlatformState,
    /// Messages in the outbox that have not arrived yet.
    pub outbox: usize,
    /// Deleted messages whose earlier texts the network still keeps.
    #[serde(default)]
    pub cleanups: usize,
}

/// Whether a platform receives messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformState {
    /// The platform has not begun to read.
    Starting,
    /// The platform reads, as far as we know.
    Reads,
    /// The platform would read, but cannot reach its network.
    Away,
    /// The platform failed and is retried after a pause.
    Pausing,
    /// The platform has nothing more to read.
    Ended,
    /// The platform never had an input.
    Deaf,
    /// The platform cannot be used any more until a restart.
    Lost,
}

/// `GET /health`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// Whether people are served.
    pub healthy: bool,
    /// One line: the problem, or `ok`.
    pub words: String,
    /// The fallback for when the agent is away, if there is one.
    pub stand_in: Option<FallbackStatus>,
}

/// `GET /live`: the process answers. Says nothing about the agent, the disk or the platforms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct AliveReport {
    pub alive: bool,
    pub pid: u32,
    /// Address at which a program on this machine reaches the agent server, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// `POST /sessions`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsRequest {
    /// Most sessions to return, the last used first.
    pub limit: usize,
}

/// Response to `POST /sessions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct SessionList {
    pub sessions: Vec<SessionOverview>,
}

/// `POST /turns/stop`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Beginning of a turn's id; `None` for all turns.
    pub id: Option<String>,
}

/// Response to `POST /turns/stop`: the turns that were asked to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct StoppedTurns {
    pub turns: Vec<TurnOverview>,
}

/// Response to `POST /reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The file that was read; `None` if there is none.
    pub file: Option<String>,
    /// Whether there was a file when the process started.
    pub had_file: bool,
    /// Keys whose new values are in use now.
    pub now: Vec<String>,
    /// Keys whose new values need a restart.
    pub restart: Vec<String>,
    /// Turns that were stopped because the person who asked lost access.
    pub stopped: usize,
    /// Settings that are allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// `GET /pairings`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairingList {
    /// People who wait, and people who were approved.
    pub pairings: Vec<Pairing>,
    /// Set after too many wrong codes: no code is accepted before this time, in seconds since 1970.
    pub locked_until: Option<i64>,
}

/// `POST /pairings/approve`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// The code as the operator typed it.
    pub code: String,
}

/// Response to `POST /pairings/approve`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedPairing {
    /// The person who has access now.
    pub pairing: Pairing,
    /// Whether they can be told at once; otherwise they are told at the next start.
    pub told_now: bool,
}

/// `POST /pairings/revoke`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Full id of the person.
    pub person: String,
    /// Restricts the command to this account.
    pub account: Option<String>,
}

/// Response to `POST /pairings/revoke`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokedPairing {
    /// Pairings that were removed.
    pub pairings: Vec<Pairing>,
    /// Turns that were stopped.
    pub stopped: usize,
    /// Accounts where a list still gives the person access.
    pub still_listed: Vec<String>,
}

/// `POST /audit`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditRequest {
    /// Decisions to return.
    pub filter: AuditFilter,
    /// Restricts them to one room: its id, or its hash as shown in the audit.
    pub room: Option<String>,
}

/// Response to `POST /audit`: the newest decisions that match, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct AuditReport {
    pub decisions: Vec<AuditRow>,
}

/// `POST /forge/audit`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgeAuditRequest {
    /// A session that a program began: `APP/ID`, and `ID` for one of the owner's.
    pub session: String,
}

/// Response to `POST /forge/audit`: what happened to the session, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct ForgeAudit {
    pub events: Vec<ForgeEvent>,
}

/// Response to `GET /refused`: people on no list who recently wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct RefusedList {
    pub refused: Vec<RefusedRow>,
    /// People of this list who were approved since, as account and person.
    pub paired: Vec<(String, String)>,
}

/// `GET /grants`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantList {
    /// Approvals that last, so that agents need not ask again.
    pub grants: Vec<GrantView>,
}

/// An approval that lasts: the agent need not ask again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    /// Id to use with `talaria approvals revoke`.
    pub id: String,
    /// The approved action, in the agent's words.
    pub title: String,
    /// Session that it is limited to; `None` for the whole room.
    pub session: Option<String>,
    /// Account of the room.
    pub account: String,
    /// Room that it applies to.
    pub room: String,
    /// Person who approved.
    pub by: String,
    /// When it was approved, in seconds since 1970.
    pub granted: i64,
    /// When it ends, in seconds since 1970.
    pub expires: i64,
}

/// `POST /grants/revoke`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeGrantRequest {
    /// Beginning of the grant's id.
    pub id: String,
}

/// Response to `POST /grants/revoke`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokedGrant {
    /// The grant that was revoked.
    pub grant: GrantView,
}
