//! The conversations of a place: listing them, resuming one, their titles, and their token usage.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::chat_command::ChatCommand;
use talaria::rules::{AccountRules, SessionRules};
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

/// People write one after the other; each waits until the room has settled.
async fn talk(room: &Room, said: &[(&str, &str)]) {
    for (who, text) in said {
        room.says(who, text).await;
        room.settled().await;
    }
}

/// The room's text, with `TIME` for every time of the day.
fn timeless(shown: &str) -> String {
    let digits = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    };
    let mut rest = shown;
    let mut text = String::new();
    while let Some(first) = rest.chars().next() {
        match rest.get(..16).filter(|head| digits(head, "0000-00-00 00:00")) {
            Some(head) => {
                text.push_str("TIME");
                rest = &rest[head.len()..];
            }
            None => {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    text
}

/// Our last message.
fn last(room: &Room) -> String {
    timeless(&room.ours().pop().unwrap_or_default())
}

async fn with_keys(session: SessionRules) -> TestGateway {
    let setup = Setup::default();
    TestGateway::with(Setup { rules: AccountRules { session, ..setup.rules.clone() }, ..setup }).await
}

#[tokio::test(start_paused = true)]
async fn new_keeps_the_old_conversation_and_resume_goes_back_to_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();

    talk(
        &room,
        &[
            ("@ann", "plan my week,\nplease"),
            ("@ann", "and sunday"),
            ("@ann", "/new what is tea?"),
            ("@ann", "/sessions"),
            ("@ann", "/resume 1"),
            ("@ann", "go on"),
            ("@ann", "/sessions"),
        ],
    )
    .await;

    assert_snapshot!(timeless(&room.now()), @"
    @ann  plan my week,
          please
    bot   ok
    @ann  and sunday
    bot   ok
    @ann  /new what is tea?
    bot   ok
    @ann  /sessions
    note  Conversations here, the latest first:
          - 2: “what is tea?”, last used TIME UTC, messages: 2 (this one)
          - 1: “plan my week, please”, last used TIME UTC, messages: 4
          /resume and a number goes back to one of them.
    @ann  /resume 1
    note  Back in “plan my week, please” (last used TIME UTC, messages: 4). Just go on.
    @ann  go on
    bot   ok
    @ann  /sessions
    note  Conversations here, the latest first:
          - 1: “plan my week, please”, last used TIME UTC, messages: 6 (this one)
          - 2: “what is tea?”, last used TIME UTC, messages: 2
          /resume and a number goes back to one of them.
    ");
    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[3].session, heard[0].session, "the agent is asked in its first session again");
    assert_ne!(heard[2].session, heard[0].session);
    let before: Vec<_> = heard[3].history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(before, ["plan my week,\nplease", "ok", "and sunday", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_number_means_the_same_conversation_for_ever() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(&room, &[("@ann", "one"), ("@ann", "/new two"), ("@ann", "/new three"), ("@ann", "/sessions")])
        .await;

    // Between the list and the choice a person begins another conversation, and the gateway restarts.
    talk(&room, &[("@ann", "/resume 1"), ("@ann", "/new four")]).await;
    gateway.restart().await;
    talk(&room, &[("@ann", "/resume 2")]).await;

    assert_snapshot!(last(&room), @"Back in “two” (last used TIME UTC, messages: 2). Just go on.");
}

#[tokio::test(start_paused = true)]
async fn a_list_has_ten_and_says_how_many_more() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for number in 1..=12 {
        talk(&room, &[("@ann", &format!("/new question {number}"))]).await;
    }
    // One of the oldest is the current one again, so it is on the list.
    talk(&room, &[("@ann", "/resume 2"), ("@ann", "/sessions")]).await;

    assert_snapshot!(last(&room), @"
    Conversations here, the latest first:

    - 2: “question 2”, last used TIME UTC, messages: 2 (this one)
    - 12: “question 12”, last used TIME UTC, messages: 2
    - 11: “question 11”, last used TIME UTC, messages: 2
    - 10: “question 10”, last used TIME UTC, messages: 2
    - 9: “question 9”, last used TIME UTC, messages: 2
    - 8: “question 8”, last used TIME UTC, messages: 2
    - 7: “question 7”, last used TIME UTC, messages: 2
    - 6: “question 6”, last used TIME UTC, messages: 2
    - 5: “question 5”, last used TIME UTC, messages: 2
    - 4: “question 4”, last used TIME UTC, messages: 2
    - older ones that are not shown: 2

    /resume and a number goes back to one of them.
    ");
}

#[tokio::test(start_paused = true)]
async fn conversations_in_which_nothing_was_asked_are_not_listed() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(&room, &[("@ann", "/new"), ("@ann", "/new"), ("@ann", "hello"), ("@ann", "/new")]).await;
    talk(&room, &[("@ann", "/resume 1"), ("@ann", "/sessions")]).await;

    assert_snapshot!(last(&room), @"
    Conversations here, the latest first:

    - 1: “hello”, last used TIME UTC, messages: 2 (this one)

    /resume and a number goes back to one of them.
    ");
}

#[tokio::test(start_paused = true)]
async fn resume_says_what_it_needs() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(
        &room,
        &[
            ("@ann", "hello"),
            ("@ann", "/resume"),
            ("@ann", "/resume 1"),
            ("@ann", "/resume 7"),
            ("@ann", "/resume -1"),
            ("@ann", "/resume 99999999999999999999999"),
        ],
    )
    .await;

    assert_snapshot!(timeless(&room.now()), @"
    @ann  hello
    bot   ok
    @ann  /resume
    note  Back to which one? /sessions lists them; then send /resume with its number.
    @ann  /resume 1
    note  “hello” is the conversation you are in already.
    @ann  /resume 7
    note  There is no conversation 7 here. /sessions lists those there are.
    @ann  /resume -1
    note  There is no conversation -1 here. /sessions lists those there are.
    @ann  /resume 99999999999999999999999
    note  There is no conversation 99999999999999999999999 here. /sessions lists those there are.
    ");
    talk(&room, &[("@ann", "/resume \u{202e}x' OR 1=1 --\nand more")]).await;
    assert_snapshot!(last(&room), @"There is no conversation x' OR 1=1 -- and more here. /sessions lists those there are.");
}

#[tokio::test(start_paused = true)]
async fn resume_by_id_and_not_while_an_answer_runs() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    talk(&room, &[("@ann", "hello")]).await;
    let first = gateway.agent_itself().heard()[0].session.clone();
    let agent = gateway.agent().when("long").says(["Well"]).then_hangs();
    room.says("@ann", "/new something long").await;
    agent.is_hanging().await;
    room.settled().await;

    let resume = format!("/resume {first}");
    talk(&room, &[("@ann", &resume), ("@ann", "/stop"), ("@ann", &resume)]).await;

    assert_snapshot!(timeless(&room.now()).replace(&first, "ID"), @"
    @ann  hello
    bot   ok
    @ann  /new something long
    bot   Well
          (stopped)
    @ann  /resume ID
    note  An answer is still running. /stop ends it; then try again.
    @ann  /stop
    @ann  /resume ID
    note  Back in “hello” (last used TIME UTC, messages: 2). Just go on.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_title_is_one_short_line() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let long = format!("/title {}", "x".repeat(200));
    talk(
        &room,
        &[
            ("@ann", "hello"),
            ("@ann", "/title"),
            ("@ann", "/title  My week\n- 9: forged"),
            ("@ann", "/title"),
            ("@ann", "/sessions"),
        ],
    )
    .await;
    assert_snapshot!(timeless(&room.now()), @"
    @ann  hello
    bot   ok
    @ann  /title
    note  This conversation has no name of its own; lists show it as “hello”. /title and some words name it.
    @ann  /title  My week
          - 9: forged
    note  This conversation is called “My week - 9: forged” now.
    @ann  /title
    note  This conversation is called “My week - 9: forged”. /title and other words rename it.
    @ann  /sessions
    note  Conversations here, the latest first:
          - 1: “My week - 9: forged”, last used TIME UTC, messages: 2 (this one)
          /resume and a number goes back to one of them.
    ");

    talk(&room, &[("@ann", "/title \u{202e}backwards\u{7}")]).await;
    assert_eq!(last(&room), "This conversation is called “backwards” now.");
    talk(&room, &[("@ann", &long)]).await;
    assert_eq!(last(&room), format!("This conversation is called “{}” now.", "x".repeat(80)));
}

#[tokio::test(start_paused = true)]
async fn whoami_says_who_somebody_is_here_and_what_they_may_not_do() {
    let ids = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect::<BTreeSet<_>>();
    let lists = AccessLists {
        admins: ids(&["@ann:test"]),
        rooms: ids(&["@bob:test"]),
        allow_all: true,
        admin_commands: [ChatCommand::Undo, ChatCommand::Resume].into(),
        ..AccessLists::default()
    };
    let rules = AccountRules { limits: None, ..AccountRules::listed(lists) };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = gateway.shared_room();
    talk(&room, &[("@ann", "hello"), ("@ann", "/whoami"), ("@bob", "/whoami"), ("@eve", "/whoami")]).await;

    let session = gateway.agent_itself().heard()[0].session.clone();
    assert_snapshot!(room.now().replace(&session, "SESSION"), @"
    @ann  hello
    bot   ok
    @ann  /whoami
    note  You are `@ann:test`. I answer you because you are an admin. This is a room, conversation 1 (SESSION).
          You may use every command.
    @bob  /whoami
    note  You are `@bob:test`. I answer you because a list names you. This is a room, conversation 1 (SESSION).
          Only admins may use here: /undo, /resume, /codex-runtime, /approve always.
    @eve  /whoami
    note  You are `@eve:test`. I answer you because I answer everybody. This is a room, conversation 1 (SESSION).
          Only admins may use here: /undo, /resume, /codex-runtime, /approve always.
    ");

    let direct = gateway.direct_room("!eve");
    talk(&direct, &[("@eve", "/whoami")]).await;
    assert!(last(&direct).contains("This is a direct chat, conversation 1 ("), "{}", last(&direct));

    // An account has an owner from the start or never.
    let gateway = TestGateway::with(Setup { rules: AccountRules::owner(), ..Setup::default() }).await;
    let direct = gateway.direct_room("!eve");
    talk(&direct, &[("@eve", "/whoami")]).await;
    assert!(last(&direct).contains("because you are the owner"), "{}", last(&direct));
    assert!(last(&direct).ends_with("You may use every command."), "{}", last(&direct));
}

#[tokio::test(start_paused = true)]
async fn usage_counts_the_conversation_and_the_person() {
    let gateway = TestGateway::start().await;
    let (room, other) = (gateway.shared_room(), gateway.direct_room("!ann"));
    for (input, output) in [(100, 10), (200, 20), (400, 40), (800, 80)] {
        gateway.agent().says(["so"]).uses(input, output);
    }
    talk(&other, &[("@ann", "long ago")]).await;
    tokio::time::sleep(Duration::from_secs(25 * 60 * 60)).await;
    talk(&other, &[("@ann", "today")]).await;
    talk(&room, &[("@ann", "from Ann"), ("@bob", "from Bob"), ("@ann", "/usage")]).await;
    assert_snapshot!(last(&room), @"
    This conversation: questions: 2, tokens in: 1200, tokens out: 120.
    You, in the last 24 hours: questions: 2, tokens in: 600, tokens out: 60.
    You, in the last 30 days: questions: 3, tokens in: 700, tokens out: 70.
    ");

    // Absurd numbers of a hostile upstream break nothing.
    for _ in 0..2 {
        gateway.agent().says(["so"]).uses(u64::MAX, u64::MAX);
        talk(&room, &[("@bob", "more")]).await;
    }
    tokio::time::sleep(Duration::from_secs(31 * 24 * 60 * 60)).await;
    talk(&room, &[("@bob", "/usage")]).await;
    assert_snapshot!(last(&room), @"
    This conversation: questions: 4, tokens in: 2000001200, tokens out: 2000000120.
    You, in the last 24 hours: questions: 0, tokens in: 0, tokens out: 0.
    You, in the last 30 days: questions: 0, tokens in: 0, tokens out: 0.
    ");
}

#[tokio::test(start_paused = true)]
async fn by_default_threads_and_people_of_a_room_share_a_conversation() {
    let gateway = with_keys(SessionRules::default()).await;
    let room = gateway.shared_room();
    talk(&room, &[("@ann", "I am Ann")]).await;
    talk(&room.thread("t1"), &[("@bob", "who is here?")]).await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[0].session, heard[1].session);
    assert_eq!(heard[1].history.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn threads_have_memories_of_their_own_where_that_is_set() {
    let gateway = with_keys(SessionRules { threads: true, ..SessionRules::default() }).await;
    let room = gateway.shared_room();
    let (one, two) = (room.thread("t1"), room.thread("t2"));
    talk(&room, &[("@ann", "in the room")]).await;
    talk(&one, &[("@ann", "in the first")]).await;
    talk(&two, &[("@ann", "in the second")]).await;
    talk(&one, &[("@bob", "and again")]).await;

    let heard = gateway.agent_itself().heard();
    assert!(heard[1].history.is_empty() && heard[2].history.is_empty());
    assert_eq!(heard[3].session, heard[1].session, "people of a thread share it");
    assert_eq!(heard[3].history.len(), 2);
    talk(&two, &[("@ann", "/sessions")]).await;
    assert_snapshot!(last(&room), @"
    Conversations here, the latest first:

    - 1: “in the second”, last used TIME UTC, messages: 2 (this one)

    /resume and a number goes back to one of them.
    ");
}

#[tokio::test(start_paused = true)]
async fn people_have_memories_of_their_own_where_that_is_set() {
    let gateway = with_keys(SessionRules { people: true, ..SessionRules::default() }).await;
    let room = gateway.shared_room();
    talk(&room, &[("@ann", "mine"), ("@bob", "mine too")]).await;
    talk(&room.thread("t1"), &[("@ann", "in a thread")]).await;

    let heard = gateway.agent_itself().heard();
    assert!(heard[1].history.is_empty());
    assert_ne!(heard[1].session, heard[0].session);
    assert_eq!(heard[2].session, heard[0].session, "threads of a person share it");
}

#[tokio::test(start_paused = true)]
async fn one_persons_new_does_not_end_anothers_conversation() {
    let gateway = with_keys(SessionRules { people: true, ..SessionRules::default() }).await;
    let room = gateway.shared_room();
    talk(&room, &[("@ann", "mine"), ("@bob", "mine too"), ("@bob", "/new"), ("@ann", "go on")]).await;

    let heard = gateway.agent_itself().heard();
    assert_eq!(heard[2].session, heard[0].session);
}
