//! Hooks for tests of the real binary. Without the feature `testing` every function here is empty.
//!
//! * `failpoint("name")`: with `TALARIA_FAILPOINT=name` (or `name:3` for the third time) the process
//!   kills itself there with SIGKILL, as a power cut would.
//! * `broken("dedupe")`: with `TALARIA_BROKEN=dedupe,…` a safety mechanism is switched off, to show that the
//!   checker of the kill tests notices it.
//! * `keepalive_interval(default)`: with `TALARIA_KEEPALIVE_MS=200` silent streams of the server send a keepalive
//!   comment that often, so that tests of foreign clients need not wait 15 s.
//! * `answer_time(default)`: with `TALARIA_ANSWER_MS=200` people have only so long to answer an ask.
//! * `hold_clock()`: while a test's paused clock waits for a real thread, time must not run ahead.

#[cfg(feature = "testing")]
pub mod network;

/// Kills the process here if `TALARIA_FAILPOINT` names this point.
#[cfg(feature = "testing")]
pub fn failpoint(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let wanted = std::env::var("TALARIA_FAILPOINT").ok()?;
        let (name, count) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), count.parse().unwrap_or(1)))
    });
    static REACHED: AtomicU32 = AtomicU32::new(0);

    if let Some((wanted, count)) = &*WANTED
        && wanted == name
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Does nothing without the feature `testing`.
#[cfg(not(feature = "testing"))]
pub fn failpoint(_name: &str) {}

/// Whether a test switched this safety mechanism off.
#[cfg(feature = "testing")]
pub fn broken(mechanism: &str) -> bool {
    use std::sync::LazyLock;
    static BROKEN: LazyLock<String> = LazyLock::new(|| std::env::var("TALARIA_BROKEN").unwrap_or_default());
    BROKEN.split(',').any(|name| name == mechanism)
}

/// Always false without the feature `testing`.
#[cfg(not(feature = "testing"))]
pub fn broken(_mechanism: &str) -> bool {
    false
}

/// Interval of keepalive comments on silent streams: the default, unless the environment shortens it.
#[cfg(feature = "testing")]
pub fn keepalive_interval(default: std::time::Duration) -> std::time::Duration {
    shortened("TALARIA_KEEPALIVE_MS", default)
}

/// Interval of keepalive comments on silent streams: the default. Only the feature `testing` can shorten it.
#[cfg(not(feature = "testing"))]
pub fn keepalive_interval(default: std::time::Duration) -> std::time::Duration {
    default
}

/// Time that people have to answer an ask: the default, unless the environment shortens it.
#[cfg(feature = "testing")]
pub fn answer_time(default: std::time::Duration) -> std::time::Duration {
    shortened("TALARIA_ANSWER_MS", default)
}

/// Time that people have to answer an ask: the default. Only the feature `testing` can shorten it.
#[cfg(not(feature = "testing"))]
pub fn answer_time(default: std::time::Duration) -> std::time::Duration {
    default
}

/// The milliseconds in a variable, if they are less than the default.
#[cfg(feature = "testing")]
fn shortened(variable: &str, default: std::time::Duration) -> std::time::Duration {
    let millis = std::env::var(variable).ok().and_then(|millis| millis.parse().ok());
    millis.map_or(default, |millis| std::time::Duration::from_millis(millis).min(default))
}

/// Holds a paused test clock while it exists; see [`hold_clock`].
#[derive(Default)]
pub struct HeldClock {
    /// Dropped with the guard, which ends the blocking task at the other end.
    #[cfg(feature = "testing")]
    _held: Option<std::sync::mpsc::Sender<()>>,
}

/// Keeps a paused test clock from advancing while the guard exists: tokio advances it only when nothing runs,
/// and counts its own blocking tasks but no other threads.
#[cfg(feature = "testing")]
pub fn hold_clock() -> HeldClock {
    let (held, released) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || released.recv());
    HeldClock { _held: Some(held) }
}

/// How far a paused test clock is ahead of the real one. The wall clock is shifted by it, so that times stored
/// in the database come due in such tests too.
#[cfg(feature = "testing")]
pub fn clock_lead() -> std::time::Duration {
    LEAD.get().unwrap_or_else(|| {
        tokio::time::Instant::now().into_std().saturating_duration_since(std::time::Instant::now())
    })
}

#[cfg(feature = "testing")]
thread_local! {
    /// Set on a thread without a test clock while it works for a thread that has one.
    static LEAD: std::cell::Cell<Option<std::time::Duration>> = const { std::cell::Cell::new(None) };
}

/// Runs `work` with the clock lead of the thread that requested it.
#[cfg(feature = "testing")]
pub fn with_lead<T>(lead: std::time::Duration, work: impl FnOnce() -> T) -> T {
    LEAD.set(Some(lead));
    let done = work();
    LEAD.set(None);
    done
}

/// Runs `work`; without the feature `testing` the lead is ignored.
#[cfg(not(feature = "testing"))]
pub fn with_lead<T>(_lead: std::time::Duration, work: impl FnOnce() -> T) -> T {
    work()
}

/// Always zero without the feature `testing`.
#[cfg(not(feature = "testing"))]
pub fn clock_lead() -> std::time::Duration {
    std::time::Duration::ZERO
}

/// Does nothing without the feature `testing`.
#[cfg(not(feature = "testing"))]
pub fn hold_clock() -> HeldClock {
    HeldClock::default()
}
