//! Pauses between attempts: each is twice as long as the one before, up to a limit.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

/// Derives the pauses of one action that is tried again and again. Pure: the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses that begin with `first` and double up to `longest`.
    pub const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The pause after the next failure.
    pub fn pause(&self) -> Duration {
        self.next
    }

    /// Counts one more failure. Returns the pause that follows it; the one after that is twice as long.
    pub fn advance(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Starts over with the first pause, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A random part of a pause, between half of it and the whole, so that clients that failed at one moment do not all
/// come back at one moment.
pub fn jitter(pause: Duration) -> Duration {
    // Every hasher of the standard library begins differently. Not for secrets.
    let [chance, ..] = RandomState::new().hash_one(0_u8).to_le_bytes();
    pause / 2 + (pause / 2).mul_f64(f64::from(chance) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(5));
        let pauses: Vec<u64> = (0..5).map(|_| backoff.advance().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_secs(1));
        let mut endless = Backoff::between(Duration::from_secs(1), Duration::MAX);
        assert!((0..200).map(|_| endless.advance()).all(|pause| pause >= Duration::from_secs(1)));
    }

    #[test]
    fn jitter_stays_between_half_and_all_of_a_pause() {
        let pause = Duration::from_millis(100);
        let pauses: Vec<_> = (0..200).map(|_| jitter(pause)).collect();
        assert!(pauses.iter().all(|jittered| (pause / 2..=pause).contains(jittered)), "{pauses:?}");
        assert!(pauses.iter().any(|jittered| *jittered != pauses[0]), "they differ");
    }
}
