//! Decides when a growing message shows its next edit.
//!
//! The first text goes out at once, so that people see that someone is there. After that:
//!
//! - at least the platform's pause lies between the *starts* of two requests, so the interval people
//!   see is the configured one for any round trip; the caller awaits each request before it asks
//!   again, so there are never two under way;
//! - tokens that the account can spare are spread over the expected rest of the message. The length of an answer is not
//!   known; one that has run for a while is expected to run for as long again;
//! - text that has come to a halt is shown early: it would be stale for the whole halt;
//! - the number of edits is bounded ([`EDITS`](super::EDITS));
//! - when so many streams share the account that this one could edit too rarely to count as streaming, nothing is shown
//!   until the final.
//!
//! The final is not paced here: it is sent when the rate limiter has a token, and one is reserved.

use std::time::{Duration, Instant};

use super::{NextRequest, RateLimiter, RequestClass, StreamShare, budget};

/// Characters that make a first message worth sending; fewer look like a typing error.
const FIRST_CHARS: usize = 12;

/// A first text older than this is sent however short it is.
const FIRST_WAIT: Duration = Duration::from_millis(300);

/// An answer is expected to last at least this long. Short on purpose: most answers are short, and
/// later the time that has passed is the better guess.
const EXPECTED: Duration = Duration::from_secs(14);

/// No new text for this long is a halt: a tool runs, or the model thinks.
const HALT: Duration = Duration::from_millis(500);

/// A share below one request in this time is too small for streaming.
const RAREST: Duration = Duration::from_secs(60);

/// The pace of one growing message.
#[derive(Clone, Debug)]
pub struct EditPace {
    pause: Duration,
    budget: u32,
    /// Requests started so far, the anchor included.
    made: u32,
    /// `None` before the first request.
    run: Option<EditHistory>,
}

/// Timing of the requests so far.
#[derive(Clone, Copy, Debug)]
struct EditHistory {
    /// Starts of the first and of the latest request.
    first: Instant,
    latest: Instant,
    /// When the newest text came that the latest request shows.
    text: Instant,
    /// Total time without new text so far.
    halted: Duration,
}

/// Text that the message does not show yet. Never empty: without new text there is nothing to decide.
#[derive(Clone, Copy, Debug)]
pub struct UnshownText {
    /// Length in bytes, at most 64. Only used before the first message.
    pub chars: usize,
    /// Whether it contains a complete line. Only used before the first message.
    pub line_end: bool,
    /// When its oldest part arrived.
    pub since: Instant,
    /// When its newest part arrived.
    pub last: Instant,
}

impl EditPace {
    /// Creates the pace of a message that has not been sent yet. `pause` is the platform's, `budget` usually
    /// [`EDITS`](super::EDITS).
    pub fn new(pause: Duration, budget: u32) -> Self {
        Self { pause, budget, made: 0, run: None }
    }

    /// Sets the shortest time between the starts of two requests.
    pub fn set_pause(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Class of the next request.
    pub fn class(&self) -> RequestClass {
        if self.run.is_some() { RequestClass::Partial } else { RequestClass::Anchor }
    }

    /// When to show `text`. `open` counts the account's growing messages, this one included. Must not be called
    /// while a request for this message is under way.
    pub fn next(
        &self,
        now: Instant,
        text: UnshownText,
        rate_limiter: &RateLimiter,
        open: usize,
    ) -> NextRequest {
        let wish = match self.run {
            None => self.first(now, text),
            Some(run) => self.later(now, text, rate_limiter.share(now, open), run),
        };
        wish.and(rate_limiter.next(now, self.class(), open))
    }

    /// Time before which no edit is made, even if more text arrives; `None` before the first request.
    pub fn earliest(&self) -> Option<Instant> {
        let least = budget::pause(self.made, self.budget, self.pause)?;
        Some(self.run?.latest + least)
    }

    /// Records a request that shows `text` (besides [`RateLimiter::started`]).
    pub fn started(&mut self, now: Instant, text: UnshownText) {
        self.made += 1;
        let run = self.run.unwrap_or(EditHistory {
            first: now,
            latest: now,
            text: text.since,
            halted: Duration::ZERO,
        });
        let still = text.since.saturating_duration_since(run.text);
        let halt = if still >= HALT { still } else { Duration::ZERO };
        self.run = Some(EditHistory { latest: now, text: text.last, halted: run.halted + halt, ..run });
    }

    fn first(&self, now: Instant, text: UnshownText) -> NextRequest {
        if self.budget == 0 {
            NextRequest::Never
        } else if text.chars >= FIRST_CHARS || text.line_end {
            NextRequest::Now
        } else {
            NextRequest::at(text.since + FIRST_WAIT, now)
        }
    }

    fn later(&self, now: Instant, text: UnshownText, share: StreamShare, run: EditHistory) -> NextRequest {
        let Some(least) = budget::pause(self.made, self.budget, self.pause) else {
            return NextRequest::Never;
        };
        if share.tokens < 1.0 && share.per_second * RAREST.as_secs_f64() < 1.0 {
            return NextRequest::Never;
        }
        let spread = run.interval(share);
        let earliest = run.latest + least;
        let halted = earliest.max(text.last + HALT);
        // After a halt the text starts again, and its first word alone is not worth an edit.
        let flowing = earliest.max(run.latest.max(text.since) + spread);
        NextRequest::at(flowing.min(halted), now)
    }
}

impl EditHistory {
    /// The interval that makes a share last for the expected rest of the message.
    ///
    /// Computed from the latest request, not from the present, so that the resulting time does not move away
    /// while it is waited for.
    fn interval(&self, share: StreamShare) -> Duration {
        let elapsed = self.latest.duration_since(self.first).as_secs_f64();
        let rest = elapsed.max(EXPECTED.as_secs_f64() - elapsed);
        // Tokens are refilled all the time, but only needed while text flows.
        let flowing = 1.0 - self.halted.as_secs_f64() / elapsed.max(1.0);
        Duration::from_secs_f64(flowing.max(0.0) * rest / (share.tokens + share.per_second * rest))
    }
}
