//! What only a run can do: asks of hermes-agent in the room, and a stop that ends a silent turn.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::it::network::Shown;
use crate::scene::{Scene, Way};
use crate::scripted_model::answer;

/// Within this time after `/stop`, hermes-agent must have ended its work.
const STOPPED: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_asked_granted_and_denied_in_the_room() {
    let scene = Scene::start().await;
    scene.is_answered("garden", "hello").await;
    for (word, goes) in [("/approve", true), ("/deny", false)] {
        let folder = tempfile::tempdir().unwrap().keep();
        let prompt = format!("remove {}", folder.display());
        let question = scene.asks("garden", &prompt);
        let code = scene.is_asked(&format!("rm -rf {}", folder.display())).await;
        assert!(folder.exists(), "nothing was decided\n{scene}");
        scene.asks("garden", &format!("{word} {code}"));
        scene.shows(&question, &answer(&prompt)).await;
        assert_eq!(folder.exists(), !goes, "{word}\n{scene}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_with_a_hidden_part_is_asked_with_a_warning_each_time() {
    let scene = Scene::start().await;
    scene.is_answered("garden", "hello").await;
    for number in 1..=2 {
        let folder = tempfile::tempdir().unwrap();
        let prompt = format!("with a token remove {}", folder.path().display());
        let question = scene.asks("garden", &prompt);
        let code = scene.is_asked(&format!("API_TOKEN=*** rm -rf {}", folder.path().display())).await;
        scene.is_asked("hides a part of this").await;
        let refused = scene.asks("garden", &format!("/approve {code} session"));
        scene.shows(&refused, "only once at a time").await;
        assert!(folder.path().exists(), "nothing was decided, {number}\n{scene}");
        scene.asks("garden", &format!("/deny {code}"));
        scene.shows(&question, &answer(&prompt)).await;
    }
}

/// hermes-agent's reader of the broken connection takes the next event, so the ask is never seen here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_comes_after_a_cut_wire_is_denied_and_the_room_is_told() {
    let scene = Scene::start_by(Way::Wire).await;
    scene.is_answered("garden", "hello").await;
    let folder = tempfile::tempdir().unwrap();
    let prompt = format!("hold before the tool and remove {}", folder.path().display());
    let question = scene.asks("garden", &prompt);
    scene.model.is_held(&prompt).await;
    scene.shows(&question, "Let me look").await;
    scene.wire.is_cut();
    scene.model.goes_on();
    scene
        .shows(&question, "Denied: the agent server asked for permission while the connection was away")
        .await;
    scene.shows(&question, &answer(&prompt)).await;
    assert!(folder.path().exists(), "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_a_cut_wire_runs_the_question_again() {
    let scene = Scene::start_by(Way::Wire).await;
    scene.is_answered("garden", "hello").await;
    let prompt = "count 20, hold after 5";
    let question = scene.asks("garden", prompt);
    scene.model.is_held(prompt).await;
    scene.shows(&question, "part").await;
    scene.wire.is_cut();
    scene.model.goes_on();
    assert_eq!(scene.ends(&question).await, answer(prompt), "{scene}");
    let again = scene.asks("garden", "/retry");
    assert_eq!(scene.ends(&again).await, answer(prompt), "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_a_silent_turn_at_hermes_too() {
    let scene = Scene::start().await;
    scene.is_answered("garden", "hello").await;
    let prompt = "count 2000, hold after 0";
    let question = scene.asks("garden", prompt);
    scene.model.is_held(prompt).await;
    let stopped = Instant::now();
    scene.asks("garden", "/stop");
    scene.hermes.runs_nothing().await;
    assert!(stopped.elapsed() < STOPPED, "it took {:?}\n{scene}", stopped.elapsed());
    scene.shows(&question, "(stopped)").await;
    // hermes-agent 0.19.0 leaves the connection to a silent model open; see `facts.rs`. It throws away what the model says
    // later.
    scene.model.goes_on();
    scene.is_answered("garden", "are you there?").await;
    let said = |shown: &Shown| shown.replies_to(&question) && shown.body().markdown.contains("part");
    assert!(!scene.network.messages().iter().any(said), "{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_the_model_call_of_an_answer_that_comes() {
    let scene = Scene::start().await;
    scene.is_answered("garden", "hello").await;
    let prompt = "count 2000, hold after 5";
    let question = scene.asks("garden", prompt);
    scene.model.is_held(prompt).await;
    scene.model.goes_on();
    scene.shows(&question, "part 6,").await;
    let stopped = Instant::now();
    scene.asks("garden", "/stop");
    scene.model.was_left(1).await;
    assert!(stopped.elapsed() < STOPPED, "it took {:?}\n{scene}", stopped.elapsed());
    scene.shows(&question, "(stopped)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_outlives_both_sides() {
    let mut scene = Scene::start().await;
    scene.is_answered("garden", "my name is Ann").await;
    scene.gateway_ends_by(Signal::TERM).await;
    scene.hermes.dies().await;
    scene.hermes.starts().is_healthy().await;
    scene.gateway_starts();
    scene.is_answered("garden", "what is my name?").await;
    let (first, second) = ("my name is Ann".to_owned(), "what is my name?".to_owned());
    assert_eq!(scene.model.last_asked(), [first.clone(), answer(&first), second], "{scene}");

    scene.asks("garden", "/undo");
    scene.is_answered("garden", "and who am I?").await;
    assert_eq!(
        scene.model.last_asked(),
        [first.clone(), answer(&first), "and who am I?".to_owned()],
        "{scene}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_nobody_could_see_is_denied() {
    let mut scene = Scene::start().await;
    scene.is_answered("garden", "hello").await;
    let folder = tempfile::tempdir().unwrap();
    let prompt = format!("remove {}", folder.path().display());
    let question = scene.asks("garden", &prompt);
    scene.is_asked("rm -rf").await;
    scene.gateway_ends_by(Signal::KILL).await;
    scene.gateway_starts();
    scene
        .shows(&question, "Denied: the agent server asked for permission while the connection was away")
        .await;
    scene.shows(&question, &answer(&prompt)).await;
    assert!(folder.path().exists(), "{scene}");
}
