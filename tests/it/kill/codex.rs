//! The gateway, its codex and the shim between them are killed at random points of a turn with commands and asks.
//!
//! A [`trial`] runs the lives of the real binary between a chat network, where a person answers asks, and a scripted
//! codex; the [`checker`] reads what they saw. Twenty trials; two hundred with `TALARIA_TESTS=full`.

mod checker;
mod trial;

use std::io::Write as _;
use std::time::{Duration, Instant};

use checker::{BrokenPromise, check, is_cut_short};
use tokio::task::JoinSet;
use trial::{CodexDeath, CodexTrial, CodexVictim, DeathMoment};

use super::full;

/// Log entries of the scripted codex in a turn that nobody disturbs, about: deaths are spread over them.
const ENTRIES: u64 = 48;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_codex_or_of_us_at_random_points_leave_no_process_no_stuck_turn_and_no_second_run() {
    let trials = (0..if full() { 200 } else { 20 }).map(random_trial);
    run_all("of codex or of us", trials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_comes_after_a_kill_grants_nothing() {
    let victims = [CodexVictim::Codex, CodexVictim::Gateway, CodexVictim::Shim];
    run_all("before a late approval", victims.into_iter().map(CodexTrial::approved_late)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_a_restart_runs_turns_again_the_checker_sees_it_on_codex_too() {
    let death = CodexDeath { victim: CodexVictim::Gateway, moment: DeathMoment::Command };
    let history = CodexTrial::new(vec![death]).without("interruption").run().await;
    let broken = check(&history);
    assert!(
        broken.iter().any(|broken| matches!(broken, BrokenPromise::RanAgain(..))),
        "{broken:?}\n{history}"
    );
}

/// One or two deaths at points that follow from the seed alone. A third of the people refuse everything.
fn random_trial(seed: u64) -> CodexTrial {
    let mut number = seed.wrapping_add(7_000);
    let mut next = |bound: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % bound
    };
    let victim = |at: u64| match at {
        0 | 1 => CodexVictim::Codex,
        2 | 3 => CodexVictim::Gateway,
        4 => CodexVictim::Both,
        _ => CodexVictim::Shim,
    };
    let first =
        CodexDeath { victim: victim(next(6)), moment: DeathMoment::Entries(1 + next(ENTRIES) as usize) };
    let mut deaths = vec![first];
    if next(2) == 0 {
        let moment = DeathMoment::After(Duration::from_millis(10 + next(400)));
        deaths.push(CodexDeath { victim: victim(next(4)), moment });
    }
    let trial = CodexTrial::new(deaths);
    if next(3) == 0 { trial.refused() } else { trial }
}

/// Runs trials, some at a time, prints their sum to standard output, and fails unless every promise was kept.
async fn run_all(what: &str, trials: impl Iterator<Item = CodexTrial>) {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for trial in trials {
        running.spawn(async move { (trial.run().await, trial) });
    }
    let (mut count, mut kills, mut cut, mut failures) = (0, 0, 0, Vec::new());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((history, trial)) => {
                let broken = check(&history);
                if !broken.is_empty() {
                    failures.push(format!("{trial:?}: {broken:?}\n{history}"));
                }
                count += 1;
                kills += trial.deaths();
                cut += usize::from(is_cut_short(&history));
            }
            Err(panic) => failures.push(panic.to_string()),
        }
    }
    let (failed, seconds) = (failures.len(), began.elapsed().as_secs_f64());
    // Not with `println!`, whose output the test harness would capture.
    writeln!(
        std::io::stdout(),
        "kills {what}: {count} trials, {kills} kills: {failed} failed; {cut} answers cut short, {seconds:.0} s"
    )
    .ok();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
