//! Sessions of a single request: the client keeps its history and brings all of it with each question.
//!
//! Only the question and the answer stay, for as long as somebody may ask for them again. The history that came with
//! the question is needed until it is answered, also by the next process, and is deleted with the answer.

use rusqlite::params;

use super::idempotency::KEPT;
use super::{Result, TurnRow, Tx, unix_now};
use crate::agent::SessionMessage;
use crate::ids::{SessionId, TurnId};
use crate::turns::WhenUnread;

/// How long an answer is kept that nobody has a key for, in seconds: its run can still be looked at, by whoever read
/// its id in the headers.
const WITHOUT_KEY: i64 = 60 * 60;

/// When a session goes that is used now for a single request.
pub fn ephemeral_expiry(patience: WhenUnread) -> i64 {
    unix_now()
        + match patience {
            WhenUnread::None => WITHOUT_KEY,
            WhenUnread::AWhile | WhenUnread::Endless => KEPT,
        }
}

impl Tx<'_> {
    /// The answer of a program's turn is there: of a session of its own nothing else is kept, and its time begins.
    pub(super) fn settle_ephemeral(&self, turn: &TurnRow) -> Result<()> {
        let Some(app_request) = &turn.app_request else { return Ok(()) };
        let is_ephemeral = self
            .conn
            .prepare_cached("UPDATE sessions SET expires = ?2 WHERE id = ?1 AND expires IS NOT NULL")?
            .execute(params![turn.session.0, ephemeral_expiry(app_request.patience)])?;
        if is_ephemeral > 0 {
            self.forget_brought_history(&turn.session)?;
        }
        Ok(())
    }

    /// Somebody goes on with a session by its name: from now on it is kept like any other. Whether it was one of a
    /// single request, so that what was said before its question is known only to whoever goes on.
    pub fn adopt_session(&self, id: &SessionId) -> Result<bool> {
        let adopted = self
            .conn
            .prepare_cached(
                "UPDATE sessions SET passing = 0, expires = NULL WHERE id = ?1 AND expires IS NOT NULL",
            )?
            .execute([&id.0])?;
        Ok(adopted > 0)
    }

    /// Replaces what was said in a session by what a client says was said.
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

/// The turn of what was said before there was any here.
static BROUGHT: std::sync::LazyLock<TurnId> = std::sync::LazyLock::new(|| TurnId(String::new()));
