//! The relay to an agent server, through the real binary: the defects of the reference relay that we do not share,
//! and the rules for repeating a request.
//!
//! The comments number the defects of the reference: 1 answers are posted twice, 2 history is not forwarded and
//! `/retry` and `/undo` do nothing, 3 split UTF-8 is damaged, 4 odd SSE lines cut the answer, 5 it waits for the
//! socket to close after `[DONE]`, 6 errors and truncated streams pass for success, 7 reasoning is shown, 8 `/stop`
//! does not interrupt, 9 pictures are sent as local paths, 10 there are no approvals, 11 a restart loses messages, 12
//! there are no timeouts, no retries and no connection reuse, 13 edits come too often or never, 14 invitations bypass
//! the lists, 15 SIGTERM loses the answer.
//!
//! Tested elsewhere: 9 and 13 are scenes in rooms that can show them, 11 is in the kill tests, 14 belongs to the
//! adapters.

mod abilities;
#[cfg(feature = "testing")]
mod approvals;
mod ending;
#[cfg(feature = "testing")]
mod fallback;
#[cfg(feature = "testing")]
mod lost;
#[cfg(feature = "testing")]
mod ours;
mod repeating;
mod request;
#[cfg(feature = "testing")]
mod run_asks;
#[cfg(feature = "testing")]
mod run_breaks;
#[cfg(feature = "testing")]
mod runs;
#[cfg(feature = "testing")]
mod scripted_runs;
mod secrets;
mod stream;
