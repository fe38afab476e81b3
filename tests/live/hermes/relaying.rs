//! hermes-agent's API server behind our gateway, when nothing fails.

use crate::scene::{AUTO, RUNS, Scene, Way};
use crate::scripted_model::answer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_turns_share_a_memory_and_a_long_answer_comes_whole() {
    two_turns_share_a_memory(RUNS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_streams_two_turns_share_a_memory_too() {
    two_turns_share_a_memory(AUTO).await;
}

async fn two_turns_share_a_memory(upstream: &str) {
    let scene = Scene::start_with(Way::Direct, upstream).await;
    scene.is_answered("garden", "my name is Ann").await;
    scene.is_answered("garden", "what is my name?").await;
    let (first, second) = ("my name is Ann".to_owned(), "what is my name?".to_owned());
    assert_eq!(scene.model.last_asked(), [first.clone(), answer(&first), second]);

    scene.is_answered("cellar", "count 1500").await;
    assert_eq!(scene.model.last_asked(), ["count 1500"], "another room is another session");

    let question = scene.asks("cellar", "use a tool");
    // The text before the tool and the answer after it are one message in the room.
    let shown = scene.ends(&question).await;
    assert!(shown.starts_with("Let me look.") && shown.ends_with(&answer("use a tool")), "{shown}\n{scene}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_at_the_start_is_waited_for_and_a_wrong_key_is_named() {
    a_server_that_is_away_is_waited_for(RUNS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_streams_a_server_that_is_away_is_waited_for_too() {
    a_server_that_is_away_is_waited_for(AUTO).await;
}

async fn a_server_that_is_away_is_waited_for(upstream: &str) {
    let mut scene = Scene::without_hermes(upstream).await;
    let question = scene.asks("garden", "is anybody there?");
    scene.shows(&question, "Trying again until").await;
    scene.hermes.starts().is_healthy().await;
    assert_eq!(scene.ends(&question).await, answer("is anybody there?"), "{scene}");

    scene.gateway_ends_by(rustix::process::Signal::TERM).await;
    scene.has_key("not-the-key-of-this-hermes");
    scene.gateway_starts();
    let question = scene.asks("garden", "and now?");
    let shown = scene.ends(&question).await;
    assert!(shown.contains("Proxy error (401)"), "{shown}\n{scene}");
}
