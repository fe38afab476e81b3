//! Asks, answers, time, stops and ends of the process in any order: nothing runs without a valid approval.
//!
//! A [`trial`] is derived from a seed: people who may and people who may not answer, in the right and in the wrong
//! place, with right, old and invented codes, with reactions, one by one and several at once, while asks come and
//! time out, turns are stopped, and the gateway is restarted or killed. The [`checker`] knows the people's actions
//! and the answers that the agent got, and names every broken promise. Below, the checker itself is tested: with a
//! safety mechanism switched off it must complain.
//!
//! 200 trials; 1,000 with `TALARIA_TESTS=full`.

mod checker;
mod trial;

use std::process::Command;

use trial::Trial;

/// Number of tests that share the trials, so that they run on all cores.
const PARTS: u64 = 4;

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_valid_approval_1() {
    trials(0).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_valid_approval_2() {
    trials(1).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_valid_approval_3() {
    trials(2).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_valid_approval_4() {
    trials(3).await;
}

/// Runs every fourth seed, from this one on.
async fn trials(part: u64) {
    let full = std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full");
    let count = if full { 1000 } else { 200 };
    let (mut allowed, mut asked) = (0, 0);
    for seed in (part..count).step_by(PARTS as usize) {
        let history = Trial::run(seed).await;
        let broken = checker::check(&history);
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}\n{history}");
        asked += history.asked.len();
        allowed += history.allowed().count();
    }
    // Trials that allow nothing, or everything, would prove nothing.
    assert!(allowed * 20 > asked && allowed * 2 < asked, "{allowed} of {asked} were allowed");
}

#[test]
fn without_the_expiry_the_checker_sees_an_approval_that_came_too_late() {
    complains("ask-expiry", "TooLate");
}

#[test]
fn without_the_stop_the_checker_sees_an_action_that_was_stopped() {
    complains("ask-stop", "Stopped");
}

#[test]
fn without_the_place_the_checker_sees_an_approval_from_elsewhere() {
    complains("ask-place", "Elsewhere");
}

#[test]
fn without_the_denial_at_the_start_the_checker_sees_what_was_never_decided() {
    complains("ask-restart", "Undecided");
}

/// Runs the trials in a process of their own with a safety mechanism switched off.
fn complains(without: &str, about: &str) {
    let name = module_path!().split_once("::").map(|(_, path)| path).unwrap();
    let trials = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{name}::nothing_runs_without_a_valid_approval_1")])
        .env("TALARIA_BROKEN", without)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&trials.stdout).into_owned() + &*String::from_utf8_lossy(&trials.stderr);
    assert!(said.contains("running 1 test"), "{said}");
    assert!(!trials.status.success() && said.contains(about), "{said}");
}
