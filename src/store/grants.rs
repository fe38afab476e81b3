//! Grants: asks that a person has approved for longer than once, so that agents need not ask again.

use rusqlite::params;
use talaria_platform::{AccountId, RoomId};

use super::{AskRow, Result, TurnRow, Tx, stored_question, unix_now};
use crate::access::{GrantScope, PlaceKind};
use crate::ids::{AgentName, SessionId};

/// Lifetime of a grant, in days.
pub const GRANT_DAYS: usize = 30;

/// Lifetime of a grant, in seconds; rows of finished asks are kept as long.
pub(super) const KEPT: i64 = GRANT_DAYS as i64 * 24 * 60 * 60;

/// An approval that holds for equal asks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct GrantRow {
    pub id: String,
    pub title: String,
    pub session: Option<SessionId>,
    pub account: AccountId,
    pub room: RoomId,
    pub by: String,
    pub granted: i64,
    pub expires: i64,
    pub agent: Option<AgentName>,
}

impl Tx<'_> {
    /// Stores a grant for equal asks of the agent that asked, which may be the fallback: in this session, or in this room for every session. It holds
    /// while the room is the same kind of place as now.
    pub fn add_grant(&self, ask: &AskRow, turn: &TurnRow, grant: GrantScope, by: &str) -> Result<()> {
        let place = PlaceKind::from(stored_question(&turn.id, &turn.source).direct);
        self.add_grant_in(ask, place, grant, by)
    }

    pub(super) fn add_grant_in(
        &self,
        ask: &AskRow,
        place: PlaceKind,
        grant: GrantScope,
        by: &str,
    ) -> Result<()> {
        let session = match grant {
            GrantScope::Once => return Ok(()),
            GrantScope::Session => Some(&ask.session.0),
            GrantScope::Always => None,
        };
        let now = unix_now();
        // There are few grants, made by hand, so each new one can clean up the expired ones.
        self.conn.prepare_cached("DELETE FROM grants WHERE expires <= ?1")?.execute([now])?;
        self.conn
            .prepare_cached(
                "INSERT INTO grants (id, digest, title, session, account, room, place, by, granted, expires, agent)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT coalesce(request_for, agent) FROM turns WHERE id = ?11))",
            )?
            .execute(params![
                crate::util::random_hex(4),
                ask.digest,
                ask.title,
                session,
                ask.account.as_str(),
                ask.place.room.as_str(),
                place.name(),
                by,
                now,
                now + KEPT,
                ask.turn.0,
            ])?;
        Ok(())
    }

    /// People who granted an equal ask of the agent `asks` here, with the scope; the widest first. A grant of before
    /// agents had names holds for the `default` one.
    pub fn granted(
        &self,
        turn: &TurnRow,
        digest: &str,
        asks: &AgentName,
        default: &AgentName,
    ) -> Result<Vec<(GrantScope, String)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT session IS NULL, by FROM grants WHERE account = ?1 AND room = ?2 AND place = ?3 AND digest = ?4
                 AND (session IS NULL OR session = ?5) AND expires > ?6 AND coalesce(agent, ?8) = ?7
             ORDER BY session IS NULL DESC, granted",
        )?;
        let question = stored_question(&turn.id, &turn.source);
        let (room, place) = (question.place.room.as_str(), PlaceKind::from(question.direct).name());
        let rows = query.query_map(
            params![
                question.account.as_str(),
                room,
                place,
                digest,
                turn.session.0,
                unix_now(),
                asks.as_str(),
                default.as_str(),
            ],
            |row| Ok((if row.get(0)? { GrantScope::Always } else { GrantScope::Session }, row.get(1)?)),
        )?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Every grant that holds, oldest first.
    pub fn grants(&self) -> Result<Vec<GrantRow>> {
        self.grants_where("TRUE", params![unix_now()])
    }

    /// The grants that hold in a room, as the kind of place that it is now, and in one of its sessions; oldest first.
    pub fn grants_in(
        &self,
        account: &AccountId,
        room: &RoomId,
        place: PlaceKind,
        session: &SessionId,
    ) -> Result<Vec<GrantRow>> {
        self.grants_where(
            "account = ?2 AND room = ?3 AND place = ?4 AND (session IS NULL OR session = ?5)",
            params![unix_now(), account.as_str(), room.as_str(), place.name(), session.0],
        )
    }

    /// The grants that fit a condition and do not expire before the first value, the time now.
    fn grants_where(&self, filter: &str, values: impl rusqlite::Params) -> Result<Vec<GrantRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT id, title, session, account, room, by, granted, expires, agent FROM grants
             WHERE expires > ?1 AND {filter} ORDER BY granted, id"
        ))?;
        let rows = query.query_map(values, |row| {
            Ok(GrantRow {
                id: row.get(0)?,
                title: row.get(1)?,
                session: row.get::<_, Option<String>>(2)?.map(SessionId),
                account: AccountId::new(row.get::<_, String>(3)?),
                room: RoomId::new(row.get::<_, String>(4)?),
                by: row.get(5)?,
                granted: row.get(6)?,
                expires: row.get(7)?,
                agent: row.get::<_, Option<String>>(8)?.as_deref().and_then(AgentName::new),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Deletes a grant, so that agents ask again. `false` if there is no such grant.
    pub fn revoke_grant(&self, id: &str) -> Result<bool> {
        Ok(self.conn.prepare_cached("DELETE FROM grants WHERE id = ?1")?.execute([id])? > 0)
    }
}
