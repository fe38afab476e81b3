//! Tracks how many requests an account may make.
//!
//! A network counts every send and edit of an account, over all rooms, in a token bucket that we can
//! only guess. The rate limiter starts from the platform's prior, or from what an earlier run learned, and
//! each refusal corrects it:
//!
//! - **The network's word wins.** Until the time it named nothing is sent; at that time there is
//!   exactly one token, because that is what "try again then" means. A refused request costs none.
//! - **The rate** is measured between two refusals: at both named times the bucket held one token, so
//!   the requests that succeeded in between are what came back meanwhile. Until there is such a
//!   measurement, each refusal alone sets an upper bound.
//! - **The burst** is only ever learned downwards, from a refusal that came too early after a bucket
//!   that was full beyond doubt.
//!
//! A limit that was lifted is not noticed: nothing probes upwards yet.
//!
//! Tokens are kept for finished answers: the more streams are open, the more finals may come at the
//! same moment. See [`RateLimiter::next`].

use std::time::{Duration, Instant};

use talaria_platform::RateLimit;

use super::{NextRequest, RequestClass};

/// Rates outside this range are errors of measurement.
const SANE: std::ops::RangeInclusive<f64> = 0.02..=100.0;

/// Assumed for a platform that named no limit and yet refused. Low: the next refusal measures it.
const GUESS: RateLimit = RateLimit { per_second: 1.0, burst: 5.0 };

/// Time for which we believe a limit that a refusal only suggests; a measured one stays. Also the longest wait that a
/// network can impose: trying again once a day does no harm.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// After a rest of this length that brought this many tokens, even a bucket much smaller than believed
/// may have been full.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_TOKENS: f64 = 3.0;

/// Factor for an assumed rate after a refusal that teaches nothing else.
const TOO_HIGH: f64 = 0.8;

/// Added to every wait for a token: clocks are rounded, and two requests may arrive a little closer together
/// than they were sent.
const MARGIN: Duration = Duration::from_millis(20);

/// The rate limit of one account, as far as it is known.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    /// Limit that the network is believed to enforce; `None` is no limit.
    rate: Option<RateLimit>,
    /// Limit that was believed at first.
    assumed: Option<RateLimit>,
    /// Since when `rate` is lower than `assumed` only on suspicion.
    suspected: Option<Instant>,
    /// Tokens in the bucket at `as_of`. Below zero if requests were made without asking.
    tokens: f64,
    /// In the future after a refusal: until then nothing may be sent.
    as_of: Instant,
    /// The rate was measured (now or by an earlier run) and not just assumed.
    measured: bool,
    /// `tokens` was corrected by a refusal at least once. Before that, spending by an earlier process of this
    /// account is unknown.
    witnessed: bool,
    /// Start of the running measurement of the rate.
    refusal: Option<RateRefusal>,
    /// The last time the bucket was full beyond doubt.
    full: Option<FullBucket>,
}

/// The beginning of a measurement: at `free_at` the bucket held one token.
#[derive(Clone, Copy, Debug)]
struct RateRefusal {
    /// When the network promised the next token.
    free_at: Instant,
    /// Requests started since then that succeeded.
    succeeded: u32,
    /// Most tokens that can have been there after the latest request, if they were refilled at `fastest`.
    at_most: f64,
    fastest: f64,
}

impl RateRefusal {
    /// Counts a request after `idle`. The measurement ends when the bucket may have been full, because tokens
    /// beyond that are lost and cannot be counted.
    fn spend(mut self, idle: Duration, burst: f64) -> Option<Self> {
        let came_back = idle.as_secs_f64() * self.fastest;
        self.at_most += came_back;
        let rested = idle > IDLE && came_back > IDLE_TOKENS;
        let full = self.at_most >= burst;
        self.at_most -= 1.0;
        (!rested && !full).then_some(self)
    }
}

#[derive(Clone, Copy, Debug)]
struct FullBucket {
    at: Instant,
    /// Requests started since, the refused one included.
    spent: u32,
}

/// A request that was announced to its rate limiter, with its start.
#[derive(Clone, Copy, Debug)]
pub struct RequestTicket(Instant);

/// Tokens that one of several streams may count on. Both are infinite if no limit is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamShare {
    /// Its part of the tokens that are available now and not reserved for finals.
    pub tokens: f64,
    /// Its part of the refill.
    pub per_second: f64,
}

impl RateLimiter {
    /// Creates a rate limiter with a full bucket. `learned` is the result of [`learned`](Self::learned) in an
    /// earlier run and overrides `prior`.
    pub fn new(now: Instant, prior: Option<RateLimit>, learned: Option<RateLimit>) -> Self {
        let rate = learned.or(prior).map(sane);
        Self {
            rate,
            assumed: rate,
            suspected: None,
            tokens: rate.map_or(0.0, |rate| rate.burst),
            as_of: now,
            measured: learned.is_some(),
            witnessed: false,
            refusal: None,
            full: None,
        }
    }

    /// Limit to store for the next run; `None` until the network has taught one.
    pub fn learned(&self) -> Option<RateLimit> {
        self.rate.filter(|_| self.measured)
    }

