//! Whether the agent is known to fail, for `talaria health`. Pure: the caller passes the time in.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{AgentError, AgentErrorKind, TurnEnd};
use crate::words::Phrase;

/// Failures in a row after which it is the agent. Fewer may be about one question.
const FAILURES: usize = 3;

/// How long a failure says something about now. Longer than a turn is tried again by default; when nobody has
/// asked for so long, nobody knows.
const KNOWN: Duration = Duration::from_secs(15 * 60);

/// The tries that failed since the last that did not.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    failures: usize,
    last: Option<(Instant, Phrase)>,
}

impl Trouble {
    /// Learns from how a try ended.
    pub(super) fn learn(&mut self, end: &Result<TurnEnd, AgentError>, now: Instant) {
        match end {
            Ok(TurnEnd::Done | TurnEnd::Limit) => *self = Self::default(),
            // Whoever stopped it did not say anything about the agent.
            Ok(TurnEnd::Stopped) => {}
            Err(error) => match error.kind {
                AgentErrorKind::NothingRan { .. }
                | AgentErrorKind::Unknown { .. }
                | AgentErrorKind::Refused => {
                    self.failures += 1;
                    self.last = Some((now, error.words.clone()));
                }
                // It is there and has much to do; or somebody else is asked at once, and how that goes is what
                // people see.
                AgentErrorKind::Busy { .. } | AgentErrorKind::Elsewhere => {}
                // It is there, and people saw a part of what it said.
                AgentErrorKind::CutShort => *self = Self::default(),
            },
        }
    }

    /// How often in a row it failed and why the last time, if that is known to be more than one question's fault.
    pub(super) fn known(&self, now: Instant) -> Option<(usize, Phrase)> {
        let (at, words) = self.last.as_ref()?;
        let known = self.failures >= FAILURES && now.saturating_duration_since(*at) < KNOWN;
        known.then(|| (self.failures, words.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: AgentErrorKind) -> Result<TurnEnd, AgentError> {
        Err(AgentError::new(kind, "no"))
    }

    #[test]
    fn only_failures_in_a_row_and_of_late_are_known() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        for _ in 0..2 {
            trouble.learn(&failed(AgentErrorKind::Refused), now);
        }
        trouble.learn(&Ok(TurnEnd::Stopped), now);
        trouble.learn(&failed(AgentErrorKind::Elsewhere), now);
        assert_eq!(trouble.known(now), None);
        trouble.learn(&failed(AgentErrorKind::Unknown { after: None }), now);
        assert_eq!(trouble.known(now), Some((3, "no".into())));
        assert_eq!(trouble.known(now + KNOWN), None, "nobody has asked since");
        trouble.learn(&failed(AgentErrorKind::CutShort), now);
        assert_eq!(trouble.known(now), None, "it said something");
    }
}
