//! Runs many trials and sums up the checker's findings, in one line that can be quoted.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::time::Instant;

use tokio::task::JoinSet;

use super::chain::Chain;
use super::checker::{self, Broken, check};
use super::trial::{Death, History, Trial};
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
    /// Each failure with everything that a person needs to understand it.
    failures: Vec<String>,
}

impl Tally {
    /// Runs trials, some at a time, and prints the sum to standard output.
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
                    tally.judge(&trial, &history);
                    tally.count(trial.deaths());
                }
                Err(panic) => tally.failures.push(panic.to_string()),
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        // Not with `println!`, whose output the test harness would capture.
        writeln!(std::io::stdout(), "kills {what}, {kind:?} upstream: {tally}, {seconds:.0} s").ok();
        tally
    }

    /// Runs chains, some at a time, and prints the sum to standard output.
    pub async fn of_chains(what: &str, chains: impl Iterator<Item = Chain>) -> Self {
        let began = Instant::now();
        let mut running = JoinSet::new();
        for chain in chains {
            running.spawn(async move { (chain.run().await, chain) });
        }
        let mut tally = Self::default();
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((history, chain)) => {
                    tally.judge(&chain, &history);
                    tally.trials += 1;
                    tally.kills += chain.deaths();
                }
                Err(panic) => tally.failures.push(panic.to_string()),
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "kills {what}: {tally}, {seconds:.0} s").ok();
        tally
    }

    fn judge(&mut self, trial: &impl fmt::Debug, history: &History) {
        let broken = check(history);
        if !broken.is_empty() {
            self.failures.push(format!("{trial:?}: {broken:?}\n{history}"));
        }
        self.broken.extend(broken);
        self.prompts += history.prompts.len();
        self.interrupted += checker::interrupted(history);
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
