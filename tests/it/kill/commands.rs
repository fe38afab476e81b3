//! Commands that run after their commit: the real binary dies at every step of one, and the room has one answer.

use super::life::{self, Life};
use super::points::COMMAND_POINTS;
use super::trial::{PATIENCE, TRIALS};
use crate::support::agent_server::{AgentServer, Kind};
use crate::support::network::{Network, Shown};

/// What a room is told when the process dies at a point after the command was sent. The messages that answer the
/// command, once those that were sent after it are answered too.
async fn answers(command: &str, point: &str) -> Vec<String> {
    let _permit = TRIALS.acquire().await.expect("never closed");
    let home = tempfile::tempdir().unwrap();
    let network = Network::listen(home.path());
    let server = AgentServer::listen(Kind::Idempotent, std::time::Duration::ZERO, super::trial::answer).await;
    let config = format!(
        "platforms:\n  test: {{socket: {}, pause_ms: 5, access: {{allow_all: true}}}}\n",
        network.socket().display()
    );
    std::fs::write(home.path().join("talaria.yaml"), config).unwrap();
    let environment = |point: Option<&str>| {
        let mut environment = vec![("GATEWAY_PROXY_URL", server.url())];
        environment.extend(point.map(|point| ("TALARIA_FAILPOINT", point.to_owned())));
        environment
    };

    let asked = network.says("garden", command);
    let died = Life::begin(home.path(), &environment(Some(point))).dies(PATIENCE).await;
    let log = || std::fs::read_to_string(life::log(home.path())).unwrap_or_default();
    died.unwrap_or_else(|instead| panic!("{command} {point}: {instead}\n{}", log()));
    let _next = Life::begin(home.path(), &environment(None));
    let is_answered = |event, shown: &[Shown]| shown.iter().any(|message| message.replies_to(event));
    assert!(
        network.shows(PATIENCE, |shown| is_answered(&asked, shown)).await,
        "{command} {point}\n{}",
        log()
    );
    // The place answers in order: behind this one, no second answer to the first can be under way.
    let last = network.says("garden", "/status");
    assert!(network.shows(PATIENCE, |shown| is_answered(&last, shown)).await, "{command} {point}\n{}", log());
    let about_it = network.messages().into_iter().filter(|message| message.replies_to(&asked));
    about_it.map(|message| message.body().markdown.clone()).collect()
}

/// Every moment between the commit of the message and the arrival of the answer.
fn moments() -> impl Iterator<Item = &'static str> {
    let others = ["accept.received", "accept.committed", "outbox.taken", "outbox.sent", "outbox.committed"];
    others.into_iter().chain(COMMAND_POINTS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_can_be_repeated_is_answered_once_whenever_the_process_dies() {
    for point in moments() {
        let told = answers("/status", point).await;
        assert_eq!(told.len(), 1, "{point}: {told:?}");
        assert!(told[0].ends_with("Asked just now: remote agent server answers."), "{point}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_may_have_had_its_effect_is_not_run_again_and_the_room_is_told() {
    for point in moments() {
        let told = answers("/self-check it", point).await;
        let interrupted = "The command /self-check was interrupted by a restart. Please send it again.";
        let expected = match point {
            "command.begun" | "command.ran" => interrupted,
            _ => "checked it",
        };
        assert_eq!(told, [expected], "{point}");
    }
}
