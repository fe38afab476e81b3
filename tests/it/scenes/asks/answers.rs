//! The answers that people can give, and their effects.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::GrantScope;
use talaria::agent::AskChoice;
use talaria_platform::{EventId, IncomingMessage, RoomEventKind};

use super::{FIVE_MINUTES, gateway, outcomes, settled};
use crate::support::room::{Asked, Fault};
use crate::support::scripted::ask;

#[tokio::test(start_paused = true)]
async fn an_approval_lets_the_agent_act_and_the_room_is_told() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway
        .agent()
        .says(["Let me clean up.\n"])
        .waits(Duration::from_secs(2))
        .asks("run a command", "rm -r build")
        .says(["Done."]);

    room.says("@ann", "clean up").await;
    room.is_asked("run a command").await;
    assert_eq!(gateway.agent_itself().ran(), [""; 0], "nothing runs before the answer");
    room.says("@ann", "/approve").await;

    assert_snapshot!(settled(&room).await, @"
    @ann  clean up
    bot   Let me clean up.
          Done.
    ask   The agent asks for permission: `run a command`
          ```
          rm -r build
          ```
          `/approve CODE` allows it once, `/deny CODE` refuses it. Add `session` to be asked this only once in this conversation.
    @ann  /approve
    note  Allowed, this once: `run a command`
    ");
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
    assert_eq!(gateway.agent_itself().answers()[0].choice, AskChoice::Allow(GrantScope::Once));
    assert_eq!(outcomes(&gateway).await, ["ask once yes by @ann:test (approved)"]);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_final_and_the_turn_goes_on() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway
        .agent()
        .says(["Let me see. "])
        .waits(Duration::from_secs(2))
        .asks("run a command", "rm -r build")
        .says(["Then not."]);

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.says("@ann", &format!("/deny {}", asked.code.to_lowercase())).await;
    room.shows("Then not.").await;
    room.shows("Denied").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;

    // A code without letters is the same in lower case.
    assert_snapshot!(settled(&room).await.replace("/deny code", "/deny CODE"), @"
    @ann  clean up
    bot   Let me see. Then not.
    ask   The agent asks for permission: `run a command`
          ```
          rm -r build
          ```
          `/approve CODE` allows it once, `/deny CODE` refuses it. Add `session` to be asked this only once in this conversation.
    @ann  /deny CODE
    note  Denied: `run a command`
    @ann  /approve CODE
    note  Nothing with the code CODE is waiting for an answer here.
    ");
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by @ann:test (denied)"]);
}

#[tokio::test(start_paused = true)]
async fn an_approval_counts_once() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("one", "rm one").asks("two", "rm two");

    room.says("@ann", "clean up").await;
    let one = room.is_asked("one").await;
    room.says("@ann", &format!("/approve {}", one.code)).await;
    room.is_asked("two").await;
    let again = room.says("@ann", &format!("/approve {}", one.code)).await;
    room.delivers_again(&again).await;
    room.settled().await;

    assert_eq!(gateway.agent_itself().ran(), ["rm one"]);
    assert!(room.now().contains(&format!("Nothing with the code {} is waiting", one.code)));
}

#[tokio::test(start_paused = true)]
async fn with_several_open_a_code_is_needed_and_they_are_listed() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all([ask("one", "rm one"), ask("two", "rm two")]);

    room.says("@ann", "clean up").await;
    room.is_asked("one").await;
    let two = room.is_asked("two").await;
    for words in ["/approve", "/approve session", "/deny"] {
        room.says("@ann", words).await;
        room.chat.is_quiet(Duration::from_secs(1)).await;
    }
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
    let list = room.ours().into_iter().rfind(|text| text.contains("Which one?")).unwrap();
    assert!(list.contains(&format!("- `{}` `two`", two.code)) && list.contains("`one`"), "{list}");

    room.says("@ann", &format!("/approve {} once", two.code)).await;
    room.shows("Allowed, this once: `two`").await;
    room.says("@ann", "/deny").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm two"]);
    let outcomes = outcomes(&gateway).await;
    assert_eq!(outcomes, ["ask once yes by @ann:test (approved)", "ask no by @ann:test (denied)"]);
}

#[tokio::test(start_paused = true)]
async fn a_code_of_another_place_is_as_good_as_none() {
    let gateway = gateway().await;
    let (room, other, thread) =
        (gateway.shared_room(), gateway.room(), gateway.shared_room().thread("$thread"));
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let code = room.is_asked("run a command").await.code;
    for place in [&other, &thread] {
        place.says("@ann", &format!("/approve {code}")).await;
        place.says("@ann", "/approve ZZZZ").await;
        place.says("@ann", "/approve").await;
        place.says("@ann", &format!("/deny {code}")).await;
    }
    other.chat.is_quiet(Duration::from_secs(10)).await;

    let unknown = |code: &str| format!("Nothing with the code {code} is waiting for an answer here.");
    let none = "Nothing is waiting for an answer here.".to_owned();
    assert_eq!(other.ours(), [unknown(&code), unknown("ZZZZ"), none, unknown(&code)]);
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
    room.says("@ann", &format!("/approve {code}")).await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
}

