//! Sessions of a single request: the client keeps the history and sends all of it with each prompt.
//!
//! Only the prompt and the answer stay, for as long as a client may ask for them again. The history that came with the
//! prompt is needed until the answer is complete, also by the next process, and is deleted then.

use rusqlite::params;

use super::idempotency::KEPT;
use super::{Result, Tx, unix_now};
use crate::agent::SessionMessage;
use crate::ids::{SessionId, TurnId};
use crate::turn_source::{AppRequest, WhenUnread};

/// Retention of an answer without an idempotency key, in seconds: a client that has the run's id from the headers
/// can still fetch it.
const WITHOUT_KEY: i64 = 60 * 60;

/// Expiry of a session that is used now for a single request, in seconds since 1970.
pub fn ephemeral_expiry(patience: WhenUnread) -> i64 {
    unix_now()
        + match patience {
            WhenUnread::None => WITHOUT_KEY,
            WhenUnread::AWhile | WhenUnread::Endless => KEPT,
        }
}

impl Tx<'_> {
    /// The answer of an app's turn is stored: if its session is ephemeral, deletes the received history and starts the
    /// expiry.
    pub(super) fn settle_ephemeral(&self, session: &SessionId, request: &AppRequest) -> Result<()> {
        let is_ephemeral = self
            .conn
            .prepare_cached("UPDATE sessions SET expires = ?2 WHERE id = ?1 AND expires IS NOT NULL")?
            .execute(params![session.0, ephemeral_expiry(request.patience)])?;
        if is_ephemeral > 0 {
            self.forget_brought_history(session)?;
        }
        Ok(())
    }

    /// Makes a session permanent because a client continues it by name. Returns whether it was ephemeral: then only the
    /// client knows the messages before its prompt.
    pub fn adopt_session(&self, id: &SessionId) -> Result<bool> {
        let adopted = self
            .conn
            .prepare_cached(
                "UPDATE sessions SET passing = 0, expires = NULL WHERE id = ?1 AND expires IS NOT NULL",
            )?
            .execute([&id.0])?;
        Ok(adopted > 0)
    }

    /// Replaces the messages of a session by the history that a client sent.
    pub fn replace_history(&self, id: &SessionId, history: &[SessionMessage]) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM messages WHERE session = ?1")?.execute([&id.0])?;
        history.iter().try_for_each(|said| self.record(id, &BROUGHT, said.role, &said.content))
    }

    fn forget_brought_history(&self, id: &SessionId) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM messages WHERE session = ?1 AND turn = ''")?
            .execute([&id.0])?;
        Ok(())
    }
}

/// Turn id of messages that a client sent as history: no turn here made them.
static BROUGHT: std::sync::LazyLock<TurnId> = std::sync::LazyLock::new(|| TurnId(String::new()));
