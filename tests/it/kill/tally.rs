//! Runs many trials and sums up what the checker found, in one line that can be quoted.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::time::Instant;

use tokio::task::JoinSet;

use super::checker::{self, Broken, check};
use super::trial::{Death, Trial};
use crate::support::agent_server::Kind;

/// The sum of some trials.
#[derive(Default)]
pub struct Tally {
    points: BTreeSet<&'static str>,
    trials: usize,
    kills: usize,
    prompts: usize,
    interrupted: usize,
    broken: Vec<Broken>,
    /// What a person needs to understand each failure.
    failures: Vec<String>,
}

impl Tally {
    /// Runs trials, some at a time, and says on standard output how they went.
    pub async fn of(what: &str, kind: Kind, trials: impl Iterator<Item = Trial>) -> Self {
        let began = Instant::now();
        let mut running = JoinSet::new();
        for trial in trials {
            running.spawn(async move { (trial.run().await, trial) });
        }
        let mut tally = Self::default();
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((history, trial)) => {
                    let broken = check(&history);
                    if !broken.is_empty() {
                        tally.failures.push(format!("{trial:?}: {broken:?}\n{history}"));
                    }
                    tally.broken.extend(broken);
                    tally.prompts += history.prompts.len();
                    tally.interrupted += checker::interrupted(&history);
                    tally.count(trial.deaths());
                }
                Err(panic) => tally.failures.push(panic.to_string()),
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        // Not by `println!`, which the test harness would keep to itself.
        writeln!(std::io::stdout(), "kills {what}, {kind:?} upstream: {tally}, {seconds:.0} s").ok();
        tally
    }

    /// Fails the test unless every promise was kept.
    pub fn is_clean(&self) {
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n\n"));
    }

    fn count(&mut self, deaths: &[Death]) {
        self.trials += 1;
        self.kills += deaths.len();
        self.points.extend(deaths.iter().filter_map(|death| match death {
            Death::At(point, _) => Some(*point),
            Death::After(_) => None,
        }));
    }

    fn found(&self, wanted: impl Fn(&Broken) -> bool) -> usize {
        self.broken.iter().filter(|broken| wanted(broken)).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.found(|broken| matches!(broken, Broken::Lost(_)));
        let doubled = self.found(|broken| matches!(broken, Broken::Doubled(_)));
        let again = self.found(|broken| matches!(broken, Broken::ExecutedAgain(..)));
        let other = self.broken.len() - lost - doubled - again;
        write!(f, "{} points, {} trials, {} kills, ", self.points.len(), self.trials, self.kills)?;
        write!(f, "{} prompts: {lost} lost, {doubled} doubled, {again} re-executed, ", self.prompts)?;
        write!(f, "{other} otherwise wrong; {} marked as interrupted", self.interrupted)
    }
}
