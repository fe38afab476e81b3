//! Asks, answers, time, stops and ends of the process in any order: nothing runs without a valid approval.
//!
//! A [`trial`] is derived from a seed: people who may and people who may not answer, in the right and in the wrong
//! place, with right, old and invented codes, with reactions, one by one and several at once, while asks come and
//! time out, turns are stopped, and the gateway is restarted or killed. The [`checker`] knows the people's actions
//! and the answers that the agent got, and names every broken promise. Its own tests show that it notices each of them.
//!
//! 200 trials; 1,000 with `TALARIA_TESTS=full`.

mod checker;
mod trial;

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
