//! Strangers who asked to be let in, and those who were.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, Tx};

/// Somebody who asked to be let in, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct Pairing {
    pub account: String,
    pub person: String,
    pub name: Option<String>,
    pub room: String,
    /// They wait for the operator's word.
    pub pending: bool,
    pub at: i64,
}

/// What a code was made into: enough to recognise it, too little to tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct HashedCode {
    pub salt: String,
    pub digest: String,
}

impl Tx<'_> {
    /// Forgets requests that nobody answered: those made before `since`, and those that a clock which was
    /// set back puts after `now`.
    pub fn forget_lapsed_pairings(&self, since: i64, now: i64) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM pairings WHERE code IS NOT NULL AND NOT (at > ?1 AND at <= ?2)")?
            .execute(params![since, now])?;
        Ok(())
    }

    /// When somebody last asked, or was let in.
    pub fn pairing_of(&self, account: &AccountId, person: &UserId) -> Result<Option<i64>> {
        let mut query =
            self.conn.prepare_cached("SELECT at FROM pairings WHERE account = ?1 AND person = ?2")?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0)).optional()?)
    }

    /// How many others wait for the operator's word.
    pub fn others_waiting(&self, account: &AccountId, person: &UserId) -> Result<usize> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM pairings WHERE account = ?1 AND person <> ?2 AND code IS NOT NULL",
        )?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0))?)
    }

    /// Keeps a request; an earlier one of the same person no longer counts.
    pub fn ask_pairing(
        &self,
        account: &AccountId,
        person: &UserId,
        name: Option<&str>,
        room: &RoomId,
        code: &HashedCode,
        now: i64,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO pairings (account, person, name, room, code, salt, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                account.as_str(),
                person.as_str(),
                name,
                room.as_str(),
                code.digest,
                code.salt,
                now
            ])?;
        Ok(())
    }

    /// Takes back the request whose code never arrived, unless it was answered or another was made since.
    pub fn withdraw_pairing(&self, account: &AccountId, person: &UserId, code: &HashedCode) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM pairings WHERE account = ?1 AND person = ?2 AND code = ?3")?
            .execute(params![account.as_str(), person.as_str(), code.digest])?;
        Ok(())
    }

    /// Everybody who waits or was let in, the oldest first.
    pub fn pairings(&self) -> Result<Vec<Pairing>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, code IS NOT NULL, at FROM pairings ORDER BY at, account, person",
        )?;
        let rows = query.query_map([], read_pairing)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Everybody who waits, each with what is known of their code.
    pub fn waiting_pairings(&self) -> Result<Vec<(Pairing, HashedCode)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, 1, at, salt, code FROM pairings WHERE code IS NOT NULL",
        )?;
        let rows = query.query_map([], |row| {
            Ok((read_pairing(row)?, HashedCode { salt: row.get(6)?, digest: row.get(7)? }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Lets somebody in who waits.
    pub fn pair(&self, pairing: &Pairing, now: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE pairings SET code = NULL, salt = '', at = ?3 WHERE account = ?1 AND person = ?2",
            )?
            .execute(params![pairing.account, pairing.person, now])?;
        Ok(())
    }

    /// Forgets somebody who waits or was let in; on every account for `None`. Returns whom.
    pub fn unpair(&self, account: Option<&str>, person: &str) -> Result<Vec<Pairing>> {
        let mut query = self.conn.prepare_cached(
            "DELETE FROM pairings WHERE (?1 IS NULL OR account = ?1) AND person = ?2
             RETURNING account, person, name, room, code IS NOT NULL, at",
        )?;
        let rows = query.query_map(params![account, person], read_pairing)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn read_pairing(row: &rusqlite::Row<'_>) -> rusqlite::Result<Pairing> {
    Ok(Pairing {
        account: row.get(0)?,
        person: row.get(1)?,
        name: row.get(2)?,
        room: row.get(3)?,
        pending: row.get(4)?,
        at: row.get(5)?,
    })
}
