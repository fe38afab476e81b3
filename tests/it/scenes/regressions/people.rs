//! Text that people lost, or should not have seen, because a person came, left, or edited at a bad moment.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::AgentErrorKind;
use talaria::rules::AccountRules;
use talaria_platform::{MediaKind, ShowMode, UserId};

use crate::scenes::asks;
use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Room, file};

const BUSY: AgentErrorKind = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(60)) };
const UNREACHABLE: AgentErrorKind = AgentErrorKind::NothingRan { after: None };

/// Rules that allow only these people, everywhere.
fn only(people: &[&str]) -> AccountRules {
    let people = people.iter().map(|id| UserId::from(*id)).collect();
    AccountRules { limits: None, ..AccountRules::listed(AccessLists { people, ..AccessLists::default() }) }
}

fn prompts(gateway: &TestGateway) -> Vec<String> {
    gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect()
}

#[tokio::test(start_paused = true)]
async fn a_direct_chat_that_becomes_a_room_keeps_its_conversation_from_whoever_comes_in() {
    let gateway = asks::gateway().await;
    let chat = gateway.direct_room("!ours");
    let room = Room { direct: false, ..chat.clone() };
    gateway.agent().when("secret").asks("run a command", "rm -r build").says(["I keep it."]);
    chat.says("@ada", "my secret is tea").await;
    chat.is_asked("run a command").await;
    chat.says("@ada", "/approve always").await;
    chat.settled().await;

    room.joins("@bob").await;
    room.says("@bob", "/sessions").await;
    room.settled().await;
    let sessions = room.ours().pop().unwrap_or_default();
    assert!(!sessions.contains("secret"), "{sessions}");
    room.says("@bob", "/resume 1").await;
    room.settled().await;
    let asking = gateway.agent().when("what did she say").asks("run a command", "rm -r build");
    room.says("@bob", "what did she say?").await;
    room.chat.until("the grant is not for the room", || (room.asked().len() == 2).then_some(())).await;
    room.says("@bob", "/deny").await;
    room.settled().await;
    drop(asking);

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[1].history, [], "nothing of the direct chat");
    assert_ne!(heard[1].session, heard[0].session);
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);

    // Alone again, she continues where she was.
    chat.says("@ada", "do you remember?").await;
    chat.settled().await;
    assert_eq!(gateway.agent_itself().heard()[2].history[0].content, "my secret is tea");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_edited_while_its_request_is_made_is_asked_as_it_is_now() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let gate = gateway.agent_itself().prepares_slowly();

    let asked = room.brings("@ann", "what is Rsut?", vec![file("f1", MediaKind::File, "notes.pdf")]).await;
    gateway.chat().is_quiet(Duration::from_secs(1)).await;
    room.edits("@ann", &asked, "what is Rust?").await;
    gate.open();
    room.settled().await;
    room.says("@ann", "and since when?").await;
    room.settled().await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.len(), 2);
    let request = &heard[0].request;
    assert!(request.contains("what is Rust?") && request.contains("notes.pdf"), "{request}");
    let asked = "what is Rust?\n[attached file \"notes.pdf\": it could not be fetched]";
    assert_eq!(heard[1].history[0].content, asked, "what was asked is what is remembered");
}

#[tokio::test(start_paused = true)]
async fn a_notice_does_not_stay_for_ever_when_its_turn_may_no_longer_run() {
    let mut gateway = TestGateway::with(Setup { rules: only(&["@ann:test"]), ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().then_fails(BUSY, "The agent is busy.");

    room.says("@ann", "hello?").await;
    room.shows("Trying again").await;
    gateway.drain().await;
    gateway.reload(only(&["@bob:test"]));
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    note  (stopped)
    ");
    assert_eq!(prompts(&gateway).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_somebody_left_the_room_is_shown_nothing_that_it_had_not_seen() {
    // The next edit comes long after they left.
    let show = ShowMode::Edit { pause: Duration::from_secs(60) };
    let gateway = TestGateway::with(Setup { show, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let seconds = Duration::from_secs(10);
    let agent = gateway.agent().says(["In the open.\n\n"]).waits(seconds).says(["In private."]).then_hangs();

    room.says("@ann", "tell me").await;
    agent.is_hanging().await;
    assert!(room.now().contains("In the open.") && !room.now().contains("private"), "{}", room.now());
    tokio::time::sleep(seconds).await;
    room.leaves("@ann").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  tell me
    bot   In the open.
          (stopped)
    ");
    room.says("@bob", "what was that?").await;
    room.settled().await;
    let told = &gateway.agent_itself().heard()[1].history;
    assert!(told.iter().all(|message| !message.content.contains("private")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stop_at_once_is_not_shown_meanwhile() {
    let show = ShowMode::Edit { pause: Duration::from_secs(3) };
    let gateway = TestGateway::with(Setup { show, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let agent =
        gateway.agent().says(["In the open.\n\n"]).waits(Duration::from_secs(1)).says(["In private."]);
    let agent = agent.then_ignores_everything();

    room.says("@ann", "tell me").await;
    agent.is_hanging().await;
    room.leaves("@ann").await;
    room.settled().await;

    let shown = room.history_of_first();
    assert!(shown.iter().all(|text| !text.contains("private")), "{shown:?}");
    assert!(shown.last().is_some_and(|text| text.ends_with("(stopped)")), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn where_only_whole_answers_are_shown_nothing_is_shown_after_somebody_left() {
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let agent = gateway.agent().says(["In private."]).then_hangs();

    room.says("@ann", "tell me").await;
    agent.is_hanging().await;
    // Long enough for a checkpoint.
    tokio::time::sleep(Duration::from_secs(10)).await;
    room.leaves("@ann").await;

    assert_snapshot!(room.settled().await, @"@ann  tell me");
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_but_never_shown_stays_so_when_its_author_is_gone_at_the_next_start() {
    let show = ShowMode::Once;
    let rules = only(&["@ann:test"]);
    let mut gateway = TestGateway::with(Setup { show, rules, resumable: true, ..Setup::default() }).await;
    let room = gateway.shared_room();
    let agent = gateway.agent().says(["In private."]).then_hangs();

    room.says("@ann", "tell me").await;
    agent.is_hanging().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    gateway.drain().await;
    gateway.reload(only(&["@bob:test"]));
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @"@ann  tell me");
}

#[tokio::test(start_paused = true)]
async fn what_provably_did_not_run_is_left_to_the_next_process() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_cannot_connect(UNREACHABLE, "The agent cannot be reached.");

    room.says("@ann", "hello?").await;
    agent.is_hanging().await;
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    bot   ok
    ");
    assert_eq!(prompts(&gateway), ["hello?", "hello?"]);
}
