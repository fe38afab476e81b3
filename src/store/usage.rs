//! What was used: turns and tokens, of a session and of a person.

use rusqlite::{Row, params};
use talaria_platform::{AccountId, UserId};

use super::{Result, Tx, unix_now};
use crate::agent::TokenUsage;
use crate::ids::SessionId;

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Turns that ran, however they ended and whether they were taken back later or not.
    pub turns: u64,
    /// What they cost, as far as the agents said.
    pub tokens: TokenUsage,
}

/// What is added up. A turn that was cancelled before it ran cost nothing. Each number is an upstream's word, so
/// it is bounded: a sum that overflows would be an error.
const SUMS: &str = "SELECT count(*),
         coalesce(sum(min(input_tokens, 1000000000)), 0), coalesce(sum(min(output_tokens, 1000000000)), 0)
     FROM turns WHERE outcome IS NOT NULL AND NOT (state = 'cancelled' AND api_calls = 0)";

impl Tx<'_> {
    /// What a session used.
    pub fn used_by_session(&self, session: &SessionId) -> Result<UsageTotals> {
        let mut query = self.conn.prepare_cached(&format!("{SUMS} AND session = ?1"))?;
        Ok(query.query_row([&session.0], read_used)?)
    }

    /// What a person used on an account in the last so many seconds.
    pub fn used_by_person(&self, account: &AccountId, person: &UserId, seconds: i64) -> Result<UsageTotals> {
        let mut query =
            self.conn.prepare_cached(&format!("{SUMS} AND account = ?1 AND author = ?2 AND created > ?3"))?;
        let since = unix_now() - seconds;
        Ok(query.query_row(params![account.as_str(), person.as_str(), since], read_used)?)
    }
}

fn read_used(row: &Row<'_>) -> rusqlite::Result<UsageTotals> {
    Ok(UsageTotals { turns: row.get(0)?, tokens: TokenUsage { input: row.get(1)?, output: row.get(2)? } })
}
