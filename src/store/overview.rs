//! Lists for the operator: all open turns and all sessions, across accounts and rooms.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::sessions::{FIRST_QUESTION, known_by};
use super::{Result, Tx};

/// A turn that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct TurnOverview {
    pub id: String,
    pub session: String,
    pub account: String,
    pub room: String,
    pub author: String,
    /// A request was made for it; otherwise it waits.
    pub running: bool,
    pub stopping: bool,
    pub created: i64,
}

/// A session as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct SessionOverview {
    pub id: String,
    pub account: String,
    pub room: String,
    /// The number that `/resume` takes in its room.
    pub number: i64,
    /// The title that was set, or else the first prompt.
    pub title: Option<String>,
    pub current: bool,
    pub messages: usize,
    pub used: i64,
}

/// The statement that lists all sessions: merges the first rows of two lists that each have an index.
pub(super) fn overview_query() -> String {
    format!(
        "WITH page (id, used) AS MATERIALIZED (
             SELECT * FROM (SELECT id, used FROM sessions INDEXED BY sessions_owned WHERE account <> '@http' OR room = ''
                 ORDER BY used DESC, id DESC LIMIT ?1)
             UNION ALL
             SELECT * FROM (SELECT id, used FROM sessions INDEXED BY sessions_apps WHERE account = '@http' AND room <> ''
                 ORDER BY used DESC, id DESC LIMIT ?1)
             ORDER BY used DESC, id DESC LIMIT ?1)
         SELECT sessions.id, account, room, title, current,
             (SELECT count(*) FROM messages WHERE messages.session = sessions.id),
             max(sessions.used, created), number, {FIRST_QUESTION}
         FROM page CROSS JOIN sessions USING (id)"
    )
}

impl Tx<'_> {
    /// Every turn that has not ended, oldest first.
    pub fn turns_under_way(&self) -> Result<Vec<TurnOverview>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id, session, account, room, author, state <> 'queued', stop, created FROM turns
             WHERE state IN ('queued', 'dispatched', 'streaming') ORDER BY seq",
        )?;
        let rows = query.query_map([], |row| {
            Ok(TurnOverview {
                id: row.get(0)?,
                session: row.get(1)?,
                account: row.get(2)?,
                room: row.get(3)?,
                author: row.get(4)?,
                running: row.get(5)?,
                stopping: row.get(6)?,
                created: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Sessions of rooms and of apps, the last used first. The cost depends on `limit`, not on the number of sessions.
    pub fn all_sessions(&self, limit: usize) -> Result<Vec<SessionOverview>> {
        let mut query = self.conn.prepare_cached(&overview_query())?;
        let rows = query.query_map(params![i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(SessionOverview {
                id: row.get(0)?,
                account: row.get(1)?,
                room: row.get(2)?,
                title: known_by(row.get(3)?, row.get(8)?),
                current: row.get(4)?,
                messages: row.get(5)?,
                used: row.get(6)?,
                number: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Every account that the audit has a decision of.
    pub fn audited_accounts(&self) -> Result<Vec<String>> {
        let mut query = self.conn.prepare_cached("SELECT DISTINCT account FROM audit")?;
        let rows = query.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}
