//! Asks of agents. The store decides which came first: an answer, the end of the time, a stop or another process.
//!
//! An ask is `open`. A person's denial makes it `denied`. Every other answer makes it `approved`: an approval, an option
//! (also one that rejects) or a text. An `approved` ask is `taken` when the agent gets the answer. Each step is one
//! `UPDATE` that names the state before it, so that of two simultaneous steps only the first finds its row.

mod positions;

use rusqlite::{OptionalExtension as _, Row, params};
use talaria_platform::{AccountId, MessageId, Place, RoomId, ThreadId};

use super::grants::KEPT;
use super::{Result, TurnRow, Tx, stored_question, unix_now};
use crate::access::GrantScope;
use crate::agent::{AnswerForm, AskChoice, AskPosition, DenyReason};
use crate::ids::{AskId, SessionId, TurnId};

/// Number of new asks after which expired rows are deleted.
const PRUNE_EACH: i64 = 100;

/// An ask as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct AskRow {
    pub id: AskId,
    pub code: String,
    pub turn: TurnId,
    pub session: SessionId,
    pub account: AccountId,
    pub place: Place,
    pub title: String,
    pub digest: String,
    pub form: AnswerForm,
}

impl AskRow {
    /// A new ask of a turn, without its code.
    pub fn of(turn: &TurnRow, id: AskId, title: String, digest: String, form: AnswerForm) -> Self {
        let question = stored_question(&turn.id, &turn.source);
        Self {
            id,
            code: String::new(),
            turn: turn.id.clone(),
            session: turn.session.clone(),
            account: question.account.clone(),
            place: question.place.clone(),
            title,
            digest,
            form,
        }
    }
}

/// An ask that may be answered now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAsk {
    /// The ask.
    pub ask: AskRow,
    /// Whether its message is known to be in the room.
    pub shown: bool,
}

/// State of an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskState {
    /// Nobody has answered.
    Open,
    /// A person has answered, and not with a denial; the agent does not have the answer yet.
    Answered {
        /// The answer.
        choice: AskChoice,
        /// The person.
        by: String,
    },
    /// The ask is over.
    Over,
}

/// Columns of [`read_ask`]; a query may add more after them.
const COLUMNS: &str = "asks.id, code, asks.turn, asks.session, asks.account, asks.room, asks.thread, asks.title, \
                       digest, options, takes_text";

/// Condition that nobody has asked the turn to stop: after that nothing may be allowed.
const NOT_STOPPED: &str = "(SELECT stop FROM turns WHERE turns.id = asks.turn) = 0";

