//! The real binary is killed at every step of a turn with three tool calls, and the person then sends one more message.
//!
//! A [`trial`] runs the gateway between a chat network, a model server and a server that counts calls, all of which
//! outlive it; the [`checker`] reads what they saw. Every kill of the table once; with `TALARIA_TESTS=full` each under
//! four kinds of circumstances.

mod checker;
mod counting_server;
mod terminal;
mod trial;

use std::io::Write as _;
use std::time::Instant;

use checker::{BrokenTurn, check, is_interrupted};
use tokio::task::JoinSet;
use trial::{CALLS, HALF, PROMPTS, ToolTrial};

use super::points::TOOL_POINTS;
use super::trial::Death;
use super::{full, random_deaths};

/// The kills: each point, and which time it is reached. The points of a turn with tools are there as often as three
/// calls in two messages reach them.
const KILLS: &[(&str, u32)] = &[
    ("accept.received", 1),
    ("accept.committed", 1),
    ("turn.prepared", 1),
    ("turn.dispatched", 1),
    ("stream.text", 1),
    ("stream.text", 3),
    ("stream.text", 7),
    ("model.answered", 1),
    ("model.answered", 2),
    ("model.answered", 3),
    ("turn.recorded", 1),
    ("turn.recorded", 2),
    ("turn.recorded", 3),
    ("turn.recorded", 4),
    ("turn.recorded", 5),
    ("turn.recorded", 6),
    ("tools.called", 1),
    ("tools.called", 2),
    ("tool.ended", 1),
    ("tool.ended", 2),
    ("tool.ended", 3),
    ("checkpoint.committed", 1),
    ("checkpoint.committed", 2),
    ("anchor.sent", 1),
    ("anchor.committed", 1),
    ("edit.sent", 1),
    ("turn.ended", 1),
    ("turn.finished", 1),
    ("outbox.taken", 1),
    ("outbox.sent", 1),
    ("outbox.committed", 1),
];

/// Circumstances of a trial; see [`ToolTrial::varied`].
const VARIANTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_of_a_turn_with_tools_repeats_no_call_and_leaves_a_legal_transcript() {
    let trials = KILLS.iter().enumerate().flat_map(|(number, (point, time))| {
        let variants = if full() { 0..VARIANTS } else { number % VARIANTS..number % VARIANTS + 1 };
        variants.map(move |variant| ToolTrial::new(vec![Death::At(point, *time)]).varied(variant))
    });
    run_all("at every point of a turn with tools", trials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_kill_during_the_recovery_repeats_no_call_either() {
    let trials = TOOL_POINTS.iter().enumerate().map(|(number, point)| {
        let deaths = vec![Death::At(point, 2), Death::At("gateway.recovered", 1)];
        ToolTrial::new(deaths).varied(number)
    });
    let ended = (0..VARIANTS).map(|variant| {
        let deaths =
            vec![Death::At("tool.ended", 2), Death::At("turn.ended", 1), Death::At("turn.finished", 1)];
        ToolTrial::new(deaths).varied(variant)
    });
    run_all("during the recovery of a turn with tools", trials.chain(ended)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_a_turn_with_tools_at_random_moments_repeat_no_call() {
    let seeds = 0..if full() { 60 } else { 8 };
    let trials = seeds.map(|seed| ToolTrial::new(random_deaths(seed + 500)).varied(seed as usize));
    run_all("at random moments of a turn with tools", trials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_half_of_an_answer_that_people_read_before_a_kill_is_in_the_transcript() {
    let trials = [ToolTrial::new(Vec::new()), ToolTrial::new(vec![Death::At("turn.ended", 1)])];
    for trial in trials.map(ToolTrial::half_answered) {
        let history = trial.run().await;
        assert_eq!(check(&history), [], "{trial:?}\n{history}");
        assert!(is_interrupted(&history), "{trial:?}\n{history}");
        let next = history.requests.last().unwrap();
        assert_eq!(next[next.len() - 2]["content"], HALF, "{trial:?}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_on_record_as_it_completes() {
    for count in 1..=6 {
        let history = ToolTrial::new(vec![Death::At("turn.recorded", count)]).run().await;
        assert_eq!(check(&history), [], "{count}\n{history}");
        assert!(is_interrupted(&history), "{count}\n{history}");
        assert_eq!(history.recorded.len(), count as usize, "{count}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_interrupted_only_if_its_request_may_have_been_sent() {
    let points = [
        ("turn.prepared", 1, false),
        ("turn.dispatched", 1, true),
        ("model.answered", 1, true),
        ("tool.ended", 3, true),
        ("turn.ended", 1, true),
        ("turn.finished", 1, false),
    ];
    for (point, time, expected) in points {
        let history = ToolTrial::new(vec![Death::At(point, time)]).run().await;
        assert_eq!(check(&history), [], "{point}\n{history}");
        assert_eq!(is_interrupted(&history), expected, "{point}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_a_restart_runs_turns_again_the_checker_sees_it() {
    let trial = ToolTrial::new(vec![Death::At("turn.recorded", 3)]).without("interruption");
    let history = trial.run().await;
    let broken = check(&history);
    for call in [CALLS[0], CALLS[1]] {
        assert!(broken.contains(&BrokenTurn::RanAgain(call.to_owned(), 2)), "{broken:?}\n{history}");
    }
    assert!(broken.contains(&BrokenTurn::AskedAgain(1)), "{broken:?}\n{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_transcript_the_checker_sees_that_calls_are_forgotten() {
    let history = ToolTrial::new(vec![Death::At("tool.ended", 3)]).without("transcript").run().await;
    let broken = check(&history);
    for call in CALLS {
        assert!(broken.contains(&BrokenTurn::Forgotten(format!("call {call}"))), "{broken:?}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_dedupe_the_checker_sees_that_the_calls_run_twice() {
    let history = ToolTrial::new(vec![Death::At("accept.committed", 1)]).without("dedupe").run().await;
    let broken = check(&history);
    assert!(broken.contains(&BrokenTurn::Doubled(PROMPTS[0].to_owned())), "{broken:?}\n{history}");
    for call in CALLS {
        assert!(broken.contains(&BrokenTurn::RanAgain(call.to_owned(), 2)), "{broken:?}\n{history}");
    }
}

#[test]
fn the_kills_have_every_point_of_a_turn_with_tools() {
    for point in TOOL_POINTS {
        assert!(KILLS.iter().any(|(name, _)| *name == point), "{point}");
    }
}

/// Runs trials, some at a time, prints their sum to standard output, and fails unless every promise was kept.
async fn run_all(what: &str, trials: impl Iterator<Item = ToolTrial>) {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for trial in trials {
        running.spawn(async move { (trial.run().await, trial) });
    }
    let (mut count, mut kills, mut interrupted, mut failures) = (0, 0, 0, Vec::new());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((history, trial)) => {
                let broken = check(&history);
                if !broken.is_empty() {
                    failures.push(format!("{trial:?}: {broken:?}\n{history}"));
                }
                count += 1;
                kills += trial.deaths();
                interrupted += usize::from(is_interrupted(&history));
            }
            Err(panic) => failures.push(panic.to_string()),
        }
    }
    let (failed, seconds) = (failures.len(), began.elapsed().as_secs_f64());
    // Not with `println!`, whose output the test harness would capture.
    writeln!(
        std::io::stdout(),
        "kills {what}: {count} trials, {kills} kills: {failed} failed; {interrupted} marked as interrupted, {seconds:.0} s"
    )
    .ok();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
