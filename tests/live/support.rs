//! What live tests are written in.
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

/// Nothing here takes this long unless something is wrong, not even on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The large counts are wanted.
pub fn full() -> bool {
    std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full")
}

/// A name that nobody had before on any homeserver of any run.
pub fn fresh(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{now:x}-{:x}-{number}", std::process::id())
}
