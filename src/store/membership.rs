//! People of a room: who has left, who was let in, and which turns are theirs.

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, Tx};
use crate::ids::{SessionId, TurnId};

/// A turn as the loop guard sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentTurn {
    /// The person who asked for it.
    pub author: String,
    /// The text of the prompt.
    pub prompt: String,
    /// Time of the request, in seconds since 1970.
    pub created: i64,
    /// Time of its end; `None` while it has not ended.
    pub ended: Option<i64>,
}

impl Tx<'_> {
    /// Records that a person left a room. Only for people who could be obeyed: the number of strangers has no bound.
    pub fn depart(&self, account: &AccountId, room: &RoomId, person: &UserId) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO departed (account, room, person) VALUES (?1, ?2, ?3)")?
            .execute(params![account.as_str(), room.as_str(), person.as_str()])?;
        Ok(())
    }

    /// Whether a person ever sent a prompt on an account, asked to be let in, or gave a grant.
    pub fn is_known(&self, account: &AccountId, person: &UserId) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM turns WHERE account = ?1 AND author = ?2)
                 OR EXISTS (SELECT 1 FROM pairings WHERE account = ?1 AND person = ?2)
                 OR EXISTS (SELECT 1 FROM grants WHERE account = ?1 AND by = ?2)",
        )?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0))?)
    }

    /// Records that a person came into a room.
    pub fn arrive(&self, account: &AccountId, room: &RoomId, person: &UserId) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM departed WHERE account = ?1 AND room = ?2 AND person = ?3")?
            .execute(params![account.as_str(), room.as_str(), person.as_str()])?;
        Ok(())
    }

    /// Whether a person has left a room.
    pub fn has_left(&self, account: &AccountId, room: &RoomId, person: &str) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM departed WHERE account = ?1 AND room = ?2 AND person = ?3)",
        )?;
        Ok(query.query_row(params![account.as_str(), room.as_str(), person], |row| row.get(0))?)
    }

    /// Whether the operator let a person in through pairing.
    pub fn is_paired(&self, account: &AccountId, person: &str) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT code IS NULL FROM pairings WHERE account = ?1 AND person = ?2")?;
        let paired = query.query_row(params![account.as_str(), person], |row| row.get(0)).optional()?;
        Ok(paired.unwrap_or(false))
    }

    /// Lets a person in without a code. Only for scenes that are not about pairing: a release has no way in but an
    /// approved code.
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

    /// Turns that a person started in a room and that have not ended; `None` means in any room.
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

    /// Whether anybody ever started a turn in a room.
    pub fn is_served(&self, account: &AccountId, room: &RoomId) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE account = ?1 AND room = ?2)")?;
        Ok(query.query_row(params![account.as_str(), room.as_str()], |row| row.get(0))?)
    }

    /// The latest turns of a room, newest first.
    pub fn recent_turns(&self, account: &AccountId, room: &RoomId, count: usize) -> Result<Vec<RecentTurn>> {
        let mut query = self.conn.prepare_cached(
            "SELECT author, prompt, created, ended FROM turns WHERE account = ?1 AND room = ?2
             ORDER BY seq DESC LIMIT ?3",
        )?;
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = query.query_map(params![account.as_str(), room.as_str(), limit], |row| {
            let (author, prompt) = (row.get(0)?, row.get(1)?);
            Ok(RecentTurn { author, prompt, created: row.get(2)?, ended: row.get(3)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}