#[tokio::test(start_paused = true)]
async fn other_words_are_explained_and_decide_nothing() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let code = room.is_asked("run a command").await.code;
    for words in ["/approve yes", "/approve once session", "/approve everything", "/deny once", "/deny it"] {
        room.says("@ann", words).await;
    }
    room.says("@ann", &format!("/approve {code} {code}")).await;
    room.chat.is_quiet(Duration::from_secs(10)).await;

    let explained = |words: &str| room.ours().iter().filter(|text| text.starts_with(words)).count();
    assert_eq!((explained("I understand `/approve`"), explained("I understand `/deny`")), (4, 2));
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
}

#[tokio::test(start_paused = true)]
async fn without_a_question_there_is_nothing_to_answer() {
    let gateway = gateway().await;
    let room = gateway.room();
    room.says("@ann", "/approve").await;
    room.says("@ann", "/deny").await;
    room.settled().await;
    assert_eq!(room.ours(), ["Nothing is waiting for an answer here."; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_approval_without_a_code_never_meets_a_question_that_nobody_has_read() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    gateway.agent().asks("one", "rm one").asks("two", "rm two");

    room.says("@ann", "clean up").await;
    room.is_asked("one").await;
    room.says("@ann", "/approve").await;
    room.is_asked("two").await;
    // Bob has read the first ask, and was slower than Ann.
    room.says("@bob", "/approve").await;
    room.shows("or did a moment ago").await;
    assert_eq!(gateway.agent_itself().ran(), ["rm one"]);

    tokio::time::sleep(Duration::from_secs(4)).await;
    room.says("@bob", "/approve").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm one", "rm two"]);
}

#[tokio::test(start_paused = true)]
async fn an_approval_without_a_code_needs_a_question_that_the_room_shows() {
    let gateway = gateway().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    agent.is_hanging().await;
    gateway.chat().next_send(Fault::LostAnswer);
    agent.goes_on();
    let asked = room.is_asked("run a command").await;
    room.says("@ann", "/approve").await;
    room.shows("To be sure, please name its code").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
}

#[tokio::test(start_paused = true)]
async fn a_cross_on_the_question_denies_and_no_mark_approves() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build");

    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.chat.is_quiet(Duration::from_secs(1)).await;
    for mark in ["✅", "👍", "/approve", &asked.code] {
        room.reacts("@ada", &asked.message, mark).await;
    }
    room.chat.is_quiet(Duration::from_secs(10)).await;
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
    room.reacts("@ann", &asked.message, "❌\u{fe0f}").await;
    room.settled().await;

    assert!(room.now().contains("Denied: `run a command`"), "{}", room.now());
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
    assert_eq!(outcomes(&gateway).await, ["ask no by @ann:test (denied)"]);
}

#[tokio::test(start_paused = true)]
async fn a_cross_elsewhere_means_nothing() {
    let gateway = gateway().await;
    let (room, other) = (gateway.shared_room(), gateway.room());
    gateway.agent().asks("run a command", "rm -r build");

    other.says("@ann", "/approve").await;
    other.shows("Nothing is waiting").await;
    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    room.chat.is_quiet(Duration::from_secs(1)).await;
    other.reacts("@ann", &asked.message, "❌").await;
    room.reacts("@ann", &"m0".into(), "❌").await;
    room.chat.is_quiet(Duration::from_secs(10)).await;
    assert_eq!(gateway.agent_itself().answers().len(), 0, "nothing is decided");
    tokio::time::sleep(FIVE_MINUTES).await;
    room.settled().await;
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (timeout)"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_one_question_never_decides_another() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build").asks("send a letter", "to Bob").says(["Done."]);
    let replies = async |to: &Asked, text: &str| {
        let reply_to = Some(EventId::new(to.message.as_str()));
        let message = IncomingMessage { reply_to, ..IncomingMessage::text(text) };
        room.does(room.event("@ann", RoomEventKind::Message(message))).await;
    };

    room.says("@ann", "clean up").await;
    let first = room.is_asked("run a command").await;
    replies(&first, "/deny").await;
    let second = room.is_asked("send a letter").await;
    // After so long, an answer to the second ask cannot be meant for the first.
    room.chat.is_quiet(Duration::from_secs(10)).await;
    replies(&first, "/approve").await;
    room.shows("no longer waits").await;
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);

    replies(&second, "/approve").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["to Bob"]);
}
