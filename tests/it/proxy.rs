//! The relay to an agent server, through the real binary: what the reference gets wrong, and the rules for
//! repeating a request. The numbers are those of `spec/proxy-mode.md`.
//!
//! Elsewhere: 9 (pictures) and 13 (edits) are scenes in rooms that can show them, 11 is
//! in the kill tests, 14 belongs to the adapters.

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
mod secrets;
mod stream;
