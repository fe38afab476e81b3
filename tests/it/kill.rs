//! The real binary is killed at every step of a turn, started again, and judged by what the rooms show.
//!
//! A [`trial`] runs one gateway's lives between a chat network and an agent server that outlive it; the [`checker`]
//! reads what those two saw and names every broken promise. Below, the checker itself is tested: with a safety
//! mechanism switched off it must complain.
//!
//! Three kills per point and upstream; twenty with `TALARIA_TESTS=full`.

mod chain;
mod checker;
mod codex;
mod commands;
mod life;
mod points;
mod tally;
mod tools;
mod trial;

use std::time::Duration;

use chain::{Chain, Victim};
use checker::{Broken, check};
use points::{POINTS, RUN_POINTS};
use tally::Tally;
use trial::{Death, Trial};

use crate::support::agent_server::Kind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_loses_and_doubles_nothing_on_an_idempotent_upstream() {
    kill_everywhere(Kind::Idempotent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_loses_and_doubles_nothing_on_a_plain_upstream() {
    kill_everywhere(Kind::Plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_loses_and_doubles_nothing_on_an_upstream_with_runs() {
    let kills = if full() { 20 } else { 3 };
    let points = POINTS.iter().filter(|point| point.name != "proxy.answered").chain(RUN_POINTS);
    let trials = points
        .flat_map(|point| (0..kills).map(move |kill| Trial::new(Kind::Runs, point.deaths(kill, kills))));
    Tally::of("at every point", Kind::Runs, trials).await.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_in_the_background_is_answered_in_full_after_the_restart() {
    for point in ["run.begun", "run.events", "stream.text", "anchor.sent", "edit.sent", "turn.ended"] {
        let history = Trial::new(Kind::Runs, vec![Death::At(point, 1)]).with_one_prompt().run().await;
        assert_eq!(check(&history), [], "{point}\n{history}");
        assert_eq!(checker::interrupted(&history), 0, "{point}\n{history}");
        assert_eq!(history.executions(&history.prompts[0]), 1, "{point}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_loses_and_doubles_nothing_while_another_agent_stands_in() {
    let kills = if full() { 20 } else { 1 };
    let trials = POINTS.iter().filter(|point| point.name != "proxy.answered").flat_map(|point| {
        (0..kills).map(move |kill| Trial::new(Kind::Plain, point.deaths(kill, kills)).with_a_stand_in())
    });
    Tally::of("while another agent stands in", Kind::Plain, trials).await.is_clean();
}

async fn kill_everywhere(kind: Kind) {
    let kills = if full() { 20 } else { 3 };
    let trials = POINTS
        .iter()
        .flat_map(|point| (0..kills).map(move |kill| Trial::new(kind, point.deaths(kill, kills))));
    Tally::of("at every point", kind, trials).await.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_moments_lose_and_double_nothing() {
    for kind in [Kind::Idempotent, Kind::Plain, Kind::Runs] {
        let trials = (0..if full() { 100 } else { 12 }).map(|seed| Trial::new(kind, random_deaths(seed)));
        Tally::of("at random moments", kind, trials).await.is_clean();
    }
}

/// Three lives of up to half a second. Nothing is awaited before a death, because its moment should be random.
fn random_deaths(seed: u64) -> Vec<Death> {
    let mut number = seed;
    let mut moment = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Death::After(Duration::from_millis(30 + (number >> 33) % 470))
    };
    vec![moment(), moment(), moment()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_between_a_room_and_a_model_nothing_is_lost_doubled_or_run_twice() {
    let chains = (0..if full() { 100 } else { 10 }).map(|seed| match gateway_alone(seed) {
        true => Chain::new(random_victims(seed)).at_work(),
        false => Chain::new(random_victims(seed)),
    });
    Tally::of_chains("between a room and a model", chains).await.is_clean();
}

/// Whether only the gateway dies, while the model works, as in a third of the chains: then nothing may be missing.
fn gateway_alone(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// Two deaths in each chain, within the half second that its answers take; over ten chains every process dies.
fn random_victims(seed: u64) -> Vec<chain::Death> {
    let victims = [Victim::Gateway, Victim::Server, Victim::Both, Victim::Model];
    let victim = |number: u64| victims[(number % 4) as usize];
    let moments = random_deaths(seed + 1000).into_iter().filter_map(|death| match death {
        Death::After(moment) => Some(moment),
        Death::At(..) => None,
    });
    let who = match gateway_alone(seed) {
        true => [Victim::Gateway, Victim::Gateway],
        false => [victim(seed), victim(seed / 4 + 1)],
    };
    moments.zip(who).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_key_the_checker_sees_that_the_model_is_asked_again() {
    let dies = vec![(Duration::ZERO, Victim::Gateway)];
    let history = Chain::new(dies).at_work().without("key").run().await;
    let again = check(&history).iter().any(|broken| matches!(broken, Broken::ExecutedAgain(..)));
    assert!(again, "without its key a prompt must run twice\n{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_dies_while_it_first_starts_starts_the_next_time() {
    let moments = (0..if full() { 120 } else { 24 }).map(|step| Duration::from_millis(4 + step * 2 % 60));
    let trials =
        moments.map(|moment| Trial::new(Kind::Idempotent, vec![Death::After(moment)]).with_one_prompt());
    Tally::of("during the first start", Kind::Idempotent, trials).await.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_sent_is_answered_in_full_after_the_restart_whatever_the_upstream() {
    for kind in [Kind::Idempotent, Kind::Plain, Kind::Runs] {
        for point in ["accept.received", "accept.committed", "turn.taken", "turn.prepared"] {
            let history = Trial::new(kind, vec![Death::At(point, 1)]).with_one_prompt().run().await;
            assert_eq!(check(&history), [], "{point}, {kind:?}\n{history}");
            assert_eq!(checker::interrupted(&history), 0, "{point}, {kind:?}\n{history}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_sent_is_not_run_again_on_a_plain_upstream_and_the_room_is_told() {
    for (point, ran) in [("turn.dispatched", 0), ("proxy.answered", 1), ("stream.text", 1)] {
        let history = Trial::new(Kind::Plain, vec![Death::At(point, 1)]).with_one_prompt().run().await;
        assert_eq!(check(&history), [], "{point}\n{history}");
        assert_eq!(checker::interrupted(&history), 1, "{point}\n{history}");
        assert_eq!(history.executions(&history.prompts[0]), ran, "{point}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_reads_in_order_even_if_an_answer_has_to_be_sent_twice() {
    // The first prompt ends with a notice of its own, which takes long; the second is answered.
    let trial = Trial::new(Kind::Plain, vec![Death::At("turn.dispatched", 1)]).on_a_busy_network();
    let history = trial.run().await;
    assert_eq!(check(&history), [], "{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_dedupe_the_checker_sees_a_second_answer_and_a_second_execution() {
    for kind in [Kind::Idempotent, Kind::Plain] {
        let history = Trial::new(kind, vec![Death::At("accept.committed", 1)]).without("dedupe").run().await;
        let broken = check(&history);
        let first = history.prompts[0].text.clone();
        assert!(broken.contains(&Broken::Doubled(first.clone())), "{broken:?}\n{history}");
        assert!(broken.contains(&Broken::ExecutedAgain(first, 2)), "{broken:?}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_outbox_the_checker_sees_every_answer_lost() {
    let history =
        Trial::new(Kind::Idempotent, vec![Death::At("turn.finished", 1)]).without("outbox").run().await;
    let broken = check(&history);
    for prompt in &history.prompts {
        assert!(broken.contains(&Broken::Lost(prompt.text.clone())), "{broken:?}\n{history}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_key_the_checker_sees_a_second_execution() {
    for point in ["proxy.answered", "stream.text", "anchor.sent", "turn.ended"] {
        let history = Trial::new(Kind::Idempotent, vec![Death::At(point, 1)])
            .with_one_prompt()
            .without("key")
            .run()
            .await;
        let broken = check(&history);
        let again = Broken::ExecutedAgain(history.prompts[0].text.clone(), 2);
        assert!(broken.contains(&again), "{point}: {broken:?}\n{history}");
    }
}

fn full() -> bool {
    std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full")
}
