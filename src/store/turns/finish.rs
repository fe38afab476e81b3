//! The text of a turn that people could already read, and the end of a turn.

use std::sync::Arc;

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{MessageBody, OutgoingFile};

use super::{TurnRow, TurnState};
use crate::agent::{MessageRole, TokenUsage, UsageEstimate};
use crate::ids::TurnId;
use crate::reply::TurnOutcome;
use crate::store::{OutboxKind, OutboxRow, Result, TokenPayer, Tx, unix_now};
use crate::turn_source::{RoomQuestion, TurnSource};

/// The end of a turn, stored in one transaction together with the messages that its room must show.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct FinishedTurn {
    /// Shared with the log of the turn: it may be long.
    pub text: Arc<String>,
    /// Whether `text` is not an extension of the text that readers got while it grew.
    pub text_replaced: bool,
    pub outcome: TurnOutcome,
    pub api_calls: u32,
    pub tools: Vec<String>,
    pub history_offset: usize,
    pub usage: TokenUsage,
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Whether tokens are estimated for budgets if none were reported, because the request may have run.
    pub may_have_run: bool,
    /// The prompt for the transcript; `None` if the turn is not recorded.
    pub said: Option<String>,
    pub parts: Vec<MessageBody>,
    /// Files that are sent after the parts, each as a message of its own.
    pub files: Vec<OutgoingFile>,
}

