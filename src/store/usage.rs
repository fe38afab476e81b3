//! Usage of a session and of a person: turns and tokens.

use rusqlite::{Row, params};
use talaria_platform::{AccountId, UserId};

use super::{Result, Tx, unix_now};
use crate::agent::TokenUsage;
use crate::ids::SessionId;

/// Sums over turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Turns that ran, with any end, also if they were withdrawn later.
    pub turns: u64,
    /// Tokens, as far as the agents reported them.
    pub tokens: TokenUsage,
}

/// The sums. A turn that was cancelled before it ran cost nothing. Each number comes from an upstream, so it is capped:
/// a sum that overflows would be an error.
const SUMS: &str = "SELECT count(*),
         coalesce(sum(min(input_tokens, 1000000000)), 0), coalesce(sum(min(output_tokens, 1000000000)), 0)
     FROM turns WHERE outcome IS NOT NULL AND NOT (state = 'cancelled' AND api_calls = 0)";

impl Tx<'_> {
    /// Usage of a session.
    pub fn used_by_session(&self, session: &SessionId) -> Result<UsageTotals> {
        let mut query = self.conn.prepare_cached(&format!("{SUMS} AND session = ?1"))?;
        Ok(query.query_row([&session.0], read_used)?)
    }

    /// Usage of a person on an account in the last `seconds` seconds.
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
