//! Sessions and what was said in them.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, params};

use super::{Result, Tx, unix_now};
use crate::agent::{Message, Role};
use crate::session::{SessionId, SessionKey, TurnId};

/// A session as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its own id.
    pub id: SessionId,
    /// How often its history was changed after the fact.
    pub forks: u32,
}

impl Session {
    /// The name under which an upstream knows this history: a changed history is another one to it.
    pub fn upstream_id(&self) -> SessionId {
        match self.forks {
            0 => self.id.clone(),
            n => SessionId(format!("{}.{n}", self.id)),
        }
    }
}

impl Tx<'_> {
    /// The current session of a key, begun now if there is none.
    pub fn session_for(&self, key: &SessionKey) -> Result<Session> {
        let found = self
            .conn
            .prepare_cached("SELECT id, forks FROM sessions WHERE key = ?1 AND current = 1")?
            .query_row([&key.digest], read_session)
            .optional()?;
        match found {
            Some(session) => Ok(session),
            None => self.begin_session(key),
        }
    }

    /// Ends the current session of a key, which stays stored, and begins another one.
    pub fn begin_session(&self, key: &SessionKey) -> Result<Session> {
        self.conn
            .prepare_cached("UPDATE sessions SET current = 0 WHERE key = ?1 AND current = 1")?
            .execute([&key.digest])?;
        let session = Session { id: SessionId::new(SystemTime::now()), forks: 0 };
        self.conn
            .prepare_cached(
                "INSERT INTO sessions (id, key, account, room, created, used) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
            )?
            .execute(params![session.id.0, key.digest, key.account.as_str(), key.room.as_str(), unix_now()])?;
        Ok(session)
    }

    /// A session by its id.
    pub fn session(&self, id: &SessionId) -> Result<Session> {
        let mut query = self.conn.prepare_cached("SELECT id, forks FROM sessions WHERE id = ?1")?;
        Ok(query.query_row([&id.0], read_session)?)
    }

    /// Says that the session's history is no longer what the upstream remembers.
    pub fn fork_session(&self, id: &SessionId) -> Result<()> {
        self.conn.prepare_cached("UPDATE sessions SET forks = forks + 1 WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// Appends a message.
    pub fn record(&self, session: &SessionId, turn: &TurnId, message: &Message) -> Result<()> {
        self.conn
            .prepare_cached("INSERT INTO messages (session, turn, role, content) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![session.0, turn.0, role_name(message.role), message.content])?;
        Ok(())
    }

    /// The newest messages within both caps, oldest first. Costs what it returns, not what is stored.
    pub fn history(&self, session: &SessionId, messages: usize, bytes: usize) -> Result<Vec<Message>> {
        let mut query = self.conn.prepare_cached(
            "SELECT role, content FROM messages WHERE session = ?1 ORDER BY id DESC LIMIT ?2",
        )?;
        let limit = i64::try_from(messages).unwrap_or(i64::MAX);
        let rows = query.query_map(params![session.0, limit], |row| {
            let role: String = row.get(0)?;
            Ok(Message { role: role_from(&role), content: row.get(1)? })
        })?;
        let mut newest_first = Vec::new();
        let mut room = bytes;
        for message in rows {
            let message = message?;
            let Some(left) = room.checked_sub(message.content.len()) else { break };
            room = left;
            newest_first.push(message);
        }
        newest_first.reverse();
        Ok(newest_first)
    }

    /// How many messages a session has.
    pub fn message_count(&self, session: &SessionId) -> Result<usize> {
        let mut query = self.conn.prepare_cached("SELECT count(*) FROM messages WHERE session = ?1")?;
        Ok(query.query_row([&session.0], |row| row.get(0))?)
    }

    /// Takes back everything that a turn added.
    pub fn forget_messages(&self, turn: &TurnId) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM messages WHERE turn = ?1")?.execute([&turn.0])?;
        Ok(())
    }
}

fn read_session(row: &rusqlite::Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session { id: SessionId(row.get(0)?), forks: row.get(1)? })
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

fn role_from(name: &str) -> Role {
    match name {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::Tool,
    }
}