impl Tx<'_> {
    /// Stores text that people are about to see; `offset` is the length of the text stored before.
    pub fn checkpoint(&self, id: &TurnId, offset: usize, text: &str) -> Result<()> {
        // Not after the end: nothing would delete the row again.
        let mut keep = self.conn.prepare_cached(
            "INSERT OR REPLACE INTO checkpoints (turn, offset, text)
             SELECT ?1, ?2, ?3 FROM turns WHERE id = ?1 AND state = 'streaming'",
        )?;
        let kept = params![id.0, i64::try_from(offset).unwrap_or(i64::MAX), text];
        // Only the first text of a turn finds another state; every edit runs this statement.
        if keep.execute(kept)? == 0 && self.begin_streaming(id)? {
            keep.execute(kept)?;
        }
        Ok(())
    }

    fn begin_streaming(&self, id: &TurnId) -> Result<bool> {
        let begins = self
            .conn
            .prepare_cached("UPDATE turns SET state = 'streaming' WHERE id = ?1 AND state = 'dispatched'")?
            .execute([&id.0])?;
        Ok(begins > 0)
    }

    /// All stored text of an unfinished turn.
    pub fn checkpointed(&self, id: &TurnId) -> Result<String> {
        let mut query =
            self.conn.prepare_cached("SELECT text FROM checkpoints WHERE turn = ?1 ORDER BY offset")?;
        let mut text = String::new();
        let mut rows = query.query([&id.0])?;
        while let Some(row) = rows.next()? {
            text.push_str(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        }
        Ok(text)
    }

    /// Stores the end of a turn, together with the messages that its room must show. Returns the tokens that count for
    /// budgets.
    pub fn finish(&self, turn: &TurnRow, finish: &FinishedTurn) -> Result<TokenUsage> {
        let counted = self.counted_usage(&turn.id, finish)?;
        // The question was deleted, or another attempt replaces this one.
        let withdrawn = self.is_withdrawn(&turn.id)?;
        // Without parts, as for an app, there is no delivery to wait for.
        let nothing_to_show = withdrawn || finish.parts.is_empty();
        let state = if nothing_to_show { TurnState::after(&finish.outcome) } else { TurnState::Finalizing };
        // Nothing is sent again for a turn that is over. Not a statement of its own: each rewrites the whole row.
        let request = if nothing_to_show && !withdrawn { "NULL" } else { "request" };
        self.conn
            .prepare_cached(&format!(
                "UPDATE turns SET state = ?2, text = ?3, outcome = ?4, api_calls = ?5, tools = ?6,
                     history_offset = ?7, input_tokens = ?8, output_tokens = ?9, ended = ?10, brought = ?11,
                     retold = ?12, facts = ?13, request = {request}
                 WHERE id = ?1"
            ))?
            .execute(params![
                turn.id.0,
                state.name(),
                *finish.text,
                serde_json::to_string(&finish.outcome)?,
                finish.api_calls,
                serde_json::to_string(&finish.tools)?,
                i64::try_from(finish.history_offset).unwrap_or(i64::MAX),
                i64::try_from(finish.usage.input).unwrap_or(i64::MAX),
                i64::try_from(finish.usage.output).unwrap_or(i64::MAX),
                unix_now(),
                // Pictures and the system text are only for the run.
                turn.source.app().map(|request| serde_json::to_string(&request.remains())).transpose()?,
                finish.text_replaced,
                (!finish.facts.is_empty()).then(|| serde_json::to_string(&finish.facts)).transpose()?,
            ])?;
        self.conn.prepare_cached("DELETE FROM checkpoints WHERE turn = ?1")?.execute([&turn.id.0])?;
        if let Some(agent) = self.request_agent(&turn.id)? {
            self.add_token_use(&TokenPayer::of(&turn.source), &agent, counted)?;
        }
        if withdrawn {
            self.forget_turn_records(&turn.id)?;
            self.forget_words(&turn.id)?;
            return Ok(counted);
        }
        if let Some(said) = &finish.said {
            self.record(&turn.session, &turn.id, MessageRole::User, said)?;
            self.keep_transcript(turn, finish)?;
        }
        self.forget_turn_records(&turn.id)?;
        match &turn.source {
            TurnSource::Room(question) => self.show_end(&turn.id, question, finish)?,
            // Its readers render the end themselves.
            TurnSource::App(request) => {
                if request.forge.is_some() && matches!(finish.outcome, TurnOutcome::Unavailable { .. }) {
                    self.take_back_forge_turn(&turn.session, &turn.id)?;
                }
                self.settle_ephemeral(&turn.session, request)?;
            }
        }
        Ok(counted)
    }

    /// Tokens of a turn for budgets: as reported, or else estimated from its request, its records and its text. So a
    /// turn counts that an earlier process began and could not report.
    fn counted_usage(&self, turn: &TurnId, finish: &FinishedTurn) -> Result<TokenUsage> {
        if finish.usage != TokenUsage::default() || !finish.may_have_run {
            return Ok(finish.usage);
        }
        let mut query = self.conn.prepare_cached("SELECT request FROM turns WHERE id = ?1")?;
        let request: Option<Option<Vec<u8>>> = query.query_row([&turn.0], |row| row.get(0)).optional()?;
        let Some(request) = request.flatten() else { return Ok(finish.usage) };
        let (records, text_end) = self.turn_records(turn)?;
        let mut estimate = UsageEstimate::of(&request);
        records.iter().for_each(|record| estimate.record(record));
        Ok(estimate.finish(finish.text.get(text_end..).unwrap_or_default()))
    }

    /// Puts the end of a room's turn into the outbox.
    fn show_end(&self, turn: &TurnId, question: &RoomQuestion, finish: &FinishedTurn) -> Result<()> {
        for (part, body) in finish.parts.iter().enumerate() {
            self.add_outbox(&OutboxRow {
                key: turn.send_key(part),
                account: question.account.clone(),
                place: question.place.clone(),
                turn: Some(turn.clone()),
                kind: OutboxKind::Final,
                part,
                body,
                not_before: 0,
            })?;
        }
        for (index, file) in finish.files.iter().enumerate() {
            self.add_file(turn, question, finish.parts.len() + index, file)?;
        }
        Ok(())
    }

    /// The stored end of a turn, without transcript, parts and files.
    pub fn finished(&self, id: &TurnId) -> Result<Option<(TurnState, FinishedTurn)>> {
        self.finish_of(id, true)
    }

    /// Like [`Tx::finished`], but only the beginning of the text: enough to see whether there is any.
    pub fn finished_in_short(&self, id: &TurnId) -> Result<Option<(TurnState, FinishedTurn)>> {
        self.finish_of(id, false)
    }

    fn finish_of(&self, id: &TurnId, whole_text: bool) -> Result<Option<(TurnState, FinishedTurn)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT state, CASE WHEN ?2 THEN text ELSE substr(text, 1, 256) END, outcome, api_calls, tools, history_offset, input_tokens, output_tokens,
                 retold, facts
             FROM turns WHERE id = ?1 AND outcome IS NOT NULL",
        )?;
        let found = query
            .query_row(params![id.0, whole_text], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, u32>(3)?,
                    row.get::<_, String>(4)?,
                    row.get::<_, i64>(5)?,
                    TokenUsage { input: row.get(6)?, output: row.get(7)? },
                    row.get::<_, bool>(8)?,
                    row.get::<_, Option<String>>(9)?,
                ))
            })
            .optional()?;
        let Some((state, text, outcome, api_calls, tools, history_offset, usage, text_replaced, facts)) =
            found
        else {
            return Ok(None);
        };
        let finish = FinishedTurn {
            text: Arc::new(text),
            text_replaced,
            outcome: serde_json::from_str(&outcome)?,
            api_calls,
            tools: serde_json::from_str(&tools)?,
            history_offset: usize::try_from(history_offset).unwrap_or_default(),
            usage,
            facts: facts.as_deref().map(serde_json::from_str).transpose()?.unwrap_or_default(),
            may_have_run: false,
            said: None,
            parts: Vec::new(),
            files: Vec::new(),
        };
        Ok(Some((TurnState::from_name(&state), finish)))
    }

    /// State and outcome of a turn that ended, without its text; `None` while it has no end.
    pub fn ended(&self, id: &TurnId) -> Result<Option<(TurnState, TurnOutcome)>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT state, outcome FROM turns WHERE id = ?1 AND outcome IS NOT NULL")?;
        let found = query.query_row([&id.0], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let Some((state, outcome)) = found.optional()? else { return Ok(None) };
        Ok(Some((TurnState::from_name(&state), serde_json::from_str(&outcome)?)))
    }

    /// Bytes of the text of a turn that is over; none while it is not.
    pub fn text_bytes(&self, id: &TurnId) -> Result<usize> {
        let bytes = self
            .conn
            .prepare_cached("SELECT octet_length(text) FROM turns WHERE id = ?1 AND outcome IS NOT NULL")?
            .query_row([&id.0], |row| row.get::<_, Option<usize>>(0))
            .optional()?;
        Ok(bytes.flatten().unwrap_or_default())
    }

    /// Moves a turn to its final state: its room shows all of the end.
    pub(in crate::store) fn settle(&self, id: &TurnId) -> Result<()> {
        if let Some((TurnState::Finalizing, outcome)) = self.ended(id)? {
            self.conn
                .prepare_cached("UPDATE turns SET state = ?2, request = NULL WHERE id = ?1")?
                .execute(params![id.0, TurnState::after(&outcome).name()])?;
            // The live message of a withdrawn turn is still needed, to be taken over or deleted.
            if !self.is_withdrawn(id)? {
                self.forget_anchor(id)?;
            }
        }
        Ok(())
    }
}
