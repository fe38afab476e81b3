//! What goes over the control socket.

use serde::{Deserialize, Serialize};

use crate::store::{AuditFilter, AuditRow, Pairing, RefusedRow, SessionOverview, TurnOverview};

/// `GET /status`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GatewayStatus {
    pub version: String,
    pub pid: u32,
    pub uptime_seconds: u64,
    pub home: String,
    /// Who answers, in words.
    pub agent: String,
    /// Who stands in while the agent is away, if anybody does.
    pub stand_in: Option<FallbackStatus>,
    /// Whether people are served.
    pub health: HealthReport,
    pub platforms: Vec<PlatformStatus>,
    /// The agent server, if it serves.
    pub server: Option<ServerStatus>,
    /// What runs and what waits, in order.
    pub turns: Vec<TurnOverview>,
}

/// Who stands in, of [`GatewayStatus`] and [`HealthReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// In words.
    pub name: String,
    /// The agent itself is away now.
    pub answers: bool,
}

/// The agent server of [`GatewayStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Where it listens.
    pub address: String,
    /// Programs that read an answer now.
    pub readers: i64,
}

/// One platform of [`GatewayStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformStatus {
    /// The name of its entry.
    pub name: String,
    /// Whether it reads.
    pub state: PlatformState,
    /// Messages that have not arrived yet.
    pub outbox: usize,
    /// Deleted messages whose earlier texts the network still keeps.
    #[serde(default)]
    pub cleanups: usize,
}

/// Whether a platform reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformState {
    /// Not yet.
    Starting,
    /// It does, as far as we know.
    Reads,
    /// It would, but does not reach its network.
    Away,
    /// It failed, and is tried again after a pause.
    Pausing,
    /// There is nothing more to read.
    Ended,
    /// There never was anything to read.
    Deaf,
    /// It cannot be used any more, and only a restart can change that.
    Lost,
}

/// `GET /health`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// Whether people are served.
    pub healthy: bool,
    /// One line: what is wrong, or that nothing is.
    pub words: String,
    /// Who stands in while the agent is away, if anybody does.
    pub stand_in: Option<FallbackStatus>,
}

/// `GET /live`: the process answers. Says nothing about the agent, the disk or the platforms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct AliveReport {
    pub alive: bool,
    pub pid: u32,
}

/// `POST /sessions`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsRequest {
    /// At most so many, the last used first.
    pub limit: usize,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct SessionList {
    pub sessions: Vec<SessionOverview>,
}

/// `POST /turns/stop`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The beginning of a turn's id; `None` for all of them.
    pub id: Option<String>,
}

/// Its answer: the turns that were asked to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct StoppedTurns {
    pub turns: Vec<TurnOverview>,
}

/// The answer of `POST /reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The file that was read; `None` when there is none.
    pub file: Option<String>,
    /// There was one when the process started.
    pub had_file: bool,
    /// The keys whose new values hold from now on.
    pub now: Vec<String>,
    /// The keys whose new values hold after a restart.
    pub restart: Vec<String>,
    /// Answers that were stopped because whoever asked for them may no longer.
    pub stopped: usize,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// `GET /pairings`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairingList {
    /// Those who wait and those who were let in.
    pub pairings: Vec<Pairing>,
    /// Too many codes were wrong; none is looked at until then, in seconds since 1970.
    pub locked_until: Option<i64>,
}

/// `POST /pairings/approve`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// As the operator typed it.
    pub code: String,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedPairing {
    /// Who may talk to us now.
    pub pairing: Pairing,
    /// Whether they can be told at once; otherwise at the next start.
    pub told_now: bool,
}

/// `POST /pairings/revoke`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The full id.
    pub person: String,
    /// On this account only.
    pub account: Option<String>,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokedPairing {
    /// What was forgotten.
    pub pairings: Vec<Pairing>,
    /// Answers that were stopped.
    pub stopped: usize,
    /// Accounts where a list lets them talk all the same.
    pub still_listed: Vec<String>,
}

/// `POST /audit`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditRequest {
    /// Which decisions.
    pub filter: AuditFilter,
    /// Only of this room: its id, or its hash as the audit shows it.
    pub room: Option<String>,
}

/// Its answer: the newest that fit, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct AuditReport {
    pub decisions: Vec<AuditRow>,
}

/// `GET /refused`: people on no list who tried of late.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the name says it")]
pub struct RefusedList {
    pub refused: Vec<RefusedRow>,
    /// Those of them whom the operator let in since, as account and person.
    pub paired: Vec<(String, String)>,
}

/// `GET /grants`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantList {
    /// What agents need not ask again.
    pub grants: Vec<GrantView>,
}

/// Something that an agent need not ask again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    /// What `talaria approvals revoke` takes.
    pub id: String,
    /// What it is, in the agent's words.
    pub title: String,
    /// Only in this session; `None` for the whole room.
    pub session: Option<String>,
    /// Where.
    pub account: String,
    /// Where.
    pub room: String,
    /// Who allowed it.
    pub by: String,
    /// When.
    pub granted: i64,
    /// Until when.
    pub expires: i64,
}

/// `POST /grants/revoke`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeGrantRequest {
    /// The beginning of its id.
    pub id: String,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokedGrant {
    /// What is asked again from now on.
    pub grant: GrantView,
}
