//! A codex that misbehaves: noise, long and endless lines, bad UTF-8, floods, silence, an early end. Nothing of it hangs us,
//! fills our memory or is lost without a word.

mod client;
#[cfg(feature = "testing")]
mod room;

/// Most memory that a bad peer may cost, in bytes: the limits of a connection and room for the rest of the test.
const MEMORY: usize = 64 * 1024 * 1024;

/// The most memory that this process has had, in bytes; zero where the system does not tell.
pub fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes =
        |line: &str| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok();
    status.lines().find_map(kilobytes).unwrap_or_default() * 1024
}

/// The peak has not grown by more than a bad peer may cost.
pub fn is_frugal(before: usize) {
    let grown = peak_memory().saturating_sub(before);
    // nextest gives each test a process of its own; plain cargo does not, and counts all tests.
    if std::env::var_os("NEXTEST").is_some() {
        assert!(grown < MEMORY, "{grown} bytes");
    }
}
