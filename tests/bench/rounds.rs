//! Ratios on a shared machine: measures A, B, A, B, and takes the median of the quiet rounds.

use rustix::time::{ClockId, clock_gettime};

/// Rounds of which a ratio is the median.
pub const ROUNDS: usize = 5;

/// A round counts only if the floors before and after it differ by less than this part.
const MOVED: f64 = 0.2;

/// A ratio, and how quiet the machine was.
pub struct Ratio {
    /// NaN, which meets no limit, if the machine never was quiet enough.
    pub median: f64,
    /// Text for the row: the floor, and the number of discarded rounds.
    pub noise: String,
}

/// Measures `floor`, `ours`, `floor`, … and divides ours by the floors around it. `unit` is the floor's.
pub fn ratio(
    unit: &str,
    mut floor: impl FnMut() -> anyhow::Result<f64>,
    mut ours: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Ratio> {
    let (mut ratios, mut floors, mut discarded) = (Vec::new(), Vec::new(), 0);
    let mut before = floor()?;
    while ratios.len() < ROUNDS && discarded < 2 * ROUNDS {
        let value = ours()?;
        let after = floor()?;
        if (after / before - 1.0).abs() <= MOVED {
            ratios.push(value / before.midpoint(after));
            floors.push(before.midpoint(after));
        } else {
            discarded += 1;
        }
        before = after;
    }
    let quiet = ratios.len() == ROUNDS;
    if !quiet {
        let noise = format!("too noisy: {discarded} rounds discarded");
        return Ok(Ratio { median: f64::NAN, noise });
    }
    let floor = median(floors);
    let noise = format!("floor {floor:.1} {unit}, {discarded} rounds discarded");
    Ok(Ratio { median: median(ratios), noise })
}

/// The median; NaN if there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A time that all processes of this machine share, in microseconds.
pub fn monotonic_micros() -> u64 {
    (seconds(ClockId::Monotonic) * 1e6) as u64
}

/// CPU time of this process so far, in seconds: all its threads, and the kernel's work for them.
pub fn process_cpu() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// CPU time of this thread so far, in seconds.
pub fn thread_cpu() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
