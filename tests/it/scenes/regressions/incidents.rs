//! Real attacks on similar programs, as far as they concern identity and the borders of a place: each incident once,
//! under its name (CVE, GHSA, or issue of the project), tried on us.

use std::collections::BTreeSet;

use talaria::access::AccessLists;
use talaria::chat_command::ChatCommand;
use talaria::rules::{AccountRules, Rules, SessionRules};
use talaria_platform::{AuthorTrust, EventAuthor, IncomingMessage, RoomEventKind, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

async fn gateway(lists: AccessLists) -> TestGateway {
    let rules = AccountRules::listed(lists);
    TestGateway::with(Setup { rules, ..Setup::default() }).await
}

fn people(ids: &[&str]) -> BTreeSet<UserId> {
    ids.iter().map(|id| UserId::from(*id)).collect()
}

/// A person with this id and name writes.
async fn writes(room: &Room, id: &str, name: &str, text: &str) {
    let mut event = room.event("@somebody", RoomEventKind::Message(IncomingMessage::text(text)));
    event.author = EventAuthor {
        id: UserId::from(id),
        name: Some(name.to_owned()),
        trust: AuthorTrust::Network,
        bot: false,
        device: None,
    };
    room.does(event).await;
}

/// Checks that nothing was posted, and that the agent got nothing.
async fn nothing_happened(gateway: &TestGateway) {
    gateway.room().settled().await;
    assert!(gateway.chat().requests().is_empty());
    assert!(gateway.agent_itself().heard().is_empty());
}

/// The list was compared with the display name, and with the name without its server.
#[tokio::test(start_paused = true)]
async fn cve_2026_28471_a_display_name_or_a_bare_name_is_nobody() {
    let gateway = gateway(AccessLists { people: people(&["@ann:test"]), ..AccessLists::default() }).await;
    for room in [gateway.room(), gateway.shared_room()] {
        writes(&room, "@mallory:evil.test", "@ann:test", "it is me").await;
        writes(&room, "@ann:evil.test", "Ann", "it is me").await;
        writes(&room, "@ann", "Ann", "it is me").await;
        writes(&room, "ann", "Ann", "it is me").await;
    }
    nothing_happened(&gateway).await;
}

/// The list contained a name that people can change and others can take over.
#[tokio::test(start_paused = true)]
async fn cve_2026_28480_a_name_that_changes_hands_gives_no_right() {
    let gateway = gateway(AccessLists { people: people(&["@ann:test"]), ..AccessLists::default() }).await;
    writes(&gateway.room(), "@1234567:test", "ann", "my name is ann now").await;
    nothing_happened(&gateway).await;
}

/// An empty id, and one that only ends like a listed one, were let in.
#[tokio::test(start_paused = true)]
async fn cve_2026_28446_an_empty_id_or_a_part_of_one_is_nobody() {
    let gateway =
        gateway(AccessLists { people: people(&["@ann:test", "@bob:test"]), ..AccessLists::default() }).await;
    for id in [
        "",
        " ",
        "@",
        ":",
        "nn:test",
        "@ann:tes",
        "@ann:test.evil",
        "x@ann:test",
        "@ann:test\0",
        "@ann:test,@bob:test",
    ] {
        writes(&gateway.room(), id, "Ann", "let me in").await;
    }
    nothing_happened(&gateway).await;
}

/// A person who was paired in a direct chat could run the commands of rooms.
#[tokio::test(start_paused = true)]
async fn cve_2026_44110_whoever_was_paired_in_a_direct_chat_is_a_stranger_in_rooms() {
    let gateway =
        gateway(AccessLists { people: people(&["@ann:test"]), pairing: true, ..AccessLists::default() })
            .await;
    gateway.store().write(|tx| tx.let_in(&"test".into(), &"@eve:test".into())).await.unwrap();
    let room = gateway.shared_room();
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    let before = room.settled().await;

    for command in ChatCommand::all() {
        let mut event =
            room.event("@eve", RoomEventKind::Message(IncomingMessage::text(format!("/{}", command.name()))));
        event.place = room.thread("$thread").place();
        room.does(event.clone()).await;
        event.place = room.place();
        room.does(event).await;
    }

    assert_eq!(room.settled().await, before);
    assert!(!agent.was_told_to_stop());
    agent.goes_on();
}

/// Some commands ran before the check of their sender.
#[tokio::test(start_paused = true)]
async fn hermes_44727_no_command_is_quicker_than_the_question_who_sent_it() {
    let lists = AccessLists {
        people: people(&["@ann:test"]),
        admin_commands: ChatCommand::all().collect(),
        ..AccessLists::default()
    };
    let gateway = gateway(lists).await;
    let room = gateway.room();
    for command in ChatCommand::all() {
        room.says("@ann", &format!("/{}", command.name())).await;
        // Slowly: otherwise the rate limit would answer.
        room.settled().await;
    }
    let shown = room.ours();
    assert_eq!(shown.len(), ChatCommand::all().count());
    assert!(shown.iter().all(|words| words.contains("Only admins can use")), "{shown:?}");
}

/// A platform without a list let everybody in.
#[tokio::test(start_paused = true)]
async fn hermes_37992_no_list_is_nobody() {
    let gateway = gateway(AccessLists::default()).await;
    gateway.room().says("@ann", "hello").await;
    nothing_happened(&gateway).await;
    gateway.reload_all(Rules::default());
    gateway.shared_room().says("@ann", "hello").await;
    nothing_happened(&gateway).await;
}

/// Permission in one room or account leaked into another.
#[tokio::test(start_paused = true)]
async fn what_one_place_remembers_no_other_place_hears() {
    let gateway = gateway(AccessLists { allow_all: true, ..AccessLists::default() }).await;
    gateway.direct_room("!ann").says("@ann", "my diary").await;
    gateway.direct_room("!ann").settled().await;
    gateway.direct_room("!bob").says("@bob", "what did ann say?").await;
    gateway.direct_room("!bob").settled().await;
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard.len(), 2);
    assert!(heard[1].history.is_empty());
    assert_ne!(heard[0].session, heard[1].session);
}

