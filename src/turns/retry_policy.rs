//! Decides from the end of one try what to do with its turn: finish, suspend, or try again. Pure.

use std::time::Duration;

use crate::agent::{AgentError, AgentErrorKind, AttemptKind, TurnEnd};
use crate::i18n::{LocalizedText, TextKey};
use crate::reply::TurnOutcome;
use crate::turn_source::WhenAway;

/// Shortest and longest pause between two tries, even if an upstream asks for another one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// `Retry-After` for a client that does not wait, if the upstream names none.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// State of the turn when a try has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptFacts {
    /// The turn has exceeded its cap.
    pub full: bool,
    /// A person asked to stop it.
    pub stopped: bool,
    /// The process is about to end.
    pub draining: bool,
    /// A request was stored, so it may have been sent.
    pub prepared: bool,
    /// The stored request can be sent again without running twice.
    pub resumable: bool,
    /// Whether an earlier try may have run.
    pub attempt: AttemptKind,
    /// The try before asked for this one at once; see [`AgentErrorKind::PrepareAgain`].
    pub prepared_again: bool,
    /// Whether the caller waits or fails while the agent is away.
    pub when_away: WhenAway,
}

/// Next action of the engine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryVerdict {
    /// Finish the turn.
    Over(TurnOutcome),
    /// Suspend: the process ends first, and the next one resumes from the store.
    Suspend,
    /// Put the turn back into the queue: the process ends first and nothing ran, so the next one begins it anew.
    Later,
    /// Try again, if the retry budget allows it.
    Again(NextAttempt),
}

/// Plan of another try.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextAttempt {
    /// Whether the next try is the first that could run, or resumes one that may have.
    pub attempt: AttemptKind,
    /// The last error, for people.
    pub words: LocalizedText,
    /// Pause before it.
    pub pause: RetryPause,
}

/// Pause between two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPause {
    /// None. The try does not count against the retry budget.
    AtOnce,
    /// The next pause of our own, growing from try to try.
    Backoff,
    /// The pause that the upstream asks for, within our limits.
    Asked(Duration),
}

impl RetryPause {
    /// Length of the pause; `backoff` is the next one of our own.
    pub fn length(self, backoff: Duration) -> Duration {
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::Backoff => backoff,
            Self::Asked(pause) => pause,
        }
    }
}

impl From<Option<Duration>> for RetryPause {
    fn from(after: Option<Duration>) -> Self {
        after.map_or(Self::Backoff, |after| Self::Asked(bounded_pause(after)))
    }
}

impl NextAttempt {
    /// Outcome of the turn if the retry budget is used up.
    pub fn give_up(self) -> TurnOutcome {
        match self.attempt {
            AttemptKind::First => TurnOutcome::Failed { words: self.words },
            AttemptKind::Resume => TurnOutcome::Unknown { words: self.words },
        }
    }
}

/// Judges a try. Our own requests come first: an agent that was told to end may well answer with an error.
pub(super) fn judge(end: Result<TurnEnd, AgentError>, facts: AttemptFacts) -> RetryVerdict {
    if facts.full {
        return RetryVerdict::Over(TurnOutcome::CutShort { words: TextKey::AnswerTooLong.into() });
    }
    let error = match end {
        Ok(TurnEnd::Done) => return RetryVerdict::Over(TurnOutcome::Done),
        Ok(TurnEnd::Limit) => return RetryVerdict::Over(TurnOutcome::Limit),
        Ok(TurnEnd::Stopped) | Err(_) if facts.stopped => return RetryVerdict::Over(TurnOutcome::Stopped),
        Err(AgentError { kind, .. }) if facts.draining && ran_nothing(kind, facts.attempt) => {
            return RetryVerdict::Later;
        }
        // Nothing was sent, or it can be sent again: the next process goes on.
        Ok(TurnEnd::Stopped) | Err(_) if facts.draining && (facts.resumable || !facts.prepared) => {
            return RetryVerdict::Suspend;
        }
        Ok(TurnEnd::Stopped) | Err(_) if facts.draining => {
            return RetryVerdict::Over(TurnOutcome::Interrupted);
        }
        Ok(TurnEnd::Stopped) => return RetryVerdict::Over(TurnOutcome::Stopped),
        Err(error) => error,
    };
    let AgentError { kind, words } = error;
    let again = |attempt, pause| RetryVerdict::Again(NextAttempt { attempt, words: words.clone(), pause });
    if let Some(rate_limited) = fails_at_once(kind, facts) {
        let retry_after = kind.retry_after().map_or(RETRY_AFTER, bounded_pause).as_secs();
        return RetryVerdict::Over(TurnOutcome::Unavailable { words, rate_limited, retry_after });
    }
    match kind {
        // Nothing ran this time, but an earlier try may have.
        AgentErrorKind::NothingRan { after } | AgentErrorKind::Busy { after, .. } => {
            again(facts.attempt, after.into())
        }
        AgentErrorKind::PrepareAgain if tries_at_once(kind, facts) => {
            again(AttemptKind::First, RetryPause::AtOnce)
        }
        // Twice in a row, or where an earlier try may have run, this counts as a failed try.
        AgentErrorKind::PrepareAgain => again(facts.attempt, RetryPause::Backoff),
        AgentErrorKind::Unknown { after } if facts.resumable => again(AttemptKind::Resume, after.into()),
        AgentErrorKind::Unknown { .. } | AgentErrorKind::Lost => {
            RetryVerdict::Over(TurnOutcome::Unknown { words })
        }
        AgentErrorKind::Refused | AgentErrorKind::Unfit => RetryVerdict::Over(TurnOutcome::Failed { words }),
        AgentErrorKind::CutShort => RetryVerdict::Over(TurnOutcome::CutShort { words }),
    }
}

