//! Decides when a request to a chat network may be made.
//!
//! Pure: nothing here waits, sends or reads a clock; the caller passes the time in. Two questions,
//! two types:
//!
//! - [`RateLimiter`], one per account: may the account make another request? It believes in a token
//!   bucket, obeys what the network says, learns from it, and keeps tokens back for finished answers.
//! - [`EditPace`], one per growing message: is this a good moment for the next edit? It spreads the tokens that
//!   the rate limiter can spare over the expected rest of the message, and a bounded number of edits over
//!   hours.
//!
//! The other end is delivery. For a growing message it asks [`EditPace::next`], which asks the
//! rate limiter too; for everything else [`RateLimiter::next`]. Each request is announced with `started`
//! *before* it is awaited, so that two streams never spend the same token, and its outcome is told
//! with [`RateLimiter::succeeded`] or [`RateLimiter::limited`].

mod budget;
mod edits;
mod rate_limiter;
#[cfg(test)]
mod tests;

use std::time::Instant;

pub use budget::EDITS;
pub use edits::{EditPace, UnshownText};
pub use rate_limiter::{RateLimiter, RequestTicket, StreamShare};

/// Purpose of a request; decides how many tokens it must leave in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// A finished answer. May take the last token.
    Final,
    /// Something a person must read: an ask, an error, the answer to a command.
    Notice,
    /// The first message of a growing answer.
    Anchor,
    /// An edit of a growing answer. The next one makes it superfluous, so it is the first to wait.
    Partial,
    /// A deletion that people do not see. Only takes the token that a full bucket would lose.
    Cleanup,
}

/// When to make a request. An answer holds for the state it was asked in: ask again when text has
/// come, when a request has ended, and at the time that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// At once.
    Now,
    /// Not before this time.
    At(Instant),
    /// Not in the current state. Only for partial edits; a final always gets a time.
    Never,
}

impl NextRequest {
    fn at(due: Instant, now: Instant) -> Self {
        if due <= now { Self::Now } else { Self::At(due) }
    }

    /// The later of two answers.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Now, next) | (next, Self::Now) => next,
            (Self::At(one), Self::At(another)) => Self::At(one.max(another)),
        }
    }
}
