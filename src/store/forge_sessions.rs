//! Sessions of the forge surface: what they have beside their row in `sessions`, their limits, and their audit.
//!
//! Such a session is a session of its app like any other. Only turns of this surface run in it; they are counted, and at most
//! one is open at a time.

use rusqlite::{OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::idempotency::NewSession;
use super::sessions::folder_name;
use super::{Result, Tx, unix_now};
use crate::ids::{AgentName, SessionId, TurnId};

/// Time that the audit of a deleted session stays, in seconds.
const AUDIT_KEPT: i64 = 30 * 24 * 60 * 60;

/// Sessions that one sweep closes, and that it deletes. Other writers wait for it.
const AT_ONCE: i64 = 200;

/// Most sessions of a list.
const LISTED: i64 = 1_000;

/// Most audit rows of one session that are read.
const EVENTS: i64 = 10_000;

/// SQL condition for sessions in which a turn waits or runs.
const IS_BUSY: &str = "EXISTS (SELECT 1 FROM turns WHERE turns.session = forge_sessions.session
    AND state IN ('queued', 'dispatched', 'streaming', 'finalizing'))";

/// A forge session as stored.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct ForgeSession {
    pub session: SessionId,
    pub app: String,
    pub agent: AgentName,
    pub model: Option<String>,
    pub meta: Option<Map<String, Value>>,
    pub one_shot: bool,
    pub created: i64,
    pub turns: u64,
    pub last_turn: Option<i64>,
    pub closed: Option<i64>,
}

/// A forge session that begins.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct NewForgeSession {
    pub session: SessionId,
    pub app: String,
    pub agent: AgentName,
    pub model: Option<String>,
    pub meta: Option<Map<String, Value>>,
}

/// Whether a turn may be added to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnAdmission {
    /// There is no such session.
    Absent,
    /// The session was closed.
    Closed,
    /// A turn of the session has not ended.
    Busy,
    /// The turn is counted; its number, from 1.
    Admitted(u64),
}

/// Result of closing a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseResult {
    /// There is no such session.
    Absent,
    /// The session was closed before.
    AlreadyClosed,
    /// The session is closed now. These turns of it were asked to stop.
    Closed(Vec<TurnId>),
}

/// The age at which sessions are closed and deleted, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepLimits {
    /// Time since the last turn, or since the beginning, after which a session is closed.
    pub ttl: i64,
    /// Time since its close after which a session is deleted.
    pub hard_ttl: i64,
}

/// Number of sessions that a sweep closed and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Sessions that were closed because nobody used them.
    pub soft_closed: u64,
    /// Sessions that were deleted.
    pub hard_deleted: u64,
}

/// Audit rows of single requests that are kept for an app: it makes three with each of them.
const RUN_EVENTS: i64 = 10_000;

/// Kind of an audit row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgeEventKind {
    /// The session began.
    Create,
    /// A turn was accepted.
    Turn,
    /// The app closed the session, or its agent lost it.
    Close,
    /// The sweeper closed the session.
    SweepClose,
    /// The session was deleted.
    HardDelete,
}

/// An audit row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeEvent {
    /// Name of the event.
    pub event: String,
    /// Time in seconds since 1970.
    pub at: i64,
    /// The accepted turn.
    pub turn: Option<TurnId>,
}

impl ForgeEventKind {
    /// Name in the store and over HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Turn => "turn",
            Self::Close => "close",
            Self::SweepClose => "sweep_close",
            Self::HardDelete => "hard_delete",
        }
    }
}

const COLUMNS: &str = "session, app, agent, model, meta, one_shot, created, turns, last_turn, closed";