/// `Some` if the turn ends here because nothing ran and its client does not wait; then, whether the upstream reported a
/// rate limit.
fn fails_at_once(kind: AgentErrorKind, facts: AttemptFacts) -> Option<bool> {
    let ends =
        facts.when_away == WhenAway::Fail && ran_nothing(kind, facts.attempt) && !tries_at_once(kind, facts);
    ends.then_some(matches!(kind, AgentErrorKind::Busy { rate_limited: true, .. }))
}

/// Whether the agent may make another request at once: not twice in a row, and only if nothing may have run.
fn tries_at_once(kind: AgentErrorKind, facts: AttemptFacts) -> bool {
    kind == AgentErrorKind::PrepareAgain && facts.attempt == AttemptKind::First && !facts.prepared_again
}

/// Limits the pause that an upstream asks for.
fn bounded_pause(after: Duration) -> Duration {
    after.clamp(PAUSES.0, PAUSES.1)
}

/// Whether it is proven that no try of the turn ran anything.
fn ran_nothing(kind: AgentErrorKind, attempt: AttemptKind) -> bool {
    let this_one = match kind {
        AgentErrorKind::NothingRan { .. } | AgentErrorKind::Busy { .. } | AgentErrorKind::PrepareAgain => {
            true
        }
        AgentErrorKind::Unknown { .. }
        | AgentErrorKind::Lost
        | AgentErrorKind::Refused
        | AgentErrorKind::Unfit
        | AgentErrorKind::CutShort => false,
    };
    this_one && attempt == AttemptKind::First
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: AttemptFacts = AttemptFacts {
        full: false,
        stopped: false,
        draining: false,
        prepared: true,
        resumable: false,
        attempt: AttemptKind::First,
        prepared_again: false,
        when_away: WhenAway::Wait,
    };
    const RESUMABLE: AttemptFacts = AttemptFacts { resumable: true, ..PLAIN };

    fn failed(kind: AgentErrorKind) -> Result<TurnEnd, AgentError> {
        Err(AgentError::new(kind, "no"))
    }

    fn busy(after: Option<Duration>) -> AgentErrorKind {
        AgentErrorKind::Busy { after, rate_limited: true }
    }

    fn again(attempt: AttemptKind) -> RetryVerdict {
        again_after(attempt, RetryPause::Backoff)
    }

    fn again_after(attempt: AttemptKind, pause: RetryPause) -> RetryVerdict {
        RetryVerdict::Again(NextAttempt { attempt, words: "no".into(), pause })
    }

    #[test]
    fn only_what_cannot_run_twice_is_tried_again() {
        let nothing = || failed(AgentErrorKind::NothingRan { after: None });
        let unknown = || failed(AgentErrorKind::Unknown { after: None });
        let told = || RetryVerdict::Over(TurnOutcome::Unknown { words: "no".into() });
        assert_eq!(judge(nothing(), PLAIN), again(AttemptKind::First));
        assert_eq!(judge(unknown(), PLAIN), told());
        assert_eq!(judge(unknown(), RESUMABLE), again(AttemptKind::Resume));
        // Repeating the request would not tell how the turn went.
        assert_eq!(judge(failed(AgentErrorKind::Lost), RESUMABLE), told());
        // Once a try may have run, a refused connection does not prove the contrary.
        let resumed = AttemptFacts { attempt: AttemptKind::Resume, ..RESUMABLE };
        assert_eq!(judge(nothing(), resumed), again(AttemptKind::Resume));
    }

    #[test]
    fn another_request_is_made_at_once_but_not_twice_in_a_row_and_never_if_the_turn_may_have_run() {
        let prepare_again = || failed(AgentErrorKind::PrepareAgain);
        let at_once = again_after(AttemptKind::First, RetryPause::AtOnce);
        assert_eq!(judge(prepare_again(), PLAIN), at_once);
        let twice = AttemptFacts { prepared_again: true, ..PLAIN };
        assert_eq!(judge(prepare_again(), twice), again(AttemptKind::First));
        let resumed = AttemptFacts { attempt: AttemptKind::Resume, ..RESUMABLE };
        assert_eq!(judge(prepare_again(), resumed), again(AttemptKind::Resume));
    }

    #[test]
    fn the_pause_that_an_upstream_asks_for_has_limits() {
        for (seconds, bounded) in [(0, 1), (60, 60), (86_400, 300)] {
            let kind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(seconds)) };
            let pause = RetryPause::Asked(Duration::from_secs(bounded));
            assert_eq!(judge(failed(kind), PLAIN), again_after(AttemptKind::First, pause));
        }
    }

    #[test]
    fn a_turn_whose_client_does_not_wait_ends_when_it_is_proven_that_nothing_ran() {
        let impatient = AttemptFacts { when_away: WhenAway::Fail, ..PLAIN };
        let ended = |rate_limited, retry_after| {
            RetryVerdict::Over(TurnOutcome::Unavailable { words: "no".into(), rate_limited, retry_after })
        };
        let nothing = |seconds: Option<u64>| {
            failed(AgentErrorKind::NothingRan { after: seconds.map(Duration::from_secs) })
        };
        assert_eq!(judge(nothing(None), impatient), ended(false, 5));
        assert_eq!(judge(nothing(Some(0)), impatient), ended(false, 1));
        assert_eq!(judge(nothing(Some(86_400)), impatient), ended(false, 300));
        assert_eq!(judge(failed(busy(Some(Duration::from_secs(7)))), impatient), ended(true, 7));
        // Another request is made first, and only once.
        let prepare_again = || failed(AgentErrorKind::PrepareAgain);
        let at_once = again_after(AttemptKind::First, RetryPause::AtOnce);
        assert_eq!(judge(prepare_again(), impatient), at_once);
        let twice = AttemptFacts { prepared_again: true, ..impatient };
        assert_eq!(judge(prepare_again(), twice), ended(false, 5));
        // An earlier try may have run: its answer is worth the wait.
        let resumed = AttemptFacts { attempt: AttemptKind::Resume, resumable: true, ..impatient };
        assert_eq!(judge(nothing(None), resumed), again(AttemptKind::Resume));
    }

    #[test]
    fn at_the_end_of_the_budget_people_are_told_whether_it_may_have_run() {
        let give_up =
            |attempt| NextAttempt { attempt, words: "no".into(), pause: RetryPause::Backoff }.give_up();
        assert_eq!(give_up(AttemptKind::First), TurnOutcome::Failed { words: "no".into() });
        assert_eq!(give_up(AttemptKind::Resume), TurnOutcome::Unknown { words: "no".into() });
    }

    #[test]
    fn the_end_of_the_process_loses_nothing_and_runs_nothing_twice() {
        let ended =
            |facts: AttemptFacts| judge(Ok(TurnEnd::Stopped), AttemptFacts { draining: true, ..facts });
        assert_eq!(ended(RESUMABLE), RetryVerdict::Suspend);
        assert_eq!(ended(AttemptFacts { prepared: false, ..PLAIN }), RetryVerdict::Suspend);
        assert_eq!(ended(PLAIN), RetryVerdict::Over(TurnOutcome::Interrupted));
        assert_eq!(
            ended(AttemptFacts { stopped: true, ..RESUMABLE }),
            RetryVerdict::Over(TurnOutcome::Stopped)
        );
    }

    #[test]
    fn what_provably_did_not_run_is_begun_anew_by_the_next_process() {
        let after = None;
        let nothing = [AgentErrorKind::NothingRan { after }, busy(after), AgentErrorKind::PrepareAgain];
        let ended = |kind, facts: AttemptFacts| judge(failed(kind), AttemptFacts { draining: true, ..facts });
        for kind in nothing {
            assert_eq!(ended(kind, PLAIN), RetryVerdict::Later, "{kind:?}");
            assert_eq!(ended(kind, RESUMABLE), RetryVerdict::Later, "{kind:?}");
            // An earlier try may have run, and a person who wants it stopped comes first.
            let resumed = AttemptFacts { attempt: AttemptKind::Resume, ..PLAIN };
            assert_eq!(ended(kind, resumed), RetryVerdict::Over(TurnOutcome::Interrupted), "{kind:?}");
            let resumed = AttemptFacts { attempt: AttemptKind::Resume, ..RESUMABLE };
            assert_eq!(ended(kind, resumed), RetryVerdict::Suspend, "{kind:?}");
            let stopped = AttemptFacts { stopped: true, ..PLAIN };
            assert_eq!(ended(kind, stopped), RetryVerdict::Over(TurnOutcome::Stopped), "{kind:?}");
        }
        for kind in [AgentErrorKind::Unknown { after }, AgentErrorKind::Refused, AgentErrorKind::CutShort] {
            assert_eq!(ended(kind, PLAIN), RetryVerdict::Over(TurnOutcome::Interrupted), "{kind:?}");
        }
    }

    #[test]
    fn an_answer_that_came_whole_counts_whatever_was_asked_meanwhile() {
        let late = AttemptFacts { stopped: true, draining: true, ..PLAIN };
        assert_eq!(judge(Ok(TurnEnd::Done), late), RetryVerdict::Over(TurnOutcome::Done));
        assert!(matches!(
            judge(Ok(TurnEnd::Done), AttemptFacts { full: true, ..PLAIN }),
            RetryVerdict::Over(TurnOutcome::CutShort { .. })
        ));
    }
}
