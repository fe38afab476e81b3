//! The transcript of a turn that runs: each message is stored as it completes, and moves to the session with the end.

use rusqlite::params;

use crate::agent::{MessageRole, SessionMessage, close_transcript};
use crate::ids::TurnId;
use crate::reply::TurnOutcome;
use crate::store::sessions::{role_from, role_name};
use crate::store::{FinishedTurn, Result, TurnRow, Tx};

impl Tx<'_> {
    /// Stores the message with this number of a turn that runs. `text_end` is the length of the turn's text by then.
    /// Returns `false` if the turn does not run any more.
    pub fn add_turn_record(
        &self,
        turn: &TurnId,
        number: usize,
        text_end: usize,
        message: &SessionMessage,
    ) -> Result<bool> {
        let SessionMessage { role, content, tools, reasoning } = message;
        let tools = tools.as_ref().map(serde_json::to_string).transpose()?;
        let as_integer = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        // Not after the end: nothing would delete the row again.
        let stored = self
            .conn
            .prepare_cached(
                "INSERT OR REPLACE INTO turn_records (turn, number, role, content, tools, reasoning, text_end)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 FROM turns WHERE id = ?1 AND state IN ('dispatched', 'streaming')",
            )?
            .execute(params![
                turn.0,
                as_integer(number),
                role_name(*role),
                content,
                tools,
                reasoning,
                as_integer(text_end)
            ])?;
        Ok(stored > 0)
    }

    /// Number of messages of the agent that a turn which runs has recorded: each was one request to its model.
    pub fn recorded_answers(&self, turn: &TurnId) -> Result<u32> {
        let mut query = self
            .conn
            .prepare_cached("SELECT count(*) FROM turn_records WHERE turn = ?1 AND role = 'assistant'")?;
        Ok(query.query_row([&turn.0], |row| row.get(0))?)
    }

    /// Number of recorded messages that called tools.
    pub fn recorded_rounds(&self, turn: &TurnId) -> Result<u32> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM turn_records WHERE turn = ?1 AND role = 'assistant' AND tools IS NOT NULL",
        )?;
        Ok(query.query_row([&turn.0], |row| row.get(0))?)
    }

    /// Moves the recorded messages of a turn to its session. Without any, the text of the turn is its only message.
    pub(super) fn keep_transcript(&self, turn: &TurnRow, finish: &FinishedTurn) -> Result<()> {
        let (records, text_end) = self.turn_records(&turn.id)?;
        if records.is_empty() {
            return self.record(&turn.session, &turn.id, MessageRole::Assistant, finish.text.trim());
        }
        let has_said_nothing = records.iter().all(|record| record.role == MessageRole::Note);
        let rest = match finish.outcome {
            _ if has_said_nothing => finish.text.as_str(),
            // A whole answer is on record to its end.
            TurnOutcome::Done => "",
            _ if finish.text_replaced => "",
            _ => finish.text.get(text_end..).unwrap_or_default(),
        };
        let messages = close_transcript(records, rest);
        messages.iter().try_for_each(|message| self.add_record(&turn.session, &turn.id, message))
    }

    /// Deletes the messages of a turn that has ended.
    pub(super) fn forget_turn_records(&self, turn: &TurnId) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM turn_records WHERE turn = ?1")?.execute([&turn.0])?;
        Ok(())
    }

    /// The messages of a turn in order, and the length of its text at the last of them.
    pub(super) fn turn_records(&self, turn: &TurnId) -> Result<(Vec<SessionMessage>, usize)> {
        let mut query = self.conn.prepare_cached(
            "SELECT role, content, tools, reasoning, text_end FROM turn_records WHERE turn = ?1 ORDER BY number",
        )?;
        let mut rows = query.query([&turn.0])?;
        let (mut messages, mut text_end) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let (role, tools): (String, Option<String>) = (row.get(0)?, row.get(2)?);
            let tools = tools.as_deref().map(serde_json::from_str).transpose()?;
            let (role, reasoning) = (role_from(&role), row.get(3)?);
            messages.push(SessionMessage { role, content: row.get(1)?, tools, reasoning });
            text_end = usize::try_from(row.get::<_, i64>(4)?).unwrap_or_default();
        }
        Ok((messages, text_end))
    }
}
