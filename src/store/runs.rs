//! What is on record of one run, for whoever asks about it.

use rusqlite::{OptionalExtension as _, Row};

use super::{Result, Tx};
use crate::ids::{AskId, TurnId};

/// When a run began and ended, and what was asked in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// When it was taken.
    pub created: i64,
    /// When its end was stored.
    pub ended: Option<i64>,
    /// Its questions, oldest first.
    pub asks: Vec<AskRecord>,
}

/// A question, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct AskRecord {
    pub id: AskId,
    pub title: String,
    pub state: String,
    pub scope: Option<String>,
    pub rule: Option<String>,
    pub asked: i64,
    pub expires: i64,
    pub ended: Option<i64>,
}

impl AskRecord {
    /// Whether it waits for its answer.
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }

    /// Whether it was allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self.state.as_str(), "approved" | "taken")
    }
}

impl Tx<'_> {
    /// What is on record of a run.
    pub fn run_record(&self, id: &TurnId) -> Result<Option<RunRecord>> {
        let mut query = self.conn.prepare_cached("SELECT created, ended FROM turns WHERE id = ?1")?;
        let times = query.query_row([&id.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((created, ended)) = times else { return Ok(None) };
        let mut query = self.conn.prepare_cached(
            "SELECT id, title, state, scope, rule, asked, expires, ended FROM asks WHERE turn = ?1 ORDER BY seq",
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
        asked: row.get(5)?,
        expires: row.get(6)?,
        ended: row.get(7)?,
    })
}
