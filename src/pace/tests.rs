//! Tests of rate limiter and edit pace together, against a simulated network with an exact token bucket.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use talaria_platform::RateLimit;

use super::{EDITS, EditPace, NextRequest, RateLimiter, RequestClass, UnshownText};

const SYNAPSE: RateLimit = RateLimit { per_second: 0.2, burst: 10.0 };
const SECOND: Duration = Duration::from_secs(1);

/// A network with a token bucket: names the exact time, charges nothing for a refusal.
struct Network {
    truth: RateLimit,
    tokens: f64,
    as_of: Instant,
}

impl Network {
    fn new(now: Instant, truth: RateLimit) -> Self {
        Self { truth, tokens: truth.burst, as_of: now }
    }

    fn request(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = (now - self.as_of).as_secs_f64();
        self.tokens = (self.tokens + passed * self.truth.per_second).min(self.truth.burst);
        self.as_of = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.truth.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

/// Sends as fast as the rate limiter permits, after a pause of `think` each time; returns the number of
/// refusals.
fn send(
    rate_limiter: &mut RateLimiter,
    network: &mut Network,
    now: &mut Instant,
    think: Duration,
    requests: u32,
) -> u32 {
    let mut refused = 0;
    for _ in 0..requests {
        *now += think;
        *now = due(rate_limiter.next(*now, RequestClass::Final, 0), *now);
        let ticket = rate_limiter.started(*now);
        match network.request(*now) {
            Ok(()) => rate_limiter.succeeded(ticket),
            Err(after) => {
                rate_limiter.limited(ticket, *now, after);
                refused += 1;
            }
        }
    }
    refused
}

fn due(next: NextRequest, now: Instant) -> Instant {
    match next {
        NextRequest::Now => now,
        NextRequest::At(time) => time,
        NextRequest::Never => panic!("never is not for finals"),
    }
}

/// `chars` characters that all arrived at `now`.
fn text(now: Instant, chars: usize) -> UnshownText {
    UnshownText { chars, line_end: false, since: now, last: now }
}

#[test]
fn the_networks_word_wins_and_promises_one_token() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, Some(SYNAPSE), None);
    let ticket = rate_limiter.started(now);
    rate_limiter.limited(ticket, now, 7 * SECOND);

    let then = due(rate_limiter.next(now, RequestClass::Final, 1), now);
    assert!((7 * SECOND..8 * SECOND).contains(&(then - now)));
    assert_eq!(rate_limiter.next(then, RequestClass::Final, 1), NextRequest::Now);
    rate_limiter.started(then);
    assert!(due(rate_limiter.next(then, RequestClass::Final, 1), then) > then + 4 * SECOND);
}

#[test]
fn an_absurd_wait_is_bounded() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, None, None);
    let ticket = rate_limiter.started(now);
    rate_limiter.limited(ticket, now, Duration::MAX);
    assert!(due(rate_limiter.next(now, RequestClass::Final, 0), now) < now + 25 * 3600 * SECOND);
}

#[test]
fn two_refusals_measure_the_rate() {
    let mut now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, None, None);
    let mut network = Network::new(now, SYNAPSE);
    assert_eq!(send(&mut rate_limiter, &mut network, &mut now, Duration::ZERO, 5), 0);
    now += 2 * SECOND;
    assert_eq!(send(&mut rate_limiter, &mut network, &mut now, Duration::ZERO, 60), 2);
    let learned = rate_limiter.learned().expect("measured");
    assert!((learned.per_second - 0.2).abs() < 1e-6, "{learned:?}");
}

#[test]
fn requests_refused_together_are_one_lesson() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, Some(SYNAPSE), None);
    let tickets = [(); 3].map(|()| rate_limiter.started(now));
    rate_limiter.limited(tickets[0], now, 4 * SECOND);
    rate_limiter.succeeded(tickets[1]);
    rate_limiter.limited(tickets[2], now + SECOND / 10, 4 * SECOND);
    assert_eq!(rate_limiter.learned(), None);
}

