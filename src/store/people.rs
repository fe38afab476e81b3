//! What is known about people: who left, and who was let in.

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, Tx};
use crate::session::{SessionId, TurnId};

impl Tx<'_> {
    /// Somebody left a room. Only for those who could be obeyed: of strangers there is no end.
    pub fn depart(&self, account: &AccountId, room: &RoomId, person: &UserId) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO departed (account, room, person) VALUES (?1, ?2, ?3)")?
            .execute(params![account.as_str(), room.as_str(), person.as_str()])?;
        Ok(())
    }

    /// Whether somebody ever asked the agent something on an account, asked to be let in, or allowed something.
    pub fn is_known(&self, account: &AccountId, person: &UserId) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM turns WHERE account = ?1 AND author = ?2)
                 OR EXISTS (SELECT 1 FROM pairings WHERE account = ?1 AND person = ?2)
                 OR EXISTS (SELECT 1 FROM grants WHERE account = ?1 AND by = ?2)",
        )?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0))?)
    }

    /// Somebody came into a room.
    pub fn arrive(&self, account: &AccountId, room: &RoomId, person: &UserId) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM departed WHERE account = ?1 AND room = ?2 AND person = ?3")?
            .execute(params![account.as_str(), room.as_str(), person.as_str()])?;
        Ok(())
    }

    /// Whether somebody has left a room.
    pub fn has_left(&self, account: &AccountId, room: &RoomId, person: &str) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM departed WHERE account = ?1 AND room = ?2 AND person = ?3)",
        )?;
        Ok(query.query_row(params![account.as_str(), room.as_str(), person], |row| row.get(0))?)
    }

    /// Whether the operator let somebody in through pairing.
    pub fn is_paired(&self, account: &AccountId, person: &str) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT code IS NULL FROM pairings WHERE account = ?1 AND person = ?2")?;
        let paired = query.query_row(params![account.as_str(), person], |row| row.get(0)).optional()?;
        Ok(paired.unwrap_or(false))
    }

    /// Lets somebody in without a code. Only for scenes that are not about how that happens: in a release there is
    /// no way in but an approved code.
    #[cfg(feature = "testing")]
    pub fn let_in(&self, account: &AccountId, person: &UserId) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO pairings (account, person, room, salt, at) VALUES (?1, ?2, '', '', 0)
                 ON CONFLICT (account, person) DO UPDATE SET code = NULL, salt = ''",
            )?
            .execute(params![account.as_str(), person.as_str()])?;
        Ok(())
    }

    /// The turns that somebody started in a room and that have not ended; in any room for `None`.
    pub fn open_turns_by(
        &self,
        account: &AccountId,
        room: Option<&RoomId>,
        person: &str,
    ) -> Result<Vec<(SessionId, TurnId)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT session, id FROM turns WHERE state IN ('queued', 'dispatched', 'streaming')
                 AND account = ?1 AND (?2 IS NULL OR room = ?2) AND author = ?3 ORDER BY seq",
        )?;
        let rows = query.query_map(params![account.as_str(), room.map(RoomId::as_str), person], |row| {
            Ok((SessionId(row.get(0)?), TurnId(row.get(1)?)))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether anybody was ever answered in a room.
    pub fn is_served(&self, account: &AccountId, room: &RoomId) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE account = ?1 AND room = ?2)")?;
        Ok(query.query_row(params![account.as_str(), room.as_str()], |row| row.get(0))?)
    }

    /// Whether the last `count` turns of a room, and one that would begin `now`, were all asked for within
    /// `quick` seconds of the answer before, whoever asked.
    pub fn is_quick_row(
        &self,
        account: &AccountId,
        room: &RoomId,
        count: usize,
        quick: i64,
        now: i64,
    ) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT created, ended FROM turns WHERE account = ?1 AND room = ?2 ORDER BY seq DESC LIMIT ?3",
        )?;
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let mut rows = query.query(params![account.as_str(), room.as_str(), limit])?;
        let (mut next, mut seen) = (now, 0);
        while let Some(row) = rows.next()? {
            let ended: Option<i64> = row.get(1)?;
            if !ended.is_some_and(|ended| (0..=quick).contains(&(next - ended))) {
                return Ok(false);
            }
            next = row.get(0)?;
            seen += 1;
        }
        Ok(seen == count)
    }
}