impl Tx<'_> {
    /// Opens an ask that may be answered until `expires`. `false` if another open ask has its code.
    pub fn add_ask(&self, ask: &AskRow, ask_position: AskPosition, expires: i64) -> Result<bool> {
        let AnswerForm { options, takes_text } = &ask.form;
        let options = (!options.is_empty()).then(|| serde_json::to_string(options)).transpose()?;
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO asks (id, code, turn, session, account, room, thread, title, digest, asked, expires,
                     told, nth, options, takes_text)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
                 ON CONFLICT (account, code) WHERE state = 'open' DO NOTHING",
            )?
            .execute(params![
                ask.id.0,
                ask.code,
                ask.turn.0,
                ask.session.0,
                ask.account.as_str(),
                ask.place.room.as_str(),
                ask.place.thread.as_ref().map(ThreadId::as_str),
                ask.title,
                ask.digest,
                unix_now(),
                expires,
                ask_position.emitted,
                ask_position.nth,
                options,
                takes_text,
            ])?;
        if added == 1 && self.conn.last_insert_rowid() % PRUNE_EACH == 0 {
            self.prune_asks()?;
        }
        Ok(added == 1)
    }

    /// Number of asks of a turn, and how many of them are open.
    pub fn asked_by(&self, turn: &TurnId) -> Result<(usize, usize)> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE state = 'open') FROM asks WHERE turn = ?1",
        )?;
        Ok(query.query_row([&turn.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// The asks of a place that may be answered now, oldest first.
    pub fn open_asks(&self, account: &AccountId, place: &Place) -> Result<Vec<OpenAsk>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS}, EXISTS (SELECT 1 FROM outbox WHERE key = 'a.' || asks.id AND outbox.state = 'sent')
             FROM asks WHERE account = ?1 AND room = ?2 AND thread IS ?3 AND state = 'open' AND expires > ?4
                 AND {NOT_STOPPED} ORDER BY seq",
        ))?;
        let thread = place.thread.as_ref().map(ThreadId::as_str);
        let values = params![account.as_str(), place.room.as_str(), thread, unix_now()];
        let open = |row: &Row<'_>| Ok(OpenAsk { ask: read_ask(row)?, shown: row.get(11)? });
        query.query_and_then(values, open)?.collect()
    }

    /// The asks of an app's turn that may be answered now, oldest first.
    pub fn open_asks_of(&self, turn: &TurnId) -> Result<Vec<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks JOIN turns ON turns.id = asks.turn
             WHERE asks.turn = ?1 AND turns.brought IS NOT NULL AND asks.state = 'open' AND expires > ?2
                 AND {NOT_STOPPED} ORDER BY asks.seq",
        ))?;
        query.query_and_then(params![turn.0, unix_now()], read_ask)?.collect()
    }

    /// The ask of a turn with this id, in any state.
    pub fn ask_of(&self, turn: &TurnId, id: &AskId) -> Result<Option<AskRow>> {
        let query = format!("SELECT {COLUMNS} FROM asks WHERE turn = ?1 AND id = ?2");
        let mut query = self.conn.prepare_cached(&query)?;
        query.query_and_then(params![turn.0, id.0], read_ask)?.next().transpose()
    }

    /// Whether this person gave this very answer to an ask, and it counts.
    pub fn is_answered_so(&self, id: &AskId, by: &str, choice: &AskChoice) -> Result<bool> {
        let states = match choice {
            AskChoice::Allow(_) | AskChoice::Option(_) | AskChoice::Text(_) => ["approved", "taken"],
            AskChoice::Deny(_) => ["denied", "denied"],
        };
        let (scope, chosen, text) = answer_columns(choice);
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM asks WHERE id = ?1 AND by = ?2 AND scope IS ?3 AND chosen IS ?4
                 AND answer IS ?5 AND state IN (?6, ?7))",
        )?;
        let values = params![id.0, by, scope, chosen, text, states[0], states[1]];
        Ok(query.query_row(values, |row| row.get(0))?)
    }

    /// The ask that a message of ours in this room shows, if it may be answered now.
    pub fn ask_shown_by(
        &self,
        account: &AccountId,
        place: &Place,
        message: &MessageId,
    ) -> Result<Option<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks JOIN outbox ON outbox.key = 'a.' || asks.id
             WHERE asks.account = ?1 AND asks.room = ?2 AND asks.state = 'open' AND expires > ?3
                 AND {NOT_STOPPED} AND outbox.account = asks.account AND outbox.room = asks.room AND message = ?4",
        ))?;
        let values = params![account.as_str(), place.room.as_str(), unix_now(), message.as_str()];
        query.query_and_then(values, read_ask)?.next().transpose()
    }

    /// Whether a message of ours in this room shows an ask, open or not.
    pub fn is_ask(&self, account: &AccountId, place: &Place, message: &MessageId) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM outbox
                 WHERE account = ?1 AND room = ?2 AND message = ?3 AND substr(key, 1, 2) = 'a.')",
        )?;
        let values = params![account.as_str(), place.room.as_str(), message.as_str()];
        Ok(query.query_row(values, |row| row.get(0))?)
    }

    /// Whether an ask of this place ended after `since`.
    pub fn ask_ended_since(&self, account: &AccountId, place: &Place, since: i64) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM asks WHERE account = ?1 AND room = ?2 AND thread IS ?3
                 AND state <> 'open' AND ended > ?4)",
        )?;
        let thread = place.thread.as_ref().map(ThreadId::as_str);
        Ok(query
            .query_row(params![account.as_str(), place.room.as_str(), thread, since], |row| row.get(0))?)
    }

    /// Stores a person's answer to an open ask. A denial is final at once, so it is audited here. `false` if the
    /// answer came too late.
    pub fn answer_ask(&self, ask: &AskRow, by: &str, choice: &AskChoice) -> Result<bool> {
        if let AskChoice::Deny(reason) = choice {
            let denied = self
                .conn
                .prepare_cached(
                    "UPDATE asks SET state = 'denied', by = ?2, rule = ?3, ended = ?4
                     WHERE id = ?1 AND state = 'open'",
                )?
                .execute(params![ask.id.0, by, reason.name(), unix_now()])?;
            if denied == 1
                && let Some(turn) = self.turn_head(&ask.turn)?
            {
                self.audit_ask(&turn, ask, by, choice)?;
            }
            return Ok(denied == 1);
        }
        let (scope, chosen, text) = answer_columns(choice);
        let answered = self
            .conn
            .prepare_cached(&format!(
                "UPDATE asks SET state = 'approved', scope = ?2, chosen = ?3, answer = ?4, by = ?5, ended = ?6
                 WHERE id = ?1 AND state = 'open' AND expires > ?6 AND {NOT_STOPPED}"
            ))?
            .execute(params![ask.id.0, scope, chosen, text, by, unix_now()])?;
        Ok(answered == 1)
    }

    /// State of an ask.
    pub fn ask_state(&self, id: &AskId) -> Result<AskState> {
        let mut query =
            self.conn.prepare_cached("SELECT state, by, scope, chosen, answer FROM asks WHERE id = ?1")?;
        let found = query
            .query_row([&id.0], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, read_answer(row, 2)?))
            })
            .optional()?;
        Ok(match found {
            Some((state, ..)) if state == "open" => AskState::Open,
            Some((state, Some(by), Some(choice))) if state == "approved" => AskState::Answered { choice, by },
            _ => AskState::Over,
        })
    }

    /// Takes a person's answer out for the agent: it counts once, and never after a stop.
    pub fn take_ask(&self, id: &AskId, choice: &AskChoice) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(&format!(
                "UPDATE asks SET state = 'taken', rule = ?2
                 WHERE id = ?1 AND state = 'approved' AND {NOT_STOPPED}"
            ))?
            .execute(params![id.0, choice.rule()])?;
        Ok(changed == 1)
    }

    /// Denies an ask that the agent has no answer to yet, even if a person has answered. `false` if it was over.
    pub fn withdraw_ask(&self, id: &AskId, reason: DenyReason) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE asks SET state = 'denied', rule = ?2, ended = ?3
                 WHERE id = ?1 AND state IN ('open', 'approved')",
            )?
            .execute(params![id.0, reason.name(), unix_now()])?;
        Ok(changed == 1)
    }

    /// Every ask that an earlier process left; no agent waits for its answer.
    pub fn left_asks(&self) -> Result<Vec<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks WHERE state IN ('open', 'approved') ORDER BY seq"
        ))?;
        query.query_and_then([], read_ask)?.collect()
    }

    /// Deletes asks and grants that ended long ago. Also called at each start.
    pub fn prune_asks(&self) -> Result<()> {
        let now = unix_now();
        self.conn
            .execute("DELETE FROM asks WHERE state IN ('taken', 'denied') AND asked < ?1", [now - KEPT])?;
        self.conn.execute("DELETE FROM grants WHERE expires <= ?1", [now])?;
        Ok(())
    }
}

