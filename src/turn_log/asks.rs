//! Asks in the log of a turn: their positions, and which of them are open.

use super::{LogEntry, LogState, TurnLog};
use crate::agent::{AskChoice, AskPosition, AskResolved, DenyReason, PriorAsk, TurnEvent};
use crate::ids::AskId;

impl TurnLog {
    /// Position that an ask would have if it were opened or resolved now.
    pub fn ask_position(&self) -> AskPosition {
        self.lock().ask_position(&self.prior_asks)
    }

    /// Logs a denial for every open ask, because the process ends.
    pub fn deny_unanswered(&self) {
        let unanswered = self.lock().unanswered();
        for id in unanswered {
            let answered = AskResolved { id, choice: AskChoice::Deny(DenyReason::Restart) };
            // A full log ends the turn anyway.
            let _ = self.append(TurnEvent::Answered(answered));
        }
    }
}

impl LogState {
    pub(super) fn ask_position(&self, prior_asks: &[PriorAsk]) -> AskPosition {
        AskPosition {
            emitted: self.text.len() + self.thoughts.len() + self.steps,
            nth: prior_asks.len() + self.questions,
        }
    }

    pub(super) fn is_asked(&self, ask: &AskId) -> bool {
        let this =
            |entry: &LogEntry| matches!(entry, LogEntry::Asked(asked) if asked.id == *ask && !asked.refused);
        self.entries.iter().any(this)
    }

    pub(super) fn is_answered(&self, ask: &AskId) -> bool {
        self.entries.iter().any(|entry| matches!(entry, LogEntry::Answered(answered) if answered.id == *ask))
    }

    pub(super) fn unanswered(&self) -> Vec<AskId> {
        let mut open = Vec::new();
        for entry in &self.entries {
            match entry {
                LogEntry::Asked(asked) => open.push(asked.id.clone()),
                LogEntry::Answered(answered) => open.retain(|id| *id != answered.id),
                LogEntry::Text(_)
                | LogEntry::Thought(_)
                | LogEntry::Raw(_)
                | LogEntry::RawCut
                | LogEntry::Step(_)
                | LogEntry::Notice(_) => {}
            }
        }
        open
    }
}
