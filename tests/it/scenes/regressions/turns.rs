//! Turns that were stranded, stopped, forgotten or run under a wrong name.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AgentErrorKind, StepState};
use talaria::ids::TurnId;
use talaria_platform::{AccountId, MediaKind, ShowMode};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Room, file};

const BUSY: AgentErrorKind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) };
const UNREACHABLE: AgentErrorKind = AgentErrorKind::NothingRan { after: None };

fn resumable() -> Setup {
    Setup { resumable: true, ..Setup::default() }
}

/// A person who writes the next message in the very moment in which the answer before it ends: both wait for the same
/// commit of the store, and then race for the session's queue.
async fn talks_without_a_pause(gateway: &TestGateway, room: &Room, prompts: usize) {
    let words = |number| format!("{} {number}.", room.name);
    let script = |number| {
        let words: String = words(number);
        gateway.agent().when(&words).then_hangs().says([words.as_str()])
    };
    let mut running = script(0);
    room.posts("@ann", &words(0), Vec::new());
    for number in 1..prompts {
        running.is_hanging().await;
        let next = script(number);
        room.posts("@ann", &words(number), Vec::new());
        running.goes_on();
        running = next;
    }
    running.goes_on();
    let all: Vec<_> = (0..prompts).map(words).collect();
    gateway.chat().until("all is answered", || (answers(room) == all).then_some(())).await;
}

/// Our messages in a room, without the notices about waiting.
fn answers(room: &Room) -> Vec<String> {
    room.ours().into_iter().filter(|text| !text.starts_with("Queued: ")).collect()
}

/// With the real clock and real threads, because it is about simultaneous events.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_prompt_that_comes_in_the_moment_a_line_ends_is_not_stranded() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let rooms: [Room; 6] = std::array::from_fn(|number| gateway.direct_room(&format!("!{number}")));
    let [a, b, c, d, e, f] = rooms.each_ref().map(|room| talks_without_a_pause(&gateway, room, 25));

    let all = async { tokio::join!(a, b, c, d, e, f) };
    let answered = tokio::time::timeout(Duration::from_secs(60), all).await;

    let heard = gateway.agent_itself().heard().len();
    assert!(answered.is_ok(), "a prompt was stranded; the agent heard {heard} of 150");
    assert_eq!(heard, 150, "each was run once");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_process_lets_a_resumable_run_go_on() {
    let mut gateway = TestGateway::with(resumable()).await;
    let room = gateway.room();
    let before = gateway.agent().then_hangs();
    let after = gateway.agent().then_hangs();

    room.says("@ann", "tell me a story").await;
    before.is_hanging().await;
    gateway.restart().await;
    after.is_hanging().await;
    assert!(!before.was_told_to_stop(), "the next process asks for this very run");

    room.says("@ann", "/stop").await;
    room.settled().await;
    assert!(after.was_told_to_stop(), "a person who stops it means it");
}

