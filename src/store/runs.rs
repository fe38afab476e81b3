//! The stored record of one run, for `/v1/runs`.

use rusqlite::{OptionalExtension as _, Row};

use super::{Result, Tx};
use crate::ids::{AskId, TurnId};

/// Times of a run, and its asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Time at which it was accepted, in seconds since 1970.
    pub created: i64,
    /// Time at which its end was stored.
    pub ended: Option<i64>,
    /// Its asks, oldest first.
    pub asks: Vec<AskRecord>,
}

/// An ask and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct AskRecord {
    pub id: AskId,
    pub title: String,
    pub state: String,
    pub scope: Option<String>,
    pub rule: Option<String>,
    pub chosen: Option<String>,
    pub answer: Option<String>,
    pub asked: i64,
    pub expires: i64,
    pub ended: Option<i64>,
}

impl AskRecord {
    /// Whether the ask waits for an answer.
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }

    /// Whether a person answered, and not with a denial.
    pub fn is_answered(&self) -> bool {
        matches!(self.state.as_str(), "approved" | "taken")
    }
}

impl Tx<'_> {
    /// The record of a run; `None` if there is no such run.
    pub fn run_record(&self, id: &TurnId) -> Result<Option<RunRecord>> {
        let mut query = self.conn.prepare_cached("SELECT created, ended FROM turns WHERE id = ?1")?;
        let times = query.query_row([&id.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((created, ended)) = times else { return Ok(None) };
        let mut query = self.conn.prepare_cached(
            "SELECT id, title, state, scope, rule, chosen, answer, asked, expires, ended FROM asks
             WHERE turn = ?1 ORDER BY seq",
        )?;
        let asks = query.query_map([&id.0], read_ask)?.collect::<rusqlite::Result<_>>()?;
        Ok(Some(RunRecord { created, ended, asks }))
    }
}

fn read_ask(row: &Row<'_>) -> rusqlite::Result<AskRecord> {
    Ok(AskRecord {
        id: AskId(row.get(0)?),
        title: row.get(1)?,
        state: row.get(2)?,
        scope: row.get(3)?,
        rule: row.get(4)?,
        chosen: row.get(5)?,
        answer: row.get(6)?,
        asked: row.get(7)?,
        expires: row.get(8)?,
        ended: row.get(9)?,
    })
}
