//! Helpers of the live tests: homeserver, people, gateways and scenes.
#![allow(dead_code, reason = "each helper is used by some of the test files")]

pub mod asking;
pub mod comparing;
pub mod front;
pub mod gateway;
pub mod homeserver;
pub mod lines;
pub mod person;
pub mod scene;
pub mod shown;

use std::time::Duration;

/// Longest wait, even on a busy machine. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Whether the large counts are wanted.
pub fn full() -> bool {
    std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full")
}

/// A name that no earlier run has used on any homeserver.
pub fn fresh(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{now:x}-{:x}-{number}", std::process::id())
}