impl Tx<'_> {
    /// Begins a session. `None` if `most` sessions of all apps are open already, or an app has its share of them: three
    /// quarters, so that others find one. The owner may have all.
    pub fn create_forge_session(&self, new: &NewForgeSession, most: usize) -> Result<Option<ForgeSession>> {
        let most = most as u64;
        let share = if new.app.is_empty() { most } else { (most * 3).div_ceil(4) };
        if self.open_forge_sessions(None)? >= most || self.open_forge_sessions(Some(&new.app))? >= share {
            return Ok(None);
        }
        self.tx_create(new, false)?;
        self.forge_session(&new.session)
    }

    /// Begins the session of a single request. It counts for no limit: a turn of it is open from the same transaction on.
    pub fn create_one_shot(&self, new: &NewForgeSession) -> Result<()> {
        self.tx_create(new, true)
    }

    fn tx_create(&self, new: &NewForgeSession, one_shot: bool) -> Result<()> {
        self.create_session(&NewSession {
            agent: Some(new.agent.clone()),
            model: new.model.clone(),
            ..NewSession::new(&new.session, &new.app)
        })?;
        let meta = new.meta.as_ref().map(serde_json::to_string).transpose()?;
        self.conn
            .prepare_cached(
                "INSERT INTO forge_sessions (session, app, agent, model, meta, one_shot, created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                new.session.0,
                new.app,
                new.agent.as_str(),
                new.model,
                meta,
                one_shot,
                unix_now()
            ])?;
        self.add_forge_event((&new.session, &new.app, one_shot), ForgeEventKind::Create, None)
    }

    /// Number of open sessions: of one app, or of all of them.
    pub fn open_forge_sessions(&self, app: Option<&str>) -> Result<u64> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM forge_sessions
             WHERE closed IS NULL AND one_shot = 0 AND (?1 IS NULL OR app = ?1)",
        )?;
        Ok(query.query_row([app], |row| row.get(0))?)
    }

    /// The session with this id.
    pub fn forge_session(&self, id: &SessionId) -> Result<Option<ForgeSession>> {
        let sql = format!("SELECT {COLUMNS} FROM forge_sessions WHERE session = ?1");
        let mut query = self.conn.prepare_cached(&sql)?;
        let mut rows = query.query([&id.0])?;
        rows.next()?.map(read_session).transpose()
    }

    /// The newest sessions of an app, the newest first; without the closed ones unless `with_closed`.
    pub fn forge_sessions(&self, app: &str, with_closed: bool) -> Result<Vec<ForgeSession>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM forge_sessions WHERE app = ?1 AND one_shot = 0 AND (?2 OR closed IS NULL)
             ORDER BY created DESC, session LIMIT ?3"
        );
        let mut query = self.conn.prepare_cached(&sql)?;
        let mut rows = query.query(params![app, with_closed, LISTED])?;
        let mut sessions = Vec::new();
        while let Some(row) = rows.next()? {
            sessions.push(read_session(row)?);
        }
        Ok(sessions)
    }

    /// Number of all sessions that [`Tx::forge_sessions`] would list without its limit.
    pub fn count_forge_sessions(&self, app: &str, with_closed: bool) -> Result<u64> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM forge_sessions WHERE app = ?1 AND one_shot = 0 AND (?2 OR closed IS NULL)",
        )?;
        Ok(query.query_row(params![app, with_closed], |row| row.get(0))?)
    }

    /// Counts a turn that is about to be stored, if the session takes one.
    pub fn admit_forge_turn(&self, id: &SessionId, turn: &TurnId) -> Result<TurnAdmission> {
        let Some(session) = self.forge_session(id)? else { return Ok(TurnAdmission::Absent) };
        if session.closed.is_some() {
            return Ok(TurnAdmission::Closed);
        }
        if !self.open_turns(id)?.is_empty() {
            return Ok(TurnAdmission::Busy);
        }
        self.conn
            .prepare_cached("UPDATE forge_sessions SET turns = turns + 1, last_turn = ?2 WHERE session = ?1")?
            .execute(params![id.0, unix_now()])?;
        self.add_forge_event((id, &session.app, session.one_shot), ForgeEventKind::Turn, Some(turn))?;
        Ok(TurnAdmission::Admitted(session.turns + 1))
    }

    /// A turn ended without having run: its agent was away, or there was no process for it. It does not count, and its number
    /// is that of the next one.
    pub(super) fn take_back_forge_turn(&self, id: &SessionId, turn: &TurnId) -> Result<()> {
        let taken = self
            .conn
            .prepare_cached("DELETE FROM forge_events WHERE session = ?1 AND turn = ?2")?
            .execute(params![id.0, turn.0])?;
        if taken == 0 {
            return Ok(());
        }
        // The time of the last turn stays after a first one: the session is not idle while its app tries again.
        self.conn
            .prepare_cached(
                "UPDATE forge_sessions SET turns = max(turns - 1, 0), last_turn = iif(turns > 1, last_turn, NULL)
                 WHERE session = ?1",
            )?
            .execute([&id.0])?;
        Ok(())
    }

    /// Number of an accepted turn in its forge session; `None` for a turn of another surface.
    pub fn forge_turn_index(&self, turn: &TurnId) -> Result<Option<u64>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT json_extract(brought, '$.forge.index') FROM turns WHERE id = ?1")?;
        let index: Option<Option<u64>> = query.query_row([&turn.0], |row| row.get(0)).optional()?;
        Ok(index.flatten())
    }

    /// This turn of a session ended just now: the time until it is closed begins. A turn that does not count changes
    /// nothing.
    pub fn touch_forge_session(&self, id: &SessionId, turn: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE forge_sessions SET last_turn = ?2 WHERE session = ?1 AND closed IS NULL
                     AND EXISTS (SELECT 1 FROM forge_events WHERE session = ?1 AND turn = ?3)",
            )?
            .execute(params![id.0, unix_now(), turn.0])?;
        Ok(())
    }

    /// Closes a session and asks its turns to stop. After the commit the caller stops them and lets the engine tell the
    /// agents.
    pub fn close_forge_session(&self, id: &SessionId, why: ForgeEventKind, now: i64) -> Result<CloseResult> {
        let Some(session) = self.forge_session(id)? else { return Ok(CloseResult::Absent) };
        if session.closed.is_some() {
            return Ok(CloseResult::AlreadyClosed);
        }
        self.conn
            .prepare_cached("UPDATE forge_sessions SET closed = ?2 WHERE session = ?1")?
            .execute(params![id.0, now])?;
        let open: Vec<_> = self.open_turns(id)?.into_iter().map(|turn| turn.id).collect();
        open.iter().try_for_each(|turn| self.ask_to_stop(turn))?;
        self.add_forge_event((id, &session.app, session.one_shot), why, None)?;
        self.end_session(id, why.name())?;
        Ok(CloseResult::Closed(open))
    }

    /// The single turn of a session is over: closes it, and forgets that it was one of this surface. Its question and
    /// answer stay until `expires`, for a client that asks again with its key.
    pub fn end_one_shot(&self, id: &SessionId, expires: i64) -> Result<()> {
        let Some(session) = self.forge_session(id)?.filter(|session| session.one_shot) else { return Ok(()) };
        self.add_forge_event((id, &session.app, true), ForgeEventKind::Close, None)?;
        self.end_session(id, ForgeEventKind::Close.name())?;
        self.conn
            .prepare_cached("UPDATE sessions SET passing = 1, expires = ?2 WHERE id = ?1")?
            .execute(params![id.0, expires])?;
        self.conn.prepare_cached("DELETE FROM forge_sessions WHERE session = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// Closes sessions that nobody uses, and deletes those that were closed long ago. A session whose turn has not ended is
    /// left alone. A part of the work, if there is much of it: `true` if there may be more.
    pub fn sweep_forge(&self, now: i64, limits: SweepLimits) -> Result<(SweepCounts, bool)> {
        let SweepLimits { ttl, hard_ttl } = limits;
        let idle = format!(
            "closed IS NULL AND one_shot = 0 AND coalesce(last_turn, created) < ?1 AND NOT {IS_BUSY}"
        );
        let old = format!("closed < ?1 AND NOT {IS_BUSY}");
        // A process that ended before it could clean up left these.
        let left = format!("one_shot = 1 AND coalesce(last_turn, created) < ?1 AND NOT {IS_BUSY}");
        let mut counts = SweepCounts::default();
        let idle = self.sessions_where(&idle, now - ttl)?;
        for id in &idle {
            let closed = self.close_forge_session(id, ForgeEventKind::SweepClose, now)?;
            if matches!(closed, CloseResult::Closed(_)) {
                counts.soft_closed += 1;
            }
        }
        let old = self.sessions_where(&old, now - hard_ttl)?;
        for id in &old {
            self.remove_session(id)?;
            counts.hard_deleted += 1;
        }
        let left = self.sessions_where(&left, now - ttl)?;
        left.iter().try_for_each(|id| self.remove_session(id))?;
        self.prune_forge_events(now)?;
        let most = AT_ONCE as usize;
        Ok((counts, idle.len() == most || old.len() == most || left.len() == most))
    }

    fn sessions_where(&self, filter: &str, before: i64) -> Result<Vec<SessionId>> {
        let sql = format!("SELECT session FROM forge_sessions WHERE {filter} LIMIT ?2");
        let mut query = self.conn.prepare_cached(&sql)?;
        let rows = query.query_map([before, AT_ONCE], |row| row.get(0).map(SessionId))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Names of the folders that sessions still need: of those that exist, and of those whose agent is yet to be told that
    /// they are over.
    pub fn forge_folders(&self) -> Result<Vec<String>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT session FROM forge_sessions UNION SELECT session FROM agent_ends")?;
        let rows = query.query_map([], |row| row.get(0).map(SessionId))?;
        Ok(rows.map(|id| id.map(|id| folder_name(&id).0)).collect::<rusqlite::Result<_>>()?)
    }

    /// Names of the folders of all sessions, each with its app.
    pub fn forge_folder_apps(&self) -> Result<Vec<(String, String)>> {
        let mut query = self.conn.prepare_cached("SELECT session, app FROM forge_sessions")?;
        let rows = query.query_map([], |row| Ok((SessionId(row.get(0)?), row.get(1)?)))?;
        Ok(rows.map(|row| row.map(|(id, app)| (folder_name(&id).0, app))).collect::<rusqlite::Result<_>>()?)
    }

    /// The newest part of the audit of a session, oldest first; also of one that was deleted. `app` leaves out what is not
    /// of this app; the operator reads that of all.
    pub fn forge_events(&self, app: Option<&str>, id: &SessionId) -> Result<Vec<ForgeEvent>> {
        let mut query = self.conn.prepare_cached(
            "SELECT event, at, turn FROM
                 (SELECT * FROM forge_events WHERE session = ?1 AND (?2 IS NULL OR app = ?2)
                  ORDER BY seq DESC LIMIT ?3)
             ORDER BY seq",
        )?;
        let rows = query.query_map(params![id.0, app, EVENTS], |row| {
            Ok(ForgeEvent {
                event: row.get(0)?,
                at: row.get(1)?,
                turn: row.get::<_, Option<_>>(2)?.map(TurnId),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Adds a row about a session of an app; the third is whether it is that of a single request.
    fn add_forge_event(
        &self,
        (id, app, one_shot): (&SessionId, &str, bool),
        kind: ForgeEventKind,
        turn: Option<&TurnId>,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO forge_events (session, app, event, turn, at, one_shot)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![id.0, app, kind.name(), turn.map(|turn| &turn.0), unix_now(), one_shot])?;
        Ok(())
    }

    /// Deletes the oldest audit rows of an app's single requests beyond `most`: how often an app asks has no other bound.
    fn prune_run_events(&self, most: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "DELETE FROM forge_events WHERE seq IN
                     (SELECT old.seq FROM (SELECT app FROM tokens UNION SELECT '') AS apps
                      JOIN forge_events AS old ON old.one_shot = 1 AND old.app = apps.app AND old.seq <=
                          (SELECT seq FROM forge_events WHERE one_shot = 1 AND app = apps.app
                           ORDER BY seq DESC LIMIT 1 OFFSET ?1))",
            )?
            .execute([most])?;
        Ok(())
    }

    /// Deletes the audit of sessions that were deleted long ago, and of single requests that ended long ago.
    fn prune_forge_events(&self, now: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "DELETE FROM forge_events WHERE session IN
                     (SELECT session FROM forge_events WHERE event = 'hard_delete' AND at < ?1)
                 OR at < ?1 AND event IN ('close', 'create', 'turn')
                     AND NOT EXISTS (SELECT 1 FROM forge_sessions WHERE forge_sessions.session = forge_events.session)
                     AND NOT EXISTS (SELECT 1 FROM forge_events AS later
                         WHERE later.session = forge_events.session AND later.at >= ?1)",
            )?
            .execute([now - AUDIT_KEPT])?;
        self.prune_run_events(RUN_EVENTS)
    }

    /// A session is being removed.
    pub(super) fn remove_forge_session(&self, id: &SessionId) -> Result<()> {
        let removed: Option<(String, bool)> = self
            .conn
            .prepare_cached("DELETE FROM forge_sessions WHERE session = ?1 RETURNING app, one_shot")?
            .query_row([&id.0], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match removed {
            Some((app, one_shot)) => {
                self.add_forge_event((id, &app, one_shot), ForgeEventKind::HardDelete, None)
            }
            None => Ok(()),
        }
    }
}

fn read_session(row: &Row<'_>) -> Result<ForgeSession> {
    let (agent, meta): (String, Option<String>) = (row.get(2)?, row.get(4)?);
    Ok(ForgeSession {
        session: SessionId(row.get(0)?),
        app: row.get(1)?,
        // Only names that were checked are stored.
        agent: AgentName::new(&agent).unwrap_or_else(AgentName::guide),
        model: row.get(3)?,
        meta: meta.as_deref().map(serde_json::from_str).transpose()?,
        one_shot: row.get(5)?,
        created: row.get(6)?,
        turns: row.get(7)?,
        last_turn: row.get(8)?,
        closed: row.get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::AppRights;
    use crate::store::tests::temporary;
    use crate::token::{self, TokenDigest};

    fn new(id: &str) -> NewForgeSession {
        NewForgeSession {
            session: SessionId(format!("forge/{id}")),
            app: "forge".to_owned(),
            agent: AgentName::local(),
            model: None,
            meta: None,
        }
    }

    fn kinds(events: &[ForgeEvent]) -> String {
        events.iter().map(|event| event.event.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn a_session_is_closed_when_it_is_idle_deleted_later_and_its_audit_stays_for_a_month() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let limits = SweepLimits { ttl: 100, hard_ttl: 1_000 };
                let id = new("one").session;
                let made = tx.create_forge_session(&new("one"), 1)?.unwrap();
                assert_eq!((made.turns, made.last_turn, made.closed), (0, None, None));
                assert!(tx.create_forge_session(&new("two"), 1)?.is_none(), "one is the most");
                let now = unix_now();
                assert_eq!(tx.sweep_forge(now + 99, limits)?.0, SweepCounts::default());
                let swept = tx.sweep_forge(now + 102, limits)?.0;
                assert_eq!(swept, SweepCounts { soft_closed: 1, hard_deleted: 0 });
                assert!(tx.forge_session(&id)?.unwrap().closed.is_some());
                assert_eq!(tx.admit_forge_turn(&id, &TurnId("t".to_owned()))?, TurnAdmission::Closed);
                assert!(tx.create_forge_session(&new("two"), 1)?.is_some(), "a closed one does not count");
                assert_eq!(tx.forge_folders()?.len(), 2);
                let swept = tx.sweep_forge(now + 1_103, limits)?.0;
                assert_eq!(swept, SweepCounts { soft_closed: 1, hard_deleted: 1 });
                assert_eq!((tx.forge_session(&id)?, tx.has_session(&id)?), (None, false));
                assert_eq!(tx.forge_folders()?.len(), 1);
                assert_eq!(kinds(&tx.forge_events(Some("forge"), &id)?), "create sweep_close hard_delete");
                assert_eq!(kinds(&tx.forge_events(Some("other"), &id)?), "");
                tx.sweep_forge(now + AUDIT_KEPT - 5, limits)?;
                assert_eq!(tx.forge_events(Some("forge"), &id)?.len(), 3);
                tx.sweep_forge(now + AUDIT_KEPT + 5, limits)?;
                assert_eq!(tx.forge_events(Some("forge"), &id)?, []);
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn turns_are_counted_from_one_and_a_close_happens_once() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let id = new("one").session;
                let turn = |name: &str| TurnId(name.to_owned());
                assert_eq!(tx.admit_forge_turn(&id, &turn("t"))?, TurnAdmission::Absent);
                assert_eq!(tx.close_forge_session(&id, ForgeEventKind::Close, 7)?, CloseResult::Absent);
                tx.create_forge_session(&new("one"), 10)?;
                assert_eq!(tx.admit_forge_turn(&id, &turn("t"))?, TurnAdmission::Admitted(1));
                assert_eq!(tx.admit_forge_turn(&id, &turn("u"))?, TurnAdmission::Admitted(2));
                let session = tx.forge_session(&id)?.unwrap();
                assert_eq!((session.turns, session.last_turn.is_some()), (2, true));
                assert_eq!(
                    tx.close_forge_session(&id, ForgeEventKind::Close, 7)?,
                    CloseResult::Closed(Vec::new())
                );
                assert_eq!(
                    tx.close_forge_session(&id, ForgeEventKind::Close, 7)?,
                    CloseResult::AlreadyClosed
                );
                assert_eq!(tx.forge_sessions("forge", false)?, []);
                assert_eq!(tx.forge_sessions("forge", true)?.len(), 1);
                assert_eq!(tx.forge_sessions("other", true)?, []);
                assert_eq!(kinds(&tx.forge_events(Some("forge"), &id)?), "create turn turn close");
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_single_request_is_not_listed_and_leaves_only_what_its_client_may_ask_for_again() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let id = new("run").session;
                tx.create_one_shot(&new("run"))?;
                assert_eq!(
                    (tx.forge_sessions("forge", true)?, tx.open_forge_sessions(None)?),
                    (Vec::new(), 0)
                );
                assert_eq!(tx.forge_folders()?.len(), 1);
                tx.end_one_shot(&id, unix_now() + 60)?;
                assert_eq!((tx.forge_session(&id)?, tx.has_session(&id)?), (None, true));
                assert_eq!(tx.forge_folders()?.len(), 0);
                assert_eq!(kinds(&tx.forge_events(Some("forge"), &id)?), "create close");
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn no_app_has_all_sessions_and_the_owner_may_have_them() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let of = |app: &str, id: &str| NewForgeSession { app: app.to_owned(), ..new(id) };
                for id in ["1", "2", "3"] {
                    assert!(tx.create_forge_session(&of("a", id), 4)?.is_some());
                }
                assert!(tx.create_forge_session(&of("a", "4"), 4)?.is_none());
                assert!(tx.create_forge_session(&of("b", "5"), 4)?.is_some());
                assert!(tx.create_forge_session(&of("b", "6"), 4)?.is_none(), "all are taken");
                assert!(tx.create_forge_session(&of("", "7"), 5)?.is_some());
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn very_many_sessions_are_all_counted_and_a_long_audit_ends_with_its_newest_rows() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                for number in 0..=LISTED {
                    tx.create_forge_session(&new(&number.to_string()), usize::MAX / 4)?;
                }
                assert_eq!(tx.forge_sessions("forge", false)?.len() as i64, LISTED);
                assert_eq!(tx.count_forge_sessions("forge", false)? as i64, LISTED + 1);
                let id = new("0").session;
                for _ in 0..EVENTS {
                    tx.add_forge_event((&id, "forge", false), ForgeEventKind::Turn, None)?;
                }
                tx.close_forge_session(&id, ForgeEventKind::Close, 7)?;
                let events = tx.forge_events(Some("forge"), &id)?;
                assert_eq!(events.len() as i64, EVENTS);
                assert_eq!(
                    (events[0].event.as_str(), events[events.len() - 1].event.as_str()),
                    ("turn", "close")
                );
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_turn_that_did_not_run_is_as_if_it_had_never_been() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let id = new("one").session;
                let [one, two] = ["one", "two"].map(|name| TurnId(name.to_owned()));
                tx.create_forge_session(&new("one"), 10)?;
                tx.admit_forge_turn(&id, &one)?;
                tx.take_back_forge_turn(&id, &one)?;
                tx.touch_forge_session(&id, &one)?;
                let session = tx.forge_session(&id)?.unwrap();
                assert_eq!((session.turns, session.last_turn), (0, None));
                assert_eq!(tx.admit_forge_turn(&id, &two)?, TurnAdmission::Admitted(1));
                // Once is enough.
                tx.take_back_forge_turn(&id, &one)?;
                let session = tx.forge_session(&id)?.unwrap();
                assert_eq!((session.turns, session.last_turn.is_some()), (1, true));
                assert_eq!(kinds(&tx.forge_events(None, &id)?), "create turn");
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn the_audit_of_single_requests_has_a_bound_for_each_app_and_that_of_sessions_stays() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let (session, run, other) = (new("session"), new("run"), new("other"));
                let other = NewForgeSession { app: "phone".to_owned(), ..other };
                for app in ["forge", "phone"] {
                    let token = TokenDigest::of(&token::make(token::PREFIX).unwrap()).unwrap();
                    assert!(tx.add_token(app, &token, &AppRights::default())?);
                }
                tx.create_forge_session(&session, 10)?;
                for new in [&run, &other] {
                    tx.create_one_shot(new)?;
                    tx.end_one_shot(&new.session, 0)?;
                }
                tx.prune_run_events(1)?;
                for (new, left) in [(&session, "create"), (&run, "close"), (&other, "close")] {
                    assert_eq!(kinds(&tx.forge_events(None, &new.session)?), left);
                }
                Ok(())
            })
            .await
            .unwrap();
    }
}
