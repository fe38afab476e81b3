//! Ids for a room that has no server to make them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns text that no earlier call has returned, in this process or in one before it: the store remembers events
/// over restarts, so a counter alone would make a new prompt look like an old one.
pub fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A clock before 1970 does no harm: process id and counter still tell calls apart.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{time:x}-{:x}-{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
