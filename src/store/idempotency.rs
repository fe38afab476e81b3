//! Requests of apps over HTTP: idempotency keys, new sessions, and the transcript of a turn.

use rusqlite::{OptionalExtension as _, params};

use super::sessions::role_from;
use super::{Result, Tx, unix_now};
use crate::agent::SessionMessage;
use crate::ids::{AgentName, HTTP, SessionId, TurnId};
use crate::util::hash;

/// Retention of a key, in seconds.
pub(super) const KEPT: i64 = 7 * 24 * 60 * 60;

/// SQL for the bytes of a message in memory. Tool calls are in memory as JSON and as the parsed values.
pub(super) const MESSAGE_BYTES: &str =
    "octet_length(content) + 3 * coalesce(octet_length(tools), 0) + coalesce(octet_length(reasoning), 0)";

/// Result of a lookup of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLookup {
    /// The key is unknown.
    New,
    /// An equal request came with this key.
    Same(TurnId),
    /// Another request came with this key.
    Other,
}

/// A session that an app begins.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct NewSession {
    pub id: String,
    pub app: String,
    pub title: Option<String>,
    pub model: Option<String>,
    pub system_prompt: Option<String>,
    pub parent: Option<String>,
    pub agent: Option<AgentName>,
    pub ephemeral: bool,
    /// Expiry in seconds since 1970; `None` means by retention.
    pub expires: Option<i64>,
}

/// A message of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptRow {
    /// Row number over all messages, in order.
    pub id: i64,
    /// The message and its tool calls.
    pub message: SessionMessage,
    /// Time in seconds since 1970, if it was stored.
    pub at: Option<i64>,
}

impl NewSession {
    /// A session of an app with this id and nothing else.
    pub fn new(id: &SessionId, app: &str) -> Self {
        Self { id: id.0.clone(), app: app.to_owned(), ..Self::default() }
    }
}

impl Tx<'_> {
    /// Whether there is a session with this id.
    pub fn has_session(&self, id: &SessionId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)")?;
        Ok(query.query_row([&id.0], |row| row.get(0))?)
    }

    /// Creates a session for an app.
    pub fn create_session(&self, new: &NewSession) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO sessions (id, key, account, room, created, used, number, title, model,
                     system_prompt, parent, passing, forks, expires, agent)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute(params![
                new.id,
                hash([HTTP, &new.id]),
                HTTP,
                new.app,
                unix_now(),
                new.title,
                new.model,
                new.system_prompt,
                new.parent,
                new.ephemeral,
                // The upstream may still know a removed session of this name.
                self.removed_sessions()?,
                new.expires,
                new.agent.as_ref().map(AgentName::as_str),
            ])?;
        Ok(())
    }

    /// Bytes that [`transcript`](Self::transcript) loads.
    pub fn transcript_bytes(&self, turn: &TurnId) -> Result<usize> {
        let sql = format!(
            "SELECT coalesce(sum({MESSAGE_BYTES}), 0) FROM messages WHERE turn = ?1 AND role NOT IN ('user', 'note')"
        );
        Ok(self.conn.prepare_cached(&sql)?.query_row([&turn.0], |row| row.get(0))?)
    }

    /// Messages of the agent and its tools in one turn, in order.
    pub fn transcript(&self, turn: &TurnId) -> Result<Vec<TranscriptRow>> {
        self.transcribed("turn = ?1 AND role NOT IN ('user', 'note') ORDER BY id", [&turn.0])
    }

    /// Messages that match the SQL `filter`.
    pub(super) fn transcribed(
        &self,
        filter: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<TranscriptRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT id, role, content, tools, at, reasoning FROM messages WHERE {filter}"
        ))?;
        let mut rows = query.query(values)?;
        let mut messages = Vec::new();
        while let Some(row) = rows.next()? {
            let (role, tools): (String, Option<String>) = (row.get(1)?, row.get(3)?);
            let tools = tools.as_deref().map(serde_json::from_str).transpose()?;
            let (role, reasoning) = (role_from(&role), row.get(5)?);
            let message = SessionMessage { role, content: row.get(2)?, tools, reasoning };
            messages.push(TranscriptRow { id: row.get(0)?, message, at: row.get(4)? });
        }
        Ok(messages)
    }

    /// Looks up what an app asked with this key before.
    pub fn asked_before(&self, app: &str, key: &str, digest: &str) -> Result<KeyLookup> {
        let found = self
            .conn
            .prepare_cached("SELECT digest, turn FROM idempotency WHERE app = ?1 AND key = ?2 AND at > ?3")?
            .query_row(params![app, key, unix_now() - KEPT], |row| {
                Ok((row.get::<_, String>(0)?, TurnId(row.get(1)?)))
            })
            .optional()?;
        Ok(match found {
            None => KeyLookup::New,
            Some((same, turn)) if same == digest => KeyLookup::Same(turn),
            Some(_) => KeyLookup::Other,
        })
    }

    /// Stores the key of a request, and deletes expired keys.
    pub fn remember_key(&self, app: &str, key: &str, digest: &str, turn: &TurnId) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM idempotency WHERE at <= ?1")?.execute([unix_now() - KEPT])?;
        self.conn
            .prepare_cached(
                "INSERT INTO idempotency (app, key, digest, turn, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![app, key, digest, turn.0, unix_now()])?;
        Ok(())
    }
}
