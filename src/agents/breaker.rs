//! Decides whether an agent is worth asking. Pure: the caller passes the time in.
//!
//! Two failures in a row open the breaker, and then no turn waits for an agent that is away. After a pause one turn may
//! probe whether the agent is back; each time it is not, the next pause is twice as long.

use std::time::{Duration, Instant};

use talaria_platform::Backoff;

/// Failures in a row that open the breaker. One alone may be a hiccup, and a turn of which nothing ran goes to the
/// fallback anyway; with three, one more person would wait for a timeout.
const FAILURES: u32 = 2;

/// Time that the breaker stays open, at first and at most. Short enough that a restart of the agent is noticed soon, long
/// enough that an agent that stays away costs few people a wait.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(30), Duration::from_secs(5 * 60));

/// State of one agent.
#[derive(Debug)]
pub struct CircuitBreaker {
    state: BreakerState,
    /// Failures since the last turn that went well.
    failures: u32,
    /// Time that the breaker stays open the next time.
    pause: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    /// The agent is asked.
    Closed,
    /// The agent is not asked before this time.
    Open { until: Instant },
    /// One turn probes the agent. It may be stopped or lost without a result, so after this time another turn may probe.
    Probing { until: Instant },
}

/// Route of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerRoute {
    /// The turn goes to the agent.
    Agent,
    /// The turn goes to the agent, if it answers a cheap question first.
    Probe,
    /// The turn goes around the agent.
    Around,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self { state: BreakerState::Closed, failures: 0, pause: PAUSES }
    }
}

impl CircuitBreaker {
    /// Chooses the route of the next turn. Of the turns that come after the pause, one probes.
    pub fn route(&mut self, now: Instant) -> BreakerRoute {
        match self.state {
            BreakerState::Closed => BreakerRoute::Agent,
            BreakerState::Open { until } | BreakerState::Probing { until } if now < until => {
                BreakerRoute::Around
            }
            BreakerState::Open { .. } | BreakerState::Probing { .. } => {
                self.state = BreakerState::Probing { until: now + self.pause.pause() };
                BreakerRoute::Probe
            }
        }
    }

    /// The agent failed, or did not answer a probe. Returns whether that opened the breaker.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        match self.state {
            BreakerState::Closed if self.failures < FAILURES => false,
            // The turn began before the breaker opened, so it says nothing new.
            BreakerState::Open { .. } => false,
            BreakerState::Closed | BreakerState::Probing { .. } => {
                let opened = self.state == BreakerState::Closed;
                self.state = BreakerState::Open { until: now + self.pause.advance() };
                opened
            }
        }
    }

    /// The agent said something, though the turn has not ended well yet. The breaker closes, but one more failure opens
    /// it again. Returns whether that closed it.
    pub fn answered(&mut self) -> bool {
        match self.state {
            BreakerState::Closed => false,
            BreakerState::Open { .. } | BreakerState::Probing { .. } => {
                self.state = BreakerState::Closed;
                self.failures = FAILURES - 1;
                true
            }
        }
    }

    /// A turn ended well. Returns whether that closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let closed = self.is_open();
        *self = Self::default();
        closed
    }

    /// Whether turns go around the agent, except for one that may probe.
    pub fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of a test, at a given second.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A turn comes, and goes there.
        Turn(BreakerRoute),
        Fails,
        Answers,
        Succeeds,
    }
    use BreakerRoute::{Agent, Around, Probe};
    use Step::{Answers, Fails, Succeeds, Turn};

    #[track_caller]
    fn plays(steps: &[(u64, Step)]) {
        let (start, mut breaker) = (Instant::now(), CircuitBreaker::default());
        for (number, (second, step)) in steps.iter().enumerate() {
            let now = start + Duration::from_secs(*second);
            match step {
                Turn(route) => assert_eq!(breaker.route(now), *route, "step {number}: {breaker:?}"),
                Fails => drop(breaker.failed(now)),
                Answers => drop(breaker.answered()),
                Succeeds => drop(breaker.succeeded()),
            }
        }
    }

    #[test]
    fn two_failures_in_a_row_open_it_and_fewer_do_not() {
        plays(&[(0, Turn(Agent)), (0, Fails), (0, Turn(Agent)), (0, Fails), (0, Turn(Around))]);
        plays(&[(0, Fails), (1, Succeeds), (2, Fails), (2, Turn(Agent)), (3, Fails), (3, Turn(Around))]);
        // An answer that began but broke off is no turn that went well.
        plays(&[(0, Answers), (0, Fails), (1, Answers), (1, Fails), (1, Turn(Around))]);
    }

    #[test]
    fn after_the_pause_one_turn_probes_and_the_others_go_around() {
        plays(&[
            (0, Fails),
            (0, Fails),
            (29, Turn(Around)),
            (30, Turn(Probe)),
            (30, Turn(Around)),
            (31, Succeeds),
            (31, Turn(Agent)),
        ]);
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_five_minutes() {
        let mut steps = vec![(0, Fails), (0, Fails)];
        let mut second = 0;
        for pause in [30, 60, 120, 240, 300, 300] {
            steps.extend([(second + pause - 1, Turn(Around)), (second + pause, Turn(Probe))]);
            second += pause;
            steps.push((second, Fails));
        }
        plays(&steps);
        // A turn that went well makes the next pause short again.
        steps.extend([(second, Succeeds), (second, Fails), (second, Fails)]);
        steps.extend([(second + 29, Turn(Around)), (second + 30, Turn(Probe))]);
        plays(&steps);
    }

    #[test]
    fn a_probe_that_answers_lets_the_others_in_but_one_failure_opens_it_again() {
        plays(&[(0, Fails), (0, Fails), (30, Turn(Probe)), (31, Answers), (31, Turn(Agent))]);
        plays(&[
            (0, Fails),
            (0, Fails),
            (30, Turn(Probe)),
            (31, Answers),
            (32, Fails),
            (32, Turn(Around)),
            (32 + 59, Turn(Around)),
            (32 + 60, Turn(Probe)),
        ]);
    }

    #[test]
    fn a_probe_that_is_never_heard_of_again_is_followed_by_another() {
        plays(&[
            (0, Fails),
            (0, Fails),
            (30, Turn(Probe)),
            (89, Turn(Around)),
            (90, Turn(Probe)),
            (90, Turn(Around)),
        ]);
    }

    #[test]
    fn what_began_before_it_opened_cannot_keep_it_open_but_can_close_it() {
        plays(&[(0, Fails), (0, Fails), (20, Fails), (25, Fails), (30, Turn(Probe))]);
        plays(&[(0, Fails), (0, Fails), (20, Succeeds), (20, Turn(Agent))]);
        plays(&[(0, Fails), (0, Fails), (20, Answers), (20, Turn(Agent))]);
    }

    #[test]
    fn opening_and_closing_are_told_once() {
        let (now, mut breaker) = (Instant::now(), CircuitBreaker::default());
        assert!(!breaker.failed(now) && !breaker.is_open());
        assert!(breaker.failed(now) && breaker.is_open());
        assert!(!breaker.failed(now));
        assert!(breaker.answered() && !breaker.is_open());
        assert!(!breaker.answered() && !breaker.succeeded());
        let again = breaker.failed(now) || breaker.failed(now);
        assert!(again && breaker.succeeded() && !breaker.succeeded());
    }
}
