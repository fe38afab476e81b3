//! Counts the turns and tool rounds of a session since its last reviews.

use rusqlite::params;

use super::{Result, Tx};
use crate::agent::LearningTools;
use crate::ids::SessionId;

/// Counts after which a conversation is reviewed; 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewThresholds {
    /// Turns until a review for notes.
    pub memory: u32,
    /// Tool rounds until a review for skills.
    pub skills: u32,
}

impl Tx<'_> {
    /// Counts one turn with so many tool rounds, for the tools that the agent of the session has. Returns the reviews
    /// that are due now; their counters begin anew.
    pub fn count_for_review(
        &self,
        session: &SessionId,
        tools: LearningTools,
        rounds: u32,
        thresholds: ReviewThresholds,
    ) -> Result<LearningTools> {
        let (turns, rounds) = (u32::from(tools.memory), if tools.skills { rounds } else { 0 });
        let mut count = self.conn.prepare_cached(
            "UPDATE sessions SET review_turns = review_turns + ?2, review_rounds = review_rounds + ?3 WHERE id = ?1
             RETURNING review_turns, review_rounds",
        )?;
        let counted: (u32, u32) =
            count.query_row(params![session.0, turns, rounds], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let is_due = |count: u32, threshold: u32| threshold > 0 && count >= threshold;
        let due = LearningTools {
            memory: tools.memory && is_due(counted.0, thresholds.memory),
            skills: tools.skills && is_due(counted.1, thresholds.skills),
        };
        if due.any() {
            self.conn
                .prepare_cached(
                    "UPDATE sessions SET review_turns = CASE WHEN ?2 THEN 0 ELSE review_turns END,
                         review_rounds = CASE WHEN ?3 THEN 0 ELSE review_rounds END
                     WHERE id = ?1",
                )?
                .execute(params![session.0, due.memory, due.skills])?;
        }
        Ok(due)
    }
}