/// `/resume` accepted any session's id, so one person could continue another's conversation.
#[tokio::test(start_paused = true)]
async fn ghsa_7w36_4h66_4hx4_nobody_resumes_the_conversation_of_another() {
    let rules = AccountRules {
        limits: None,
        session: SessionRules { people: true, threads: true, ..SessionRules::default() },
        ..AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() })
    };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let (room, alone) = (gateway.shared_room(), gateway.direct_room("!ann"));
    // Ann has conversations in the room, in a thread of it and alone with us; her list has each of them.
    for (place, text) in [(&room, "my secret"), (&room.thread("t1"), "my thread"), (&alone, "my own")] {
        place.says("@ann", text).await;
        place.settled().await;
        place.says("@ann", "/new").await;
        place.settled().await;
    }
    let hers: Vec<String> = gateway.agent_itself().heard().into_iter().map(|heard| heard.session).collect();

    let bobs = [room.clone(), room.thread("t1"), gateway.direct_room("!bob")];
    for place in &bobs {
        for named in hers.iter().map(String::as_str).chain(["1", "2", "no such"]) {
            place.says("@bob", &format!("/resume {named}")).await;
            place.settled().await;
            let answer = place.ours().pop().unwrap();
            // To him, hers look exactly like ones that do not exist. He may name his own first one.
            let wanted = format!("There is no conversation {named} here. /sessions lists those there are.");
            let own = "“(untitled)” is the conversation you are in already.";
            assert_eq!(answer, if named == "1" { own } else { &wanted }, "{named}");
        }
        place.says("@bob", "/sessions").await;
        place.settled().await;
        assert!(!place.ours().pop().unwrap().contains("my "), "{}", place.now());
        place.says("@bob", "what do you know?").await;
        place.settled().await;
    }
    for heard in &gateway.agent_itself().heard()[hers.len()..] {
        assert!(heard.history.is_empty() && !hers.contains(&heard.session), "{heard:?}");
    }
}