/// The columns `scope`, `chosen` and `answer` of an answer.
fn answer_columns(choice: &AskChoice) -> (Option<&'static str>, Option<&str>, Option<&str>) {
    match choice {
        AskChoice::Deny(_) => (None, None, None),
        AskChoice::Allow(scope) => (Some(scope.name()), None, None),
        AskChoice::Option(id) => (None, Some(id), None),
        AskChoice::Text(text) => (None, None, Some(text)),
    }
}

/// Reads the columns `scope`, `chosen` and `answer`, the first of which is `at`. `None` without an answer.
fn read_answer(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<AskChoice>> {
    let scope: Option<String> = row.get(at)?;
    let (chosen, text): (Option<String>, Option<String>) = (row.get(at + 1)?, row.get(at + 2)?);
    // An unknown scope is the narrowest.
    let known = |name: String| GrantScope::ALL.into_iter().find(|scope| scope.name() == name);
    let allowed = scope.map(|name| AskChoice::Allow(known(name).unwrap_or(GrantScope::Once)));
    Ok(allowed.or(chosen.map(AskChoice::Option)).or(text.map(AskChoice::Text)))
}

fn read_ask(row: &Row<'_>) -> Result<AskRow> {
    let options: Option<String> = row.get(9)?;
    let options = options.as_deref().map(serde_json::from_str).transpose()?.unwrap_or_default();
    Ok(AskRow {
        id: AskId(row.get(0)?),
        code: row.get(1)?,
        turn: TurnId(row.get(2)?),
        session: SessionId(row.get(3)?),
        account: AccountId::new(row.get::<_, String>(4)?),
        place: Place {
            room: RoomId::new(row.get::<_, String>(5)?),
            thread: row.get::<_, Option<String>>(6)?.map(ThreadId::new),
        },
        title: row.get(7)?,
        digest: row.get(8)?,
        form: AnswerForm { options, takes_text: row.get(10)? },
    })
}

#[cfg(test)]
mod tests;
