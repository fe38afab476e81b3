//! Commands that run after the transaction that took them, from their message until their answer is in the outbox.
//!
//! The transaction that adds the answer deletes the row, so a command is answered once, however often it runs.

use rusqlite::{OptionalExtension as _, Row, params};
use talaria_platform::{AccountId, EventId, Place, RoomId, SendKey, ThreadId, UserId};

use super::{Result, Tx, unix_now};

/// A command as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct CommandRow {
    pub key: SendKey,
    pub account: AccountId,
    pub place: Place,
    pub event: EventId,
    pub author: UserId,
    pub direct: bool,
    pub name: String,
    pub behind: String,
    pub started: bool,
}

const COLUMNS: &str = "key, account, room, thread, event, author, direct, name, behind, started";

impl Tx<'_> {
    /// Adds a command; the same key again changes nothing.
    pub fn add_command(&self, row: &CommandRow) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR IGNORE INTO commands
                     (key, account, room, thread, event, author, direct, name, behind, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                row.key.as_str(),
                row.account.as_str(),
                row.place.room.as_str(),
                row.place.thread.as_ref().map(ThreadId::as_str),
                row.event.as_str(),
                row.author.as_str(),
                row.direct,
                row.name,
                row.behind,
                unix_now(),
            ])?;
        Ok(())
    }

    /// A command that has no answer yet.
    pub fn command(&self, key: &SendKey) -> Result<Option<CommandRow>> {
        let mut query =
            self.conn.prepare_cached(&format!("SELECT {COLUMNS} FROM commands WHERE key = ?1"))?;
        Ok(query.query_row([key.as_str()], read_command).optional()?)
    }

    /// Every command that has no answer yet, in the order in which they came.
    pub fn open_commands(&self) -> Result<Vec<CommandRow>> {
        let mut query = self.conn.prepare_cached(&format!("SELECT {COLUMNS} FROM commands ORDER BY seq"))?;
        let rows = query.query_map([], read_command)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Number of commands of a place that have no answer yet.
    pub fn open_commands_in(&self, account: &AccountId, place: &Place) -> Result<usize> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM commands WHERE account = ?1 AND room = ?2 AND thread IS ?3",
        )?;
        let (room, thread) = (place.room.as_str(), place.thread.as_ref().map(ThreadId::as_str));
        Ok(query.query_row(params![account.as_str(), room, thread], |row| row.get(0))?)
    }

    /// Notes that a command may have had an effect from now on.
    pub fn start_command(&self, key: &SendKey) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE commands SET started = 1 WHERE key = ?1")?
            .execute([key.as_str()])?;
        Ok(())
    }

    /// Forgets a command, because it is answered in this transaction. `false` if it was answered before.
    pub fn end_command(&self, key: &SendKey) -> Result<bool> {
        let ended =
            self.conn.prepare_cached("DELETE FROM commands WHERE key = ?1")?.execute([key.as_str()])?;
        Ok(ended > 0)
    }
}

fn read_command(row: &Row<'_>) -> rusqlite::Result<CommandRow> {
    Ok(CommandRow {
        key: SendKey::new(row.get::<_, String>(0)?),
        account: AccountId::new(row.get::<_, String>(1)?),
        place: Place {
            room: RoomId::new(row.get::<_, String>(2)?),
            thread: row.get::<_, Option<String>>(3)?.map(ThreadId::new),
        },
        event: EventId::new(row.get::<_, String>(4)?),
        author: UserId::new(row.get::<_, String>(5)?),
        direct: row.get(6)?,
        name: row.get(7)?,
        behind: row.get(8)?,
        started: row.get(9)?,
    })
}
