//! When the agent fails: what is tried again, and what the room shows.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::AgentErrorKind;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

const NOTHING_RAN: AgentErrorKind = AgentErrorKind::NothingRan { after: None };
const UNKNOWN: AgentErrorKind = AgentErrorKind::Unknown { after: None };

fn resumable() -> Setup {
    Setup { resumable: true, ..Setup::default() }
}

/// The room without the one text that differs in each run: the time of day.
fn timeless(shown: &str) -> String {
    match shown.split_once(" until ") {
        Some((before, after)) => format!("{before} until HH:MM{}", &after["HH:MM".len()..]),
        None => shown.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_ran_it_is_tried_again_until_it_works() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for _ in 0..4 {
        gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    }
    gateway.agent().says(["Here I am again."]);

    room.says("@ann", "hello?").await;
    room.shows("Trying again").await;
    assert_snapshot!(timeless(&room.now()), @r"
    @ann  hello?
    bot…  ⚠️ The agent cannot be reached. Trying again until HH:MM UTC.
    ");

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    bot   Here I am again.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.len(), 5);
    assert!(heard.iter().all(|turn| turn.key == heard[0].key && turn.request == heard[0].request));
    assert!(heard.iter().all(|turn| !turn.resumed), "nothing ran, so each is a first attempt");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_even_be_asked_is_tried_again_too() {
    let gateway = TestGateway::start().await;
    gateway.agent_itself().cannot_prepare(NOTHING_RAN, "The agent cannot be reached.");

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn when_the_time_for_trying_is_over_the_room_is_told_why() {
    let gateway = TestGateway::with(Setup { retry_for: Duration::from_secs(60), ..Setup::default() }).await;
    for _ in 0..100 {
        gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    }

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    note  ⚠️ The agent cannot be reached.
    ");
    let tries = gateway.agent_itself().heard().len();
    assert!((5..20).contains(&tries), "{tries} tries in a minute");
}

/// An answer that takes longer than `retry_for` breaks off at its end.
#[tokio::test(start_paused = true)]
async fn the_time_for_trying_counts_from_when_the_trouble_began() {
    let gateway = TestGateway::with(Setup { retry_for: Duration::from_secs(600), ..resumable() }).await;
    let room = gateway.room();
    let minute = Duration::from_secs(60);
    let broken = || ["Once upon a time ", "there was "];
    gateway.agent().says_slowly(11 * minute, broken()).then_fails(UNKNOWN, "The connection was lost.");
    // The agent is unreachable for a while.
    for _ in 0..10 {
        gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    }
    // Twelve minutes later it breaks once more.
    let more = broken().into_iter().chain(["a gateway"]);
    gateway.agent().says_slowly(4 * minute, more).then_fails(UNKNOWN, "The connection was lost.");
    gateway.agent().says(["Once upon a time there was a gateway."]);

    room.says("@ann", "tell me a story").await;
    room.shows("Trying again").await;
    room.shows("bot   Once upon a time there was a gateway.").await;
    assert_eq!(gateway.agent_itself().heard().len(), 13);
}

/// A replayed stream that breaks at the same word each time makes no progress.
#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_further_is_given_up_in_time() {
    let gateway = TestGateway::with(Setup { retry_for: Duration::from_secs(60), ..resumable() }).await;
    for _ in 0..100 {
        gateway.agent().says(["Once upon a time"]).then_fails(UNKNOWN, "The connection was lost.");
    }

    gateway.room().says("@ann", "tell me a story").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time
          (cut short: The connection was lost — /retry runs it again)
    ");
    let tries = gateway.agent_itself().heard().len();
    assert!((5..20).contains(&tries), "{tries} tries in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_script_is_not_kept_waiting_for_ten_minutes() {
    let gateway = TestGateway::start().await;
    for _ in 0..100 {
        gateway.agent().then_fails(NOTHING_RAN, "The agent cannot be reached.");
    }
    let pipe = Room { name: "pipe".to_owned(), ..gateway.room() };
    let asked = tokio::time::Instant::now();
    pipe.says("@ann", "hello?").await;
    let given_up = || (pipe.ours() == ["⚠️ The agent cannot be reached."]).then_some(());
    pipe.chat.until("it is given up", given_up).await;
    assert!((10..=31).contains(&asked.elapsed().as_secs()), "after {:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_upstreams_own_wait_is_honoured() {
    let gateway = TestGateway::start().await;
    let after = Some(Duration::from_secs(90));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, "The agent is busy.");

    gateway.room().says("@ann", "hello?").await;
    let asked = tokio::time::Instant::now();
    gateway.room().shows("bot   ok").await;

    assert!(asked.elapsed() >= Duration::from_secs(90), "asked again after {:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn stop_ends_the_trying() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let after = Some(Duration::from_secs(300));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, "The agent is busy.");

    room.says("@ann", "hello?").await;
    room.shows("Trying again").await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    note  (stopped)
    @ann  /stop
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resumable_turn_is_repeated_as_it_was_and_its_text_is_not_doubled() {
    let gateway = TestGateway::with(resumable()).await;
    let room = gateway.room();
    gateway.agent().says(["Once upon ", "a time "]).then_fails(UNKNOWN, "The connection was lost.");
    gateway.agent().says(["Once up", "on a"]).then_fails(UNKNOWN, "The connection was lost.");
    gateway.agent().says(["Once upon a time ", "there was a gateway."]);

    room.says("@ann", "tell me a story").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time there was a gateway.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.iter().map(|turn| turn.resumed).collect::<Vec<_>>(), [false, true, true]);
    assert!(heard.iter().all(|turn| turn.key == heard[0].key && turn.request == heard[0].request));
    let longest = room.history_of_first().iter().map(String::len).max();
    assert!(longest < Some(120), "nothing was ever shown twice: {:?}", room.history_of_first());
}

#[tokio::test(start_paused = true)]
async fn a_plain_turn_whose_outcome_is_unknown_is_not_repeated() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().says(["Once upon a time"]).then_fails(UNKNOWN, "the connection was lost");
    gateway.agent().then_fails(UNKNOWN, "The connection was lost.");

    room.says("@ann", "tell me a story").await;
    room.settled().await;
    room.says("@ann", "tell me another").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    bot   Once upon a time
          (cut short: the connection was lost — /retry runs it again)
    @ann  tell me another
    note  ⚠️ The connection was lost. It may have run all the same; /retry runs it again.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_a_failure_asks_the_same() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().then_fails(UNKNOWN, "The connection was lost.");

    room.says("@ann", "tell me a story").await;
    room.settled().await;
    room.says("@ann", "/retry").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    note  ⚠️ The connection was lost. It may have run all the same; /retry runs it again.
    @ann  /retry
    bot   ok
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].prompt, "tell me a story");
    assert_ne!(heard[1].key, heard[0].key);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_said_in_its_own_words() {
    let gateway = TestGateway::start().await;
    gateway.agent().then_fails(AgentErrorKind::Refused, "The agent does not know this key.");

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    note  ⚠️ The agent does not know this key.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_keeps_its_text_and_says_so() {
    let gateway = TestGateway::start().await;
    gateway.agent().says(["Here is ```code"]).then_fails(AgentErrorKind::CutShort, "the agent ended early");

    gateway.room().says("@ann", "hello?").await;

    assert_snapshot!(gateway.room().settled().await, @r"
    @ann  hello?
    bot   Here is ```code
          (cut short: the agent ended early)
    ");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_ended() {
    let gateway = TestGateway::with(Setup { turn_bytes: 300, ..Setup::default() }).await;
    gateway.agent().says(["And so on, "; 100]).then_hangs();

    gateway.room().says("@ann", "go on").await;
    gateway.room().settled().await;

    let shown = gateway.room().ours().concat();
    assert!(shown.starts_with("And so on, And so on,") && shown.len() < 500, "{shown}");
    assert!(shown.ends_with("(cut short: the answer grew beyond what one message may take)"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_agent_fails_that_turn_only() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Let me think"]).then_hangs().then_panics();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "two").await;
    room.settled().await;
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   Let me think
          ⚠️ Something went wrong inside the gateway (turn 9617b1).
    @ann  two
    note  Queued: one other message comes first. /stop ends both.
    bot   ok
    ");
}
