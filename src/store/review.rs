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

#[cfg(test)]
mod tests {
    use talaria_platform::{Place, UserId};

    use super::*;
    use crate::rules::{SessionKey, SessionRules};
    use crate::store::tests::temporary;

    const BOTH: LearningTools = LearningTools { memory: true, skills: true };
    const MEMORY: LearningTools = LearningTools { memory: true, skills: false };
    const SKILLS: LearningTools = LearningTools { memory: false, skills: true };
    const NONE: LearningTools = LearningTools { memory: false, skills: false };

    /// Counts turns of new sessions; each has the tools, the tool rounds and the reviews that are due after it.
    async fn counted(memory: u32, skills: u32, turns: &[(LearningTools, u32, LearningTools)]) {
        let (_folder, store) = temporary();
        let turns = turns.to_vec();
        store
            .write(move |tx| {
                let mut sessions = Vec::new();
                for room in ["!one", "!two"] {
                    let (place, who, rules) =
                        (Place::room(room), UserId::from("@ann"), SessionRules::default());
                    sessions.push(
                        tx.session_for(&SessionKey::new(&"test".into(), &place, true, &who, rules))?.id,
                    );
                }
                for (at, (tools, rounds, due)) in turns.iter().enumerate() {
                    // Sessions count apart.
                    for session in &sessions {
                        let thresholds = ReviewThresholds { memory, skills };
                        let counted = tx.count_for_review(session, *tools, *rounds, thresholds)?;
                        assert_eq!(counted, *due, "turn {at} of {session}");
                    }
                }
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_review_is_due_at_the_threshold_and_then_after_as_many_again() {
        let turns = [NONE, NONE, MEMORY, NONE, NONE, MEMORY, NONE].map(|due| (MEMORY, 7, due));
        counted(3, 1, &turns).await;
        counted(1, 0, &[(BOTH, 0, MEMORY), (BOTH, 0, MEMORY)]).await;
    }

    #[tokio::test]
    async fn skills_count_rounds_and_memory_counts_turns() {
        counted(
            3,
            10,
            &[
                (BOTH, 9, NONE),
                (BOTH, 0, NONE),
                // Each begins anew by itself.
                (BOTH, 0, MEMORY),
                (BOTH, 1, SKILLS),
                (BOTH, 9, NONE),
                (BOTH, 30, BOTH),
                (BOTH, 9, NONE),
            ],
        )
        .await;
    }

    #[tokio::test]
    async fn only_tools_that_the_agent_has_are_counted() {
        counted(2, 2, &[(SKILLS, 1, NONE), (MEMORY, 5, NONE), (NONE, 5, NONE), (BOTH, 0, MEMORY)]).await;
        counted(2, 2, &[(SKILLS, 1, NONE), (SKILLS, 1, SKILLS), (BOTH, 1, NONE), (BOTH, 1, BOTH)]).await;
    }

    #[tokio::test]
    async fn zero_is_never() {
        counted(0, 0, &[(BOTH, 1000, NONE), (BOTH, 1000, NONE)]).await;
    }
}
