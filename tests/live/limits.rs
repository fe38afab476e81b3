//! Synapse with its default limits: ten messages at once, then one in five seconds, per account.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::it::upstream::{Answer, DONE, Gate, delta, finish};
use crate::support::homeserver::{Homeserver, Limits};
use crate::support::person::With;
use crate::support::scene::Scene;
use crate::support::shown::Shown;

/// The gateway's defaults; only the limits for people are lifted.
const BY_ITSELF: &str = "
platforms:
  matrix:
    limits: { per_minute: 10000, per_hour: 10000 }
";

const ROOMS: usize = 10;

/// How long Synapse makes an account wait for each message once its burst is used up.
const EACH: Duration = Duration::from_secs(5);

/// Three for learning, two for a busy machine; there are more than twenty requests.
const REFUSALS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_answers_at_once_all_arrive_within_synapses_own_limits() {
    let homeserver = Arc::new(Homeserver::own(Limits::Default).await);
    let mut scene = Scene::prepared(homeserver.clone(), With::Nio).await;
    scene.gateway.configures(BY_ITSELF);
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let rooms = join_all((0..ROOMS).map(|_| scene.direct())).await;

    // The rate limiter learns the limit from refusals, and it starts with a wrong idea: Synapse counts the joins too,
    // which have just emptied the bucket. One or two more are requests that a busy machine brought closer together
    // than they were sent.
    everybody_is_answered(&scene, &rooms, 1).await;
    let refused = homeserver.refused(&scene.bot.id);
    assert!(refused.len() <= REFUSALS, "refused {} times: {refused:?}", refused.len());

    // Now it knows the limit. The bucket is empty, so an answer can come every five seconds, and does.
    let began = Instant::now();
    everybody_is_answered(&scene, &rooms, 2).await;
    let took = began.elapsed();
    assert!(took < 2 * EACH * u32::try_from(ROOMS).unwrap(), "{ROOMS} answers took {took:?}");
    let later = homeserver.refused(&scene.bot.id);
    assert_eq!(later.len(), refused.len(), "refused again: {later:?}");
    scene.ends();
}

/// Ten questions at once in one room wait for one another. The notices about that must not use up the requests that
/// the answers need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_messages_at_once_in_one_room_cost_one_notice() {
    let homeserver = Arc::new(Homeserver::own(Limits::Default).await);
    let mut scene = Scene::prepared(homeserver.clone(), With::Nio).await;
    scene.gateway.configures(BY_ITSELF);
    scene.gateway.sets("MATRIX_TRUST", "any");
    scene.gateway.starts();
    let room = scene.direct().await;
    let gate = Gate::new();
    let first = delta("Answer 0.") + finish("stop").as_str() + DONE;
    scene.upstream.answers(Answer::stream().waits(&gate).sends(first).ends());
    let texts: Vec<_> = (0..ROOMS).map(|number| format!("Answer {number}.")).collect();
    for text in &texts[1..] {
        scene.upstream.answers(Answer::says([text.as_str()]));
    }
    for number in 0..ROOMS {
        scene.ann.says(&room, &format!("question {number}")).await;
    }
    let of_the_bot = |shown: &[Shown]| {
        let said = shown.iter().filter(|message| message.sender == scene.bot.id);
        said.cloned().collect::<Vec<_>>()
    };
    let last_change =
        |shown: &[Shown]| of_the_bot(shown).iter().find(|message| message.text().contains('9')).cloned();
    scene.ann.sees(&room, "how many wait", last_change).await;

    let began = Instant::now();
    gate.open();
    scene.reads(&room, &texts[ROOMS - 1]).await;
    let took = began.elapsed();
    let said = of_the_bot(&scene.ann.shows(&room));
    let (answers, notices): (Vec<_>, Vec<_>) = said.iter().partition(|message| message.kind == "m.text");
    assert_eq!(answers.iter().map(|answer| answer.text()).collect::<Vec<_>>(), texts);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!((1..=2).contains(&notices[0].edits()), "{notices:?}");
    // Ten answers, a notice and its edits, and the join before: at most four of them have to wait for their time.
    assert!(took < 2 * 4 * EACH, "ten answers took {took:?}");
    scene.ends();
}

/// Asks ten questions at once; the answer in each room grows in four steps.
async fn everybody_is_answered(scene: &Scene, rooms: &[String], round: usize) {
    let gates: Vec<_> = (0..4).map(|_| Gate::new()).collect();
    for _ in 0..ROOMS {
        let mut answer = Answer::stream();
        for (number, gate) in gates.iter().enumerate() {
            answer =
                answer.sends(delta(&format!("This is paragraph {number} of the answer.\n\n"))).waits(gate);
        }
        scene.upstream.answers(answer.sends(delta("The end.") + finish("stop").as_str() + DONE).ends());
    }
    for room in rooms {
        scene.ann.says(room, "tell me").await;
    }
    scene.upstream.has_prompts(ROOMS * round).await;
    for gate in &gates {
        gate.is_reached().await;
        gate.open();
    }

    let finals = rooms.iter().map(|room| {
        let ended = |shown: &[Shown]| {
            let answer = shown.iter().filter(|message| message.sender == scene.bot.id).nth(round - 1)?;
            answer.text().ends_with("The end.").then(|| answer.clone())
        };
        scene.ann.sees(room, "the end", ended)
    });
    let finals = join_all(finals).await;
    assert!(finals.iter().all(|answer| answer.encrypted && answer.readable));
    for room in rooms {
        assert_eq!(scene.said(room).len(), round);
    }
    // No room got many more edits than another.
    let edits = finals.iter().map(|answer| answer.edits());
    let (least, most) = (edits.clone().min().unwrap(), edits.max().unwrap());
    assert!(most - least <= 2, "edits from {least} to {most}");
}
