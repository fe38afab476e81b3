//! Deletes unused sessions, and settings that record a notice, after their time.

use std::time::Duration;

use rusqlite::params;

use super::{Result, Tx, unix_now};
use crate::config::Retention;
use crate::ids::SessionId;

/// Sessions that one transaction removes. Other writers wait for it.
const AT_ONCE: usize = 200;

/// Prefixes of the settings that record when a person or a room got a notice, or until when they get none. Each value
/// begins with a time in seconds since 1970. People who write can create any number of them.
const TOLD: [&str; 6] = ["full.", "limit.", "loop.", "queued.", "unreadable.", "untrusted."];

/// Seconds after which such a setting no longer matters: the longest window of a limit.
const TOLD_FOR: i64 = 60 * 60;

/// SQL condition for sessions that may be removed: nothing runs or waits there.
const AT_REST: &str = "NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id
    AND state IN ('queued', 'dispatched', 'streaming', 'finalizing'))";

impl Tx<'_> {
    /// Deletes settings that record a notice, where they no longer matter.
    pub(super) fn prune_told(&self) -> Result<()> {
        // The bounds on the key use the index; of a value, SQLite reads the number at its beginning.
        let mut delete = self.conn.prepare_cached(
            "DELETE FROM settings WHERE key >= ?1 AND key < ?1 || char(0x10FFFF) AND CAST(value AS INTEGER) < ?2",
        )?;
        let before = unix_now() - TOLD_FOR;
        TOLD.iter().try_for_each(|beginning| delete.execute(params![beginning, before]).map(drop))?;
        Ok(())
    }

    /// Removes expired sessions; `true` if there may be more of them.
    pub fn prune_sessions(&self, retention: Retention) -> Result<bool> {
        let now = unix_now();
        let before = |kept: Option<Duration>| {
            let kept = kept.map(|kept| i64::try_from(kept.as_secs()).unwrap_or(i64::MAX));
            kept.map(|kept| now.saturating_sub(kept))
        };
        let mut left = AT_ONCE;
        for (filter, before) in [
            ("expires <= ?1 AND expires IS NOT NULL", Some(now)),
            ("used < ?1 AND passing = 1 AND expires IS NULL", before(retention.responses)),
            ("used < ?1 AND (account <> '@http' OR room = '') AND passing = 0", before(retention.sessions)),
            ("used < ?1 AND (account = '@http' AND room <> '') AND passing = 0", before(retention.sessions)),
        ] {
            let Some(before) = before else { continue };
            let sql = format!("SELECT id FROM sessions WHERE {filter} AND {AT_REST} LIMIT ?2");
            let mut query = self.conn.prepare_cached(&sql)?;
            let limit = i64::try_from(left).unwrap_or(i64::MAX);
            let rows = query.query_map(params![before, limit], |row| row.get(0))?;
            let unused = rows.map(|id| id.map(SessionId)).collect::<rusqlite::Result<Vec<_>>>()?;
            unused.iter().try_for_each(|id| self.remove_session(id))?;
            left -= unused.len();
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
