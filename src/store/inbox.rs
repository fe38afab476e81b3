//! Received events for deduplication, sync cursors, and small values of adapters and of the core.

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{AccountId, EventId, RoomId};

use super::{Result, Tx, unix_now};

impl Tx<'_> {
    /// Marks an event as seen. `false` if it was seen before: its effects have happened.
    pub fn mark_new(&self, account: &AccountId, room: &RoomId, event: &EventId) -> Result<bool> {
        let new = self
            .conn
            .prepare_cached("INSERT OR IGNORE INTO inbox (account, room, event, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![account.as_str(), room.as_str(), event.as_str(), unix_now()])?;
        Ok(new == 1 || crate::testing::broken("dedupe"))
    }

    /// The account's last committed sync position.
    pub fn cursor(&self, account: &AccountId) -> Result<Option<String>> {
        let mut query = self.conn.prepare_cached("SELECT cursor FROM cursors WHERE account = ?1")?;
        Ok(query.query_row([account.as_str()], |row| row.get(0)).optional()?)
    }

    /// Sets the account's sync position.
    pub fn set_cursor(&self, account: &AccountId, cursor: &str) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO cursors (account, cursor) VALUES (?1, ?2)")?
            .execute(params![account.as_str(), cursor])?;
        Ok(())
    }

    /// Stores a row for the adapter; an empty value deletes it.
    pub fn park(&self, account: &AccountId, key: &str, value: &str) -> Result<()> {
        if value.is_empty() {
            self.conn
                .prepare_cached("DELETE FROM parked WHERE account = ?1 AND key = ?2")?
                .execute(params![account.as_str(), key])?;
        } else {
            self.conn
                .prepare_cached(
                    "INSERT INTO parked (account, key, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (account, key) DO UPDATE SET value = excluded.value",
                )?
                .execute(params![account.as_str(), key, value])?;
        }
        Ok(())
    }

    /// The account's parked rows, oldest first.
    pub fn parked(&self, account: &AccountId) -> Result<Vec<(String, String)>> {
        let mut query =
            self.conn.prepare_cached("SELECT key, value FROM parked WHERE account = ?1 ORDER BY seq")?;
        let rows = query.query_map([account.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// A small value of an adapter.
    pub fn note(&self, account: &AccountId, key: &str) -> Result<Option<String>> {
        let mut query =
            self.conn.prepare_cached("SELECT value FROM notes WHERE account = ?1 AND key = ?2")?;
        Ok(query.query_row(params![account.as_str(), key], |row| row.get(0)).optional()?)
    }

    /// Stores a small value of an adapter; an empty value deletes it.
    pub fn set_note(&self, account: &AccountId, key: &str, value: &str) -> Result<()> {
        if value.is_empty() {
            self.conn
                .prepare_cached("DELETE FROM notes WHERE account = ?1 AND key = ?2")?
                .execute(params![account.as_str(), key])?;
            return Ok(());
        }
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO notes (account, key, value) VALUES (?1, ?2, ?3)")?
            .execute(params![account.as_str(), key, value])?;
        Ok(())
    }

    /// A small value of the core.
    pub fn setting(&self, key: &str) -> Result<Option<String>> {
        let mut query = self.conn.prepare_cached("SELECT value FROM settings WHERE key = ?1")?;
        Ok(query.query_row([key], |row| row.get(0)).optional()?)
    }

    /// Stores a small value of the core.
    pub fn set_setting(&self, key: &str, value: &str) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO settings (key, value) VALUES (?1, ?2)")?
            .execute(params![key, value])?;
        Ok(())
    }

    /// Deletes a small value of the core.
    pub fn forget_setting(&self, key: &str) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM settings WHERE key = ?1")?.execute([key])?;
        Ok(())
    }
}
