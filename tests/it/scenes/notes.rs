//! Notes: `/memory` shows and changes them, and they never cross people, rooms or accounts.

use insta::assert_snapshot;
use talaria::agent::NoteScope;

use crate::support::gateway::TestGateway;
use crate::support::room::Room;

/// Says all of this, and returns our last message.
async fn talk(room: &Room, lines: &[(&str, &str)]) -> String {
    for (who, text) in lines {
        room.says(who, text).await;
        room.settled().await;
    }
    room.ours().pop().unwrap_or_default()
}

fn person(name: &str) -> NoteScope {
    NoteScope::Person { account: "test".into(), person: format!("{name}:test") }
}

fn room_of(room: &Room) -> NoteScope {
    NoteScope::Room { account: "test".into(), room: room.place().room }
}

#[tokio::test(start_paused = true)]
async fn a_person_lists_adds_and_forgets_their_notes() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(
        &room,
        &[
            ("@ann", "/memory"),
            ("@ann", "/memory add likes\ntea"),
            ("@ann", "/memory ADD lives in Rome"),
            ("@ann", "/memory add likes tea"),
            ("@ann", "/memory"),
            ("@ann", "/memory forget 1"),
            ("@ann", "/memory forget 2"),
            ("@ann", "/memory forget it"),
            ("@ann", "/memory forget"),
            ("@ann", "/memory add"),
            ("@ann", "/memory please"),
            ("@ann", "/memory"),
        ],
    )
    .await;
    assert_snapshot!(room.now(), @r"
    @ann  /memory
    note  Notes about you, for your direct chats with me: none yet. `/memory add TEXT` adds one.
    @ann  /memory add likes
          tea
    note  Noted as number 1: likes tea
    @ann  /memory ADD lives in Rome
    note  Noted as number 2: lives in Rome
    @ann  /memory add likes tea
    note  Noted as number 1: likes tea
    @ann  /memory
    note  Notes about you, for your direct chats with me:
          1. likes tea
          2. lives in Rome
          `/memory forget NUMBER` removes a note, `/memory add TEXT` adds one.
    @ann  /memory forget 1
    note  Forgotten: likes tea
    @ann  /memory forget 2
    note  There is no note 2, so nothing was changed. /memory lists the notes with their numbers.
    @ann  /memory forget it
    note  There is no note it, so nothing was changed. /memory lists the notes with their numbers.
    @ann  /memory forget
    note  I understand `/memory`, `/memory forget NUMBER` and `/memory add TEXT`. Nothing was changed.
    @ann  /memory add
    note  I understand `/memory`, `/memory forget NUMBER` and `/memory add TEXT`. Nothing was changed.
    @ann  /memory please
    note  I understand `/memory`, `/memory forget NUMBER` and `/memory add TEXT`. Nothing was changed.
    @ann  /memory
    note  Notes about you, for your direct chats with me:
          1. lives in Rome
          `/memory forget NUMBER` removes a note, `/memory add TEXT` adds one.
    ");
}

#[tokio::test(start_paused = true)]
async fn notes_of_a_person_are_shown_to_nobody_else_and_in_no_room() {
    let gateway = TestGateway::start().await;
    let (ann, bob, all) = (gateway.direct_room("!ann"), gateway.direct_room("!bob"), gateway.shared_room());
    talk(&ann, &[("@ann", "/memory add Ann's secret")]).await;
    talk(&bob, &[("@bob", "/memory add Bob's secret")]).await;
    talk(&all, &[("@ann", "/memory add the room meets on Monday")]).await;

    for (room, who, own) in [
        (&ann, "@ann", "Ann's secret"),
        (&bob, "@bob", "Bob's secret"),
        (&all, "@ann", "the room meets on Monday"),
        (&all, "@bob", "the room meets on Monday"),
        // Another direct chat of Ann.
        (&gateway.direct_room("!ann2"), "@ann", "Ann's secret"),
    ] {
        let shown = talk(room, &[(who, "/memory")]).await;
        assert!(shown.contains(&format!("1. {own}")) && !shown.contains("2."), "{who}: {shown}");
    }
    // Nobody forgets the notes of another by a number.
    talk(&bob, &[("@bob", "/memory forget 1"), ("@bob", "/memory forget 1")]).await;
    talk(&all, &[("@bob", "/memory forget 1"), ("@bob", "/memory forget 1")]).await;
    let left = gateway.store().read(move |tx| {
        Ok((
            tx.notes(&person("@ann"))?.len(),
            tx.notes(&person("@bob"))?.len(),
            tx.notes(&room_of(&all))?.len(),
        ))
    });
    assert_eq!(left.await.unwrap(), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_agent_gets_the_notes_of_the_place_that_is_asked_in() {
    let gateway = TestGateway::start().await;
    let (direct, shared) = (gateway.direct_room("!ann"), gateway.shared_room());
    talk(&direct, &[("@ann", "one"), ("@ann", "/retry")]).await;
    talk(&shared, &[("@ann", "two"), ("@bob", "three")]).await;
    // Bob asks Ann's question again: he is answerable, and it is the room's notes all the same.
    talk(&shared.thread("$thread"), &[("@ann", "four"), ("@bob", "/retry")]).await;
    let notes: Vec<_> = gateway.agent_itself().heard().into_iter().map(|heard| heard.notes).collect();
    let (ann, room) = (Some(person("@ann")), Some(room_of(&shared)));
    assert_eq!(notes, [ann.clone(), ann, room.clone(), room.clone(), room.clone(), room]);
}

#[tokio::test(start_paused = true)]
async fn notes_survive_a_new_conversation_and_a_restart() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(&room, &[("@ann", "/memory add likes tea"), ("@ann", "hello"), ("@ann", "/new")]).await;
    gateway.restart().await;
    assert!(talk(&room, &[("@ann", "/memory")]).await.contains("1. likes tea"));
}

#[tokio::test(start_paused = true)]
async fn a_note_that_is_too_long_or_one_too_many_is_refused() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let long = format!("/memory add {}", "x".repeat(1001));
    assert!(talk(&room, &[("@ann", &long)]).await.contains("at most 1000 characters"));
    for n in 0..8 {
        talk(&room, &[("@ann", &format!("/memory add {n}{}", "x".repeat(999)))]).await;
    }
    let full = format!("/memory add {}", "y".repeat(500));
    assert!(talk(&room, &[("@ann", &full)]).await.starts_with("There is no room for another note"));
}
