//! Whether the agent is known to fail, for `talaria health`. Pure: the caller passes the time in.

use std::time::Duration;

use talaria_platform::{AccountId, RoomId};
use tokio::time::Instant;

use crate::agent::{AgentError, AgentErrorKind, TurnEnd};
use crate::i18n::LocalizedText;

/// Failures in a row after which it is the agent. Fewer may be about one question.
const FAILURES: usize = 3;

/// How long a failure says something about now. Longer than a turn is tried again by default; when nobody has
/// asked for so long, nobody knows.
const KNOWN: Duration = Duration::from_secs(15 * 60);

/// Where somebody asked: an app is a room too.
pub(super) type AskerPlace = (AccountId, RoomId);

/// The tries that failed since the last that did not.
#[derive(Debug, Default)]
pub(super) struct AgentFailures {
    failures: usize,
    /// Whose questions were found wrong, among those; as many as it takes to know that it is the agent.
    unfit: Vec<AskerPlace>,
    last: Option<(Instant, AgentErrorKind, LocalizedText)>,
    /// It has answered somebody since the process began. Until then every question may look wrong to it because of how
    /// it is configured.
    answered: bool,
}

impl AgentFailures {
    /// Learns from how a try ended.
    pub(super) fn learn(&mut self, end: &Result<TurnEnd, AgentError>, asker: &AskerPlace, now: Instant) {
        match end {
            Ok(TurnEnd::Done | TurnEnd::Limit) => self.is_well(),
            // Whoever stopped it did not say anything about the agent.
            Ok(TurnEnd::Stopped) => {}
            Err(error) => match error.kind {
                AgentErrorKind::NothingRan { .. }
                | AgentErrorKind::Unknown { .. }
                | AgentErrorKind::Refused => self.fail(error, now),
                // One app that asks what cannot be answered says nothing about the agent, however often it asks. If
                // everybody is told so, it is the agent.
                AgentErrorKind::Unfit => {
                    let known = self.unfit.contains(asker);
                    if !known && self.unfit.len() < FAILURES {
                        self.unfit.push(asker.clone());
                    }
                    if !known || !self.answered {
                        self.fail(error, now);
                    }
                }
                // It is there and has much to do; or somebody else is asked at once, and how that goes is what
                // people see.
                AgentErrorKind::Busy { .. } | AgentErrorKind::Elsewhere => {}
                // It is there, and people saw a part of what it said.
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

    /// How often in a row it failed and why the last time, if that is known to be more than one question's fault.
    pub(super) fn known(&self, now: Instant) -> Option<(usize, LocalizedText)> {
        let (at, _, words) = self.last.as_ref()?;
        let known = self.failures >= FAILURES && now.saturating_duration_since(*at) < KNOWN;
        known.then(|| (self.failures, words.clone()))
    }

    /// Whether the last failure was that nobody was there. An agent that answers a probe since is back.
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

    fn asker(room: &str) -> AskerPlace {
        (AccountId::from("test"), RoomId::from(room))
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
        assert_eq!(learn(failed(AgentErrorKind::Elsewhere), now), None);
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

    /// A wrong model name in a gateway with one room is nobody's question.
    #[test]
    fn whoever_was_never_answered_asks_nothing_wrong() {
        let (mut trouble, now) = (AgentFailures::default(), Instant::now());
        for _ in 0..FAILURES {
            assert_eq!(trouble.known(now), None);
            trouble.learn(&failed(AgentErrorKind::Unfit), &asker("!home"), now);
        }
        assert!(trouble.known(now).is_some());
    }
}