#[test]
fn one_refusal_is_not_believed_for_ever() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, None, None);
    let ticket = rate_limiter.started(now);
    rate_limiter.limited(ticket, now, 60 * SECOND);
    let later = now + 25 * 3600 * SECOND;
    rate_limiter.started(later);
    assert_eq!(rate_limiter.next(later, RequestClass::Partial, 50), NextRequest::Now);
}

#[test]
fn what_was_learned_is_believed_again() {
    let mut now = Instant::now();
    let learned = RateLimit { per_second: 0.5, burst: 3.0 };
    let mut rate_limiter = RateLimiter::new(now, Some(SYNAPSE), Some(learned));
    assert_eq!(rate_limiter.learned(), Some(learned));
    assert_eq!(send(&mut rate_limiter, &mut Network::new(now, learned), &mut now, Duration::ZERO, 20), 0);
}

#[test]
fn the_last_token_is_for_finals_and_partials_wait_longest() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, Some(SYNAPSE), None);
    for _ in 0..9 {
        rate_limiter.started(now);
    }
    let when = |class| due(rate_limiter.next(now, class, 1), now);
    assert_eq!(when(RequestClass::Final), now);
    assert!(now < when(RequestClass::Notice));
    assert!(when(RequestClass::Notice) < when(RequestClass::Anchor));
    assert!(when(RequestClass::Anchor) < when(RequestClass::Partial));
}

#[test]
fn a_tiny_bucket_shows_finals_only_and_starves_nobody() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, Some(RateLimit { per_second: 0.1, burst: 1.0 }), None);
    assert_eq!(rate_limiter.next(now, RequestClass::Partial, 1), NextRequest::Never);
    rate_limiter.started(now);
    for class in [RequestClass::Final, RequestClass::Notice, RequestClass::Anchor] {
        assert!(matches!(rate_limiter.next(now, class, 9), NextRequest::At(_)));
    }
}

#[test]
fn the_first_text_goes_out_at_once_or_soon() {
    let now = Instant::now();
    let rate_limiter = RateLimiter::new(now, Some(SYNAPSE), None);
    let pace = EditPace::new(SECOND, EDITS);
    assert_eq!(pace.next(now, text(now, 12), &rate_limiter, 1), NextRequest::Now);
    assert_eq!(
        pace.next(now, UnshownText { line_end: true, ..text(now, 3) }, &rate_limiter, 1),
        NextRequest::Now
    );
    assert_eq!(
        pace.next(now, text(now, 3), &rate_limiter, 1),
        NextRequest::At(now + Duration::from_millis(300))
    );
    assert_eq!(EditPace::new(SECOND, 0).next(now, text(now, 12), &rate_limiter, 1), NextRequest::Never);
}

#[test]
fn text_that_halts_is_shown_early() {
    let start = Instant::now();
    let rate_limiter = RateLimiter::new(start, Some(RateLimit { burst: 4.0, ..SYNAPSE }), None);
    let mut pace = EditPace::new(SECOND, EDITS);
    for edit in 0..10 {
        let since = start + edit * 5 * SECOND;
        let now = since + 5 * SECOND;
        pace.started(now, UnshownText { last: now, ..text(since, 50) });
    }
    // The usual interval is now several seconds, counted from the first text that is not shown.
    let now = start + 51 * SECOND;
    let halting = pace.next(now, text(now, 50), &rate_limiter, 1);
    assert_eq!(halting, NextRequest::At(now + SECOND / 2));
    let flowing = UnshownText { last: now + 2 * SECOND, ..text(now, 50) };
    let flowing = pace.next(now + 2 * SECOND, flowing, &rate_limiter, 1);
    assert_eq!(flowing, NextRequest::At(now + 2 * SECOND + SECOND / 2));
}

