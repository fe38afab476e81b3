//! The background review of a conversation: an agent reads it again, and keeps notes and skills that will be of use.

use super::{NoteScope, SessionMessage, TokenUsage};
use crate::ids::{AgentName, SessionId, TurnId};

/// The tools with which an agent learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearningTools {
    /// Notes about people and rooms.
    pub memory: bool,
    /// Instructions for certain tasks.
    pub skills: bool,
}

impl LearningTools {
    /// Whether there is at least one.
    pub fn any(self) -> bool {
        self.memory || self.skills
    }
}

/// A conversation to review.
#[derive(Clone, Debug)]
pub struct ReviewRequest {
    /// The turn after which the review is due.
    pub turn: TurnId,
    /// The agent that does the review.
    pub agent: AgentName,
    /// The session.
    pub session: SessionId,
    /// The notes that the review may change.
    pub notes: Option<NoteScope>,
    /// The messages as they were when the review became due.
    pub messages: Vec<SessionMessage>,
    /// The reasons for the review.
    pub about: LearningTools,
    /// Tokens that the review may use; `None` without a budget.
    pub tokens_left: Option<u64>,
}

/// The result of a review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewResult {
    /// The tools that changed something.
    pub changed: LearningTools,
    /// Tokens that the review used.
    pub usage: TokenUsage,
}
