//! Counts an agent's failures in a row, for `talaria health`. Pure: the caller passes the time in.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{AgentError, AgentErrorKind, TurnEnd};
use crate::i18n::LocalizedText;
use crate::turn_source::TurnAsker;

/// Failures in a row that prove the agent broken. Fewer may be about one prompt.
const FAILURES: usize = 3;

/// Time for which a failure says something about the present. Longer than a turn is retried by default. If nobody has
/// asked for this long, the state is unknown.
const KNOWN: Duration = Duration::from_secs(15 * 60);

/// Tries that failed since the last success.
#[derive(Debug, Default)]
pub(super) struct AgentFailures {
    failures: usize,
    /// Askers whose prompts were refused as unfit, among the failures; at most `FAILURES`.
    unfit: Vec<TurnAsker>,
    last: Option<(Instant, AgentErrorKind, LocalizedText)>,
    /// The agent has answered somebody since the process began. Until then a wrong configuration may make every prompt
    /// look unfit.
    answered: bool,
}

impl AgentFailures {
    /// Records the end of one try.
    pub(super) fn learn(&mut self, end: &Result<TurnEnd, AgentError>, asker: &TurnAsker, now: Instant) {
        match end {
            Ok(TurnEnd::Done | TurnEnd::Limit) => self.is_well(),
            // A stop says nothing about the agent.
            Ok(TurnEnd::Stopped) => {}
            Err(error) => match error.kind {
                AgentErrorKind::NothingRan { .. }
                | AgentErrorKind::Unknown { .. }
                | AgentErrorKind::Lost
                | AgentErrorKind::Refused => self.fail(error, now),
                // Unfit prompts of one app say nothing about the agent, however many they are. If everybody's prompts
                // are unfit, it is the agent.
                AgentErrorKind::Unfit => {
                    let known = self.unfit.contains(asker);
                    if !known && self.unfit.len() < FAILURES {
                        self.unfit.push(asker.clone());
                    }
                    if !known || !self.answered {
                        self.fail(error, now);
                    }
                }
                // A busy agent is there. In the other case the next request is sent at once, and its end counts.
                AgentErrorKind::Busy { .. } | AgentErrorKind::PrepareAgain => {}
                // The agent is there, and people saw a part of its answer.
                AgentErrorKind::CutShort => self.is_well(),
            },
        }
    }

    fn is_well(&mut self) {
        *self = Self { answered: true, ..Self::default() };
    }

    fn fail(&mut self, error: &AgentError, now: Instant) {
        self.failures += 1;
        self.last = Some((now, error.kind, error.words.clone()));
    }

    /// Number of failures in a row and the last error, if they are more than one prompt's fault.
    pub(super) fn known(&self, now: Instant) -> Option<(usize, LocalizedText)> {
        let (at, _, words) = self.last.as_ref()?;
        let known = self.failures >= FAILURES && now.saturating_duration_since(*at) < KNOWN;
        known.then(|| (self.failures, words.clone()))
    }

    /// Whether the last failure was that the agent could not be reached. If it answers a probe since, it is back.
    pub(super) fn was_away(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, kind, _)| matches!(kind, AgentErrorKind::NothingRan { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: AgentErrorKind) -> Result<TurnEnd, AgentError> {
        Err(AgentError::new(kind, "no"))
    }

    fn asker(room: &str) -> TurnAsker {
        TurnAsker::Room("test".into(), room.into())
    }

    #[test]
    fn only_failures_in_a_row_and_of_late_are_known() {
        let (mut trouble, now) = (AgentFailures::default(), Instant::now());
        let mut learn = |end, now| {
            trouble.learn(&end, &asker("!home"), now);
            trouble.known(now)
        };
        for _ in 0..2 {
            learn(failed(AgentErrorKind::Refused), now);
        }
        learn(Ok(TurnEnd::Stopped), now);
        assert_eq!(learn(failed(AgentErrorKind::PrepareAgain), now), None);
        assert_eq!(learn(failed(AgentErrorKind::Unknown { after: None }), now), Some((3, "no".into())));
        assert_eq!(learn(Ok(TurnEnd::Stopped), now + KNOWN), None, "nobody has asked since");
        assert_eq!(learn(failed(AgentErrorKind::CutShort), now), None, "it said something");
    }

    #[test]
    fn wrong_questions_of_one_app_are_not_the_agents_fault_but_those_of_everybody_are() {
        let (mut trouble, now) = (AgentFailures::default(), Instant::now());
        trouble.learn(&Ok(TurnEnd::Done), &asker("a room"), now);
        let mut asks = |room: &str| {
            trouble.learn(&failed(AgentErrorKind::Unfit), &asker(room), now);
            trouble.known(now).map(|(times, _)| times)
        };
        for _ in 0..10 {
            assert_eq!(asks("one app"), None);
        }
        assert_eq!((asks("another"), asks("one app"), asks("another")), (None, None, None));
        assert_eq!(asks("a room"), Some(3));
    }

    /// With one room only, a wrong model name must not pass for that room's unfit prompts.
    #[test]
    fn an_asker_who_was_never_answered_asks_nothing_wrong() {
        let (mut trouble, now) = (AgentFailures::default(), Instant::now());
        for _ in 0..FAILURES {
            assert_eq!(trouble.known(now), None);
            trouble.learn(&failed(AgentErrorKind::Unfit), &asker("!home"), now);
        }
        assert!(trouble.known(now).is_some());
    }
}