    /// When a request of this class may be made while `open` streams will still need a final.
    ///
    /// A final may take the last token. A partial edit leaves one for each open stream, at most half the bucket
    /// and at least one; an anchor leaves half of that and a notice a quarter, so that they go first when
    /// tokens are short. A cleanup waits for a full bucket. If the bucket is too small for partial edits, they
    /// get [`NextRequest::Never`]; every other class always gets its turn.
    pub fn next(&self, now: Instant, class: RequestClass, open: usize) -> NextRequest {
        let Some(rate) = self.rate else { return NextRequest::Now };
        let reserve = reserve(rate, open);
        let needed = match class {
            RequestClass::Final => 1.0,
            RequestClass::Notice => (1.0 + reserve / 4.0).min(rate.burst),
            RequestClass::Anchor => (1.0 + reserve / 2.0).min(rate.burst),
            RequestClass::Partial => 1.0 + reserve,
            RequestClass::Cleanup => rate.burst,
        };
        if needed > rate.burst {
            return NextRequest::Never;
        }
        // Decided by the time, not by the tokens, so that asking at the named time never answers "a nanosecond
        // later" because of rounding.
        let missing = needed - self.tokens;
        if missing <= 0.0 {
            return NextRequest::at(self.as_of, now);
        }
        NextRequest::at(self.as_of + Duration::from_secs_f64(missing / rate.per_second) + MARGIN, now)
    }

    /// Tokens that one of `open` streams may use for its partial edits.
    pub fn share(&self, now: Instant, open: usize) -> StreamShare {
        let Some(rate) = self.rate else {
            return StreamShare { tokens: f64::INFINITY, per_second: f64::INFINITY };
        };
        let streams = open.max(1) as f64;
        StreamShare {
            tokens: (self.available(now, rate) - reserve(rate, open)).max(0.0) / streams,
            per_second: rate.per_second / streams,
        }
    }

    /// Records a request. Call this before awaiting it, and pass the ticket with its outcome. An outcome that
    /// says nothing about the limit (a lost connection) need not be reported.
    pub fn started(&mut self, now: Instant) -> RequestTicket {
        let ticket = RequestTicket(now);
        let idle = now.saturating_duration_since(self.as_of);
        if self.suspected.is_some_and(|since| now.saturating_duration_since(since) >= DAY) {
            self.rate = self.assumed;
            self.suspected = None;
        }
        let Some(rate) = self.rate else { return ticket };
        let available = self.available(now, rate);

        self.refusal = self.refusal.and_then(|refusal| refusal.spend(idle, rate.burst));
        if available >= rate.burst {
            let beyond_doubt = self.witnessed || idle.as_secs_f64() * rate.per_second >= rate.burst;
            self.full = beyond_doubt.then_some(FullBucket { at: now, spent: 0 });
        }
        if let Some(full) = &mut self.full {
            full.spent += 1;
        }
        self.tokens = available - 1.0;
        self.as_of = self.as_of.max(now);
        ticket
    }

    /// Records that the network accepted the request.
    pub fn succeeded(&mut self, ticket: RequestTicket) {
        if let Some(refusal) = self.refusal.as_mut().filter(|refusal| ticket.0 >= refusal.free_at) {
            refusal.succeeded += 1;
        }
    }

    /// Records that the network refused the request for too many, and asked to wait for `after`.
    pub fn limited(&mut self, ticket: RequestTicket, now: Instant, after: Duration) {
        let free_at = now + after.min(DAY) + MARGIN;
        let rate = self.rate.unwrap_or(GUESS);
        // Requests that were under way together are refused together: that is one lesson, not many.
        let news = self.refusal.is_none_or(|last| ticket.0 >= last.free_at);
        self.rate = Some(sane(if news { self.learn(rate, free_at, after) } else { rate }));
        self.tokens = 1.0;
        self.as_of = self.as_of.max(free_at);
        self.witnessed = true;
    }

    fn learn(&mut self, mut rate: RateLimit, free_at: Instant, after: Duration) -> RateLimit {
        let before = rate;
        // Spent tokens are a full bucket plus the refill since. Of burst and rate, the one that was only
        // assumed is corrected; only downwards, because "full" may be wrong.
        if let Some(full) = self.full.take() {
            let since = free_at.duration_since(full.at).as_secs_f64();
            let spent = f64::from(full.spent);
            if self.measured {
                rate.burst = rate.burst.min(spent - rate.per_second * since);
            } else if spent > rate.burst {
                rate.per_second = rate.per_second.min((spent - rate.burst) / since);
            }
        }
        // Refused twice without a success in between: the network was wrong about the time, or another program
        // uses the account. Not a measurement, and no reason to end the running one.
        if self.refusal.is_some_and(|last| last.succeeded == 0) {
            return rate;
        }
        if let Some(last) = self.refusal {
            let between = free_at.duration_since(last.free_at).as_secs_f64();
            rate.per_second = f64::from(last.succeeded) / between;
            self.measured = true;
        }
        // The wait was for one token or the rest of one, so the refill is no faster than this.
        let fastest = 1.0 / after.as_secs_f64();
        if !self.measured {
            rate.per_second = rate.per_second.min(fastest);
            if self.witnessed && rate == before {
                rate.per_second *= TOO_HIGH;
            }
        }
        self.suspected = (!self.measured).then_some(free_at);
        self.refusal =
            Some(RateRefusal { free_at, succeeded: 0, at_most: 1.0, fastest: rate.per_second.min(fastest) });
        rate
    }

    /// Tokens at `now`; during an imposed wait, those at its end.
    fn available(&self, now: Instant, rate: RateLimit) -> f64 {
        let passed = now.saturating_duration_since(self.as_of).as_secs_f64();
        (self.tokens + passed * rate.per_second).min(rate.burst)
    }
}

/// Tokens that partial edits leave for finals.
fn reserve(rate: RateLimit, open: usize) -> f64 {
    (open as f64).min(rate.burst / 2.0).max(1.0)
}

/// Clamps a guess or a measurement to the possible range.
fn sane(rate: RateLimit) -> RateLimit {
    RateLimit { per_second: rate.per_second.clamp(*SANE.start(), *SANE.end()), burst: rate.burst.max(1.0) }
}