#[test]
fn a_share_too_small_for_streaming_waits_for_the_final() {
    let now = Instant::now();
    let mut rate_limiter = RateLimiter::new(now, Some(SYNAPSE), None);
    let mut pace = EditPace::new(SECOND, EDITS);
    rate_limiter.started(now);
    pace.started(now, text(now, 12));
    let later = now + 20 * SECOND;
    assert_eq!(pace.next(later, text(now, 12), &rate_limiter, 1), NextRequest::Now);
    assert_eq!(pace.next(later, text(now, 12), &rate_limiter, 30), NextRequest::Never);
}

fn rates() -> impl Strategy<Value = RateLimit> {
    (0.05..5.0f64, 2.0..30.0f64).prop_map(|(per_second, burst)| RateLimit { per_second, burst })
}

proptest! {
    #[test]
    fn after_learning_the_truth_is_never_exceeded(
        truth in rates(),
        prior in proptest::option::of(rates()),
        think in (1u64..300).prop_map(Duration::from_millis),
    ) {
        let mut now = Instant::now();
        let mut rate_limiter = RateLimiter::new(now, prior, None);
        let mut network = Network::new(now, truth);
        let mut refused = Vec::new();
        // A busy time and a rest that fills every bucket, several times: the first refusals teach the rate, the
        // next one after a rest teaches the burst.
        for _ in 0..6 {
            let knew = rate_limiter.learned();
            let count = send(&mut rate_limiter, &mut network, &mut now, think, 150);
            refused.push((count, knew));
            now += 2000 * SECOND;
        }
        prop_assert!(refused.iter().all(|&(count, _)| count <= 8), "{:?}", refused);
        let after = refused.iter().skip_while(|(_, knew)| knew.is_none()).skip(1);
        prop_assert_eq!(after.map(|(count, _)| count).sum::<u32>(), 0, "{:?}", refused);
        if let Some(learned) = rate_limiter.learned() {
            prop_assert!(learned.per_second <= truth.per_second * 1.001, "{:?}", learned);
        }
    }

    #[test]
    fn whatever_partials_do_finals_go_out(rate in rates(), open in 1usize..20, waits in proptest::collection::vec(0u64..5000, 1..80)) {
        let mut now = Instant::now();
        let mut rate_limiter = RateLimiter::new(now, Some(rate), None);
        for wait in waits {
            now += Duration::from_millis(wait);
            if rate_limiter.next(now, RequestClass::Partial, open) == NextRequest::Now {
                rate_limiter.started(now);
            }
            let mut finals = rate_limiter.clone();
            for _ in 0..(open as f64).min(rate.burst / 2.0).max(1.0) as u32 {
                prop_assert_eq!(finals.next(now, RequestClass::Final, open), NextRequest::Now);
                finals.started(now);
            }
        }
    }

    #[test]
    fn edits_keep_pause_budget_and_word(
        rate in proptest::option::of(rates()),
        pause in 0u64..3000,
        budget in 0u32..60,
        trip in 1u64..2500,
        gaps in proptest::collection::vec(1u64..20_000, 1..300),
    ) {
        let (pause, trip) = (Duration::from_millis(pause), Duration::from_millis(trip));
        let mut now = Instant::now();
        let mut rate_limiter = RateLimiter::new(now, rate, None);
        let mut network = rate.map(|rate| Network::new(now, rate));
        let mut pace = EditPace::new(pause, budget);
        let mut starts: Vec<Instant> = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            let unshown = text(now, 20);
            match pace.next(now, unshown, &rate_limiter, 1) {
                NextRequest::Never => continue,
                NextRequest::Now => {}
                NextRequest::At(time) => {
                    prop_assert!(time > now);
                    now = time;
                    prop_assert_eq!(pace.next(now, unshown, &rate_limiter, 1), NextRequest::Now, "a time once named holds");
                }
            }
            if let Some(network) = &mut network {
                prop_assert_eq!(network.request(now), Ok(()));
            }
            rate_limiter.started(now);
            pace.started(now, unshown);
            starts.push(now);
            now += trip;
        }
        prop_assert!(starts.len() <= budget as usize);
        prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= pause));
    }
}