#[tokio::test(start_paused = true)]
async fn a_plain_run_is_told_to_stop_at_the_end_of_the_process() {
    let mut gateway = TestGateway::start().await;
    let agent = gateway.agent().then_hangs();

    gateway.room().says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    gateway.drain().await;

    assert!(agent.was_told_to_stop(), "nobody will ask for it again");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_may_exist_is_not_forgotten_because_a_repeat_did_not_reach_it() {
    let mut gateway = TestGateway::with(Setup { retry_for: Duration::from_secs(60), ..resumable() }).await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();
    for _ in 0..100 {
        gateway.agent().then_fails(UNREACHABLE, "The agent cannot be reached.");
    }

    room.says("@ann", "tell me a story").await;
    agent.is_hanging().await;
    gateway.restart().await;
    room.shows("Trying again").await;
    let tries = gateway.agent_itself().heard().len();
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me a story
    note  ⚠️ The agent cannot be reached. It may have run all the same; /retry runs it again.
    ");
    let heard = gateway.agent_itself().heard();
    assert!(heard.len() > tries, "the last process tried too");
    assert!(heard[1..].iter().all(|turn| turn.resumed && turn.request == heard[0].request), "{heard:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tools_leaves_a_short_record() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    (0..10_000)
        .fold(gateway.agent(), |script, n| {
            script.step(&format!("call-{n}"), &format!("tool-{n}"), StepState::Running)
        })
        .says(["All done."]);

    let asked = room.says("@ann", "use everything").await;
    assert_snapshot!(room.settled().await, @r"
    @ann  use everything
    bot   All done.
    ");

    let turn = TurnId::new(&AccountId::from("test"), &room.place().room, &asked, 0);
    let (_, finish) = gateway.store().read(move |tx| tx.finished(&turn)).await.unwrap().unwrap();
    assert_eq!(finish.tools.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_deleted_while_it_is_tried_again_is_not_asked() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().then_fails(BUSY, "The agent is busy.");

    let asked = room.says("@ann", "what is my salary?").await;
    room.shows("Trying again").await;
    room.deletes("@ann", &asked).await;

    assert_snapshot!(room.settled().await, @r"
    @ann  what is my salary?
    bot…  (deleted)
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_edited_while_it_is_tried_again_is_asked_as_it_is_now() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().then_fails(BUSY, "The agent is busy.");

    let asked = room.says("@ann", "what is Rsut?").await;
    room.shows("Trying again").await;
    room.edits("@ann", &asked, "what is Rust?").await;
    room.settled().await;
    room.says("@ann", "and since when?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    let prompts: Vec<_> = heard.iter().map(|turn| turn.prompt.as_str()).collect();
    assert_eq!(prompts, ["what is Rsut?", "what is Rust?", "and since when?"]);
    assert!(heard[1].request.ends_with("what is Rust?"), "{}", heard[1].request);
    assert_eq!(heard[2].history[0].content, "what is Rust?", "what was asked is what is remembered");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_could_not_even_be_made_ready_can_be_edited_too() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent_itself().cannot_prepare(BUSY, "The agent is busy.");

    let asked = room.says("@ann", "what is Rsut?").await;
    room.shows("Trying again").await;
    room.edits("@ann", &asked, "what is Rust?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.iter().map(|turn| turn.prompt.as_str()).collect::<Vec<_>>(), ["what is Rust?"]);
}

#[tokio::test(start_paused = true)]
async fn an_edited_question_is_asked_as_it_is_now_after_a_restart_too() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().then_fails(BUSY, "The agent is busy.");

    let asked = room.says("@ann", "what is Rsut?").await;
    room.shows("Trying again").await;
    room.edits("@ann", &asked, "what is Rust?").await;
    gateway.restart().await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert!(heard[1].request.ends_with("what is Rust?"), "{}", heard[1].request);
}

#[tokio::test(start_paused = true)]
async fn what_is_attached_to_an_edited_question_goes_along_even_after_a_restart() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    gateway.agent().then_fails(BUSY, "The agent is busy.");
    let long = Some(Duration::from_secs(300));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after: long }, "The agent is busy.");

    let asked = room.brings("@ann", "summarise tihs", vec![file("f1", MediaKind::File, "notes.pdf")]).await;
    room.shows("Trying again").await;
    gateway.restart().await;
    // The next process has tried too, and waits.
    room.settled().await;
    room.edits("@ann", &asked, "summarise this").await;
    room.shows("bot   ok").await;

    let heard = gateway.agent_itself().heard();
    let request = &heard[2].request;
    assert!(request.contains("summarise this") && request.contains("notes.pdf"), "{request}");
}

#[tokio::test(start_paused = true)]
async fn what_was_stopped_is_not_before_anything() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let deaf = gateway.agent().then_ignores_everything();

    room.says("@ann", "one").await;
    deaf.is_hanging().await;
    room.says("@ann", "/stop").await;
    room.says("@ann", "two").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    @ann  /stop
    @ann  two
    note  (stopped)
    bot   ok
    ");
}
