//! Starts the background review of a conversation when its counters say so.
//!
//! A review runs beside the conversation and never disturbs it: it works on a snapshot, one review at a time, with a
//! deadline, and its only trace in the room is one quiet line if something was kept. A review that a process did not
//! finish is not made up for: the next one comes after as many turns.
//!
//! It runs on the model loop of an agent: the one that the operator names, or the agent that answered. An agent without
//! such a loop, such as codex, is never asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Turns, source, token_budget};
use crate::agent::{AgentTurn, LearningTools, ReviewRequest, ReviewResult};
use crate::i18n::TextKey;
use crate::ids::AgentName;
use crate::store::{self, ReviewThresholds, TokenPayer, TurnRow};

/// Time limit of a review.
const DEADLINE: Duration = Duration::from_secs(5 * 60);

/// Reviews that may wait for the one that runs, over all sessions; further ones are dropped. At a minute each, the last
/// of them begins after a quarter of an hour, when its conversation has mostly moved on.
const WAITING: usize = 16;

/// A review that is due after a turn.
pub(super) struct DueReview {
    /// The turn, whose end is stored.
    pub turn: Arc<TurnRow>,
    /// The agent that answered it.
    pub asked: AgentName,
    /// The reasons for the review.
    pub about: LearningTools,
}

impl Turns {
    /// The operator's thresholds.
    pub(super) fn review_thresholds(&self) -> ReviewThresholds {
        ReviewThresholds { memory: self.settings.review.memory, skills: self.settings.review.skills }
    }

    /// Starts the reviews that are due. Called when a session has nothing to do. Does not wait.
    pub(super) fn start_due_reviews(self: &Arc<Self>) {
        let due = std::mem::take(&mut *self.due_reviews.lock());
        due.into_iter().for_each(|review| self.start_review(review));
    }

    /// Keeps a review until its session has nothing to do.
    pub(super) fn keep_due_review(&self, due: DueReview) {
        let mut reviews = self.due_reviews.lock();
        match reviews.len() < WAITING {
            true => reviews.push(due),
            false => tell_dropped(),
        }
    }

    fn start_review(self: &Arc<Self>, due: DueReview) {
        let DueReview { turn, asked, about } = due;
        // One runs, the others wait.
        if self.waiting_reviews.fetch_add(1, Ordering::AcqRel) > WAITING {
            self.waiting_reviews.fetch_sub(1, Ordering::AcqRel);
            return tell_dropped();
        }
        let (turns, draining) = (self.clone(), self.draining.clone());
        self.tasks.spawn(async move {
            let _waiting = WaitingReview(&turns.waiting_reviews);
            let one = tokio::select! {
                () = draining.cancelled() => return,
                one = turns.reviews.acquire() => one,
            };
            let review = tokio::time::timeout(DEADLINE, turns.review(&turn, asked, about));
            tokio::select! {
                () = draining.cancelled() => {}
                ended = review => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "a review could not reach the store"),
                    Err(_) => tracing::warn!("a review took too long and was ended"),
                },
            }
            drop(one);
        });
    }

    async fn review(&self, turn: &Arc<TurnRow>, asked: AgentName, about: LearningTools) -> store::Result<()> {
        let name = self.settings.review.agent.clone().unwrap_or(asked);
        let agents = self.agents();
        let Some(agent) = agents.get(&name).cloned() else {
            tracing::info!(agent = %name, "a conversation is not reviewed, because its agent is not there");
            return Ok(());
        };
        let can = agent.about().reviews;
        if !can.any() {
            tracing::info!(
                agent = %name,
                "a conversation is not reviewed, because its agent has no model of ours with the tools for it; \
                 `review.agent` may name one"
            );
            return Ok(());
        }
        let mut described = AgentTurn::new(turn.id.clone(), name.clone(), turn.session.clone());
        source::describe(&turn.source, &mut described);
        // Another agent may lack what the review is about, and an app without a session key has no notes.
        let about = LearningTools {
            memory: about.memory && can.memory && described.notes.is_some(),
            skills: about.skills && can.skills,
        };
        if !about.any() {
            return Ok(());
        }
        let (session, settings) = (turn.session.clone(), &self.settings);
        let (messages, bytes) = (settings.history_messages, settings.history_bytes);
        let (payer, reviewer, budget) = (TokenPayer::of(&turn.source), name.clone(), self.live.now().budget);
        let (messages, tokens_left) = self
            .store
            .read(move |tx| {
                let tokens_left = token_budget::tokens_left(tx, budget, &payer, &reviewer)?;
                Ok((tx.history(&session, messages, bytes)?, tokens_left))
            })
            .await?;
        let Ok(tokens_left) = tokens_left else {
            tracing::info!(agent = %name, "a conversation is not reviewed, because a budget is used up");
            return Ok(());
        };
        // The session may have been deleted since.
        if messages.is_empty() {
            return Ok(());
        }
        let request = ReviewRequest {
            turn: turn.id.clone(),
            agent: name.clone(),
            session: turn.session.clone(),
            notes: described.notes,
            messages,
            about,
            tokens_left,
        };
        match agent.review(request).await {
            Ok(result) => self.keep_review(turn, &name, result).await,
            Err(error) => {
                tracing::warn!(%error, "a review failed");
                Ok(())
            }
        }
    }

    /// Counts the tokens of a review, and tells the room in one line that something was kept.
    async fn keep_review(
        &self,
        turn: &Arc<TurnRow>,
        agent: &AgentName,
        result: ReviewResult,
    ) -> store::Result<()> {
        tracing::info!(changed = ?result.changed, "a conversation was reviewed");
        let (payer, agent, row) = (TokenPayer::of(&turn.source), agent.clone(), turn.clone());
        let max = source::max_text(&self.delivery, &turn.source);
        let (key, rules) = (turn.id.send_key("review"), self.live.now());
        let said = match result.changed {
            LearningTools { memory: false, skills: false } => None,
            LearningTools { memory: true, skills: false } => Some(TextKey::ReviewedMemory),
            LearningTools { memory: false, skills: true } => Some(TextKey::ReviewedSkills),
            LearningTools { memory: true, skills: true } => Some(TextKey::ReviewedBoth),
        };
        self.store
            .write(move |tx| {
                tx.add_token_use(&payer, &agent, result.usage)?;
                if let (Some(said), Some(notice)) = (said, source::notice(&row.source, key.clone(), max)) {
                    notice.tell(tx, &rules.words, &said.into())?;
                }
                token_budget::tell_crossed_marks(tx, &row, &agent, result.usage, &rules, max)
            })
            .await?;
        if let Some(account) = self.account_of(&turn.source) {
            account.wake();
        }
        Ok(())
    }
}

/// Counts a review among those that wait or run, until it is dropped.
struct WaitingReview<'a>(&'a AtomicUsize);

impl Drop for WaitingReview<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn tell_dropped() {
    tracing::warn!(limit = WAITING, "a conversation is not reviewed, because too many others wait");
}
