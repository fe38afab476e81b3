//! Limits the edits of one message, and spreads them over time.
//!
//! Every edit stays in a room's history forever, so a stream of any length makes a bounded number of them. The
//! first part of the budget is spent without slowing down: most answers end inside it. After that each pause is
//! longer than the last by the same factor, up to [`SLOWEST`], so that the rest lasts for hours instead of
//! running out while people still watch.

use std::time::Duration;

/// Edits of one growing message, the final not counted. With a pause of one second an answer is
/// followed closely for two minutes, and then, more and more loosely, for about five hours.
pub const EDITS: u32 = 200;

/// The part of the budget that is spent without slowing down.
const FREE: f64 = 0.6;

/// The pause before the last edit of the budget.
const SLOWEST: Duration = Duration::from_secs(30 * 60);

/// Shortest pause between the start of edit number `made` and the next; `None` when the budget is used up.
pub(super) fn pause(made: u32, budget: u32, shortest: Duration) -> Option<Duration> {
    if made >= budget {
        return None;
    }
    let free = FREE * f64::from(budget);
    let stretch = (f64::from(made) - free) / (f64::from(budget) - free);
    if stretch <= 0.0 || shortest >= SLOWEST {
        return Some(shortest);
    }
    // A platform without a pause of its own still needs a start value: zero cannot grow.
    let first = shortest.as_secs_f64().max(0.1);
    let grown = first * (SLOWEST.as_secs_f64() / first).powf(stretch);
    Some(shortest.max(Duration::from_secs_f64(grown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasts(budget: u32, shortest: Duration) -> Duration {
        (0..).map_while(|made| pause(made, budget, shortest)).sum()
    }

    #[test]
    fn the_budget_lasts_for_hours_and_then_ends() {
        let hour = Duration::from_secs(3600);
        for shortest in [0, 100, 250, 1000, 3000].map(Duration::from_millis) {
            assert!(lasts(EDITS, shortest) > 3 * hour, "{shortest:?}: {:?}", lasts(EDITS, shortest));
            assert_eq!(pause(EDITS, EDITS, shortest), None);
        }
        assert!(lasts(100, Duration::from_secs(1)) > 2 * hour);
    }

    #[test]
    fn pauses_never_shrink_and_start_at_the_platforms_own() {
        let shortest = Duration::from_secs(1);
        let pauses: Vec<_> = (0..EDITS).filter_map(|made| pause(made, EDITS, shortest)).collect();
        assert!(pauses.is_sorted());
        assert!(pauses[..120].iter().all(|&pause| pause == shortest));
        assert!(pauses.last() <= Some(&SLOWEST));
    }

    #[test]
    fn odd_budgets_are_harmless() {
        assert_eq!(pause(0, 0, Duration::ZERO), None);
        assert_eq!(pause(0, 1, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(pause(5, 6, 2 * SLOWEST), Some(2 * SLOWEST));
    }
}
