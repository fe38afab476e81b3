//! A stranger asks for access in a direct chat, and the operator answers at the command line.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::rules::AccountRules;
use talaria::store::{AuditFilter, AuditRow};
use talaria_platform::{PlatformErrorKind, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Room};

const MINUTE: Duration = Duration::from_secs(60);

/// Rules: only Ann is listed, and strangers may ask.
fn open_to_strangers() -> AccountRules {
    let people = BTreeSet::from([UserId::from("@ann:test")]);
    AccountRules {
        limits: None,
        ..AccountRules::listed(AccessLists { people, pairing: true, ..AccessLists::default() })
    }
}

async fn gateway() -> TestGateway {
    TestGateway::with(Setup { rules: open_to_strangers(), ..Setup::default() }).await
}

/// The code in our last message.
async fn code(room: &Room) -> String {
    room.settled().await;
    let shown = room.ours();
    let line = shown.last().and_then(|text| text.lines().find(|line| line.contains("pairing approve")));
    line.and_then(|line| line.split_whitespace().last()).expect("a code").to_owned()
}

/// Number of our messages in a room when nothing changes any more.
async fn answers(room: &Room) -> usize {
    room.settled().await;
    room.ours().len()
}

async fn audited(gateway: &TestGateway, action: &'static str) -> Vec<AuditRow> {
    let all = gateway.store().read(|tx| tx.audited(&AuditFilter::default())).await.unwrap();
    all.into_iter().filter(|row| row.action == action).collect()
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_waits_for_the_store_during_a_reload_is_judged_by_the_new_rules() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let (code, operator) = (code(&room).await, gateway.operator());

    let busy = gateway.store_is_busy().await;
    let approval = tokio::spawn(async move { operator.approves(&code).await });
    busy.holds_everybody_up().await;
    gateway.reload(AccountRules::listed(AccessLists::default()));
    busy.goes_on().await;

    let refused = approval.await.unwrap().unwrap_err();
    assert!(refused.contains("does not let strangers ask"), "{refused}");
    assert_eq!(gateway.operator().pairings().await, ["@eve:test waits"]);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_given_a_code_and_the_operator_lets_them_in() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");

    room.says("@eve", "hello").await;
    let code = code(&room).await;
    let approved = gateway.operator().approves(&code).await.unwrap();
    room.settled().await;
    room.says("@eve", "hello again").await;

    assert_snapshot!(room.settled().await.replace(&code, "CODE"), @r"
    @eve  hello
    note  I do not know you yet. Ask the person who runs me to type
          ```
          talaria pairing approve CODE
          ```
          within 60 minutes; then write again.
    note  You can talk to me now.
    @eve  hello again
    bot   ok
    ");
    assert_eq!(approved["pairing"]["person"], "@eve:test");
    assert_eq!(gateway.operator().pairings().await, ["@eve:test may talk"]);
    let [row] = &audited(&gateway, "pair").await[..] else { panic!("one decision") };
    assert_eq!((row.actor.as_str(), row.allowed, row.rule.as_str()), ("@eve:test", true, "operator"));
    assert_eq!(row.room, talaria::store::room_hash(&"test".into(), &"!eve".into()));
}

#[tokio::test(start_paused = true)]
async fn a_code_is_read_in_any_case_with_spaces_and_dashes_and_works_once() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let code = code(&room).await;
    let (first, second) =
        code.to_lowercase().split_once('-').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();

    gateway.operator().approves(&format!(" {first} - {second}\n")).await.unwrap();

    assert!(gateway.operator().approves(&code).await.unwrap_err().contains("nobody who waits has this code"));
}

#[tokio::test(start_paused = true)]
async fn the_code_is_nowhere_on_the_disk() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "a message that is on no disk either").await;
    let code = code(&room).await;

    let disk = gateway.disk();
    let has = |words: &str| memchr::memmem::find(&disk, words.as_bytes()).is_some();
    assert!(has("@eve:test"), "the request itself is there");
    assert!(!has(&code) && !has(&code.replace('-', "")));
    assert!(!has("on no disk either"), "nor is what a stranger wrote");
}

#[tokio::test(start_paused = true)]
async fn a_code_holds_for_an_hour() {
    let gateway = gateway().await;
    let rooms = [gateway.direct_room("!eve"), gateway.direct_room("!mallory")];
    rooms[0].says("@eve", "hello").await;
    let early = code(&rooms[0]).await;
    tokio::time::sleep(57 * MINUTE).await;
    gateway.operator().approves(&early).await.unwrap();

    rooms[1].says("@mallory", "hello").await;
    let late = code(&rooms[1]).await;
    tokio::time::sleep(60 * MINUTE).await;
    assert!(gateway.operator().approves(&late).await.unwrap_err().contains("nobody who waits"));
    assert_eq!(gateway.operator().pairings().await, ["@eve:test may talk"], "and is forgotten");
    assert_eq!(answers(&rooms[1]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn one_person_gets_one_code_in_ten_minutes_and_the_last_one_counts() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let first = code(&room).await;

    for word in ["hello?", "/help", "/nonsense", "anybody?"] {
        room.says("@eve", word).await;
        gateway.direct_room("!elsewhere").says("@eve", word).await;
    }
    assert_eq!(answers(&room).await, 1, "silence");
    assert_eq!(answers(&gateway.direct_room("!elsewhere")).await, 0);

    tokio::time::sleep(10 * MINUTE).await;
    room.says("@eve", "hello?").await;
    let second = code(&room).await;
    assert_eq!(answers(&room).await, 2);
    assert!(gateway.operator().approves(&first).await.is_err());
    gateway.operator().approves(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn three_may_wait_and_whoever_comes_later_finds_room_when_they_have_lapsed() {
    let gateway = gateway().await;
    for n in 0..3 {
        let room = gateway.direct_room(&format!("!{n}"));
        room.says(&format!("@stranger{n}"), "hello").await;
        assert_eq!(answers(&room).await, 1, "{n}");
    }
    let late = gateway.direct_room("!late");
    late.says("@late", "hello").await;
    assert_eq!(answers(&late).await, 0);

    tokio::time::sleep(60 * MINUTE).await;
    late.says("@late", "hello").await;
    assert_eq!(answers(&late).await, 1);
    assert_eq!(gateway.operator().pairings().await, ["@late:test waits"]);
}

/// Whatever they do, there are three rows, and the operator can make room by refusing one of them.
#[tokio::test(start_paused = true)]
async fn a_flood_of_strangers_fills_nothing() {
    let gateway = gateway().await;
    for n in 0..200 {
        gateway.direct_room(&format!("!{n}")).says(&format!("@stranger{n}"), "hello").await;
    }
    gateway.room().settled().await;
    let shown: usize = (0..200).map(|n| gateway.direct_room(&format!("!{n}")).ours().len()).sum();
    assert_eq!(shown, 3);
    assert_eq!(gateway.operator().pairings().await.len(), 3);

    gateway.operator().revokes("@stranger1:test").await.unwrap();
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    assert_eq!(answers(&room).await, 1);
}

#[tokio::test(start_paused = true)]
async fn five_wrong_codes_lock_everybody_out_for_an_hour_also_over_a_restart() {
    let mut gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let right = code(&room).await;
    let wrong = if right.starts_with('2') { "33333333" } else { "22222222" };

    // A text that does not have a code's form does not count as an attempt.
    for slip in ["", "hello", "ABCD-234O"] {
        assert_eq!(gateway.operator().approves(slip).await.unwrap_err(), "that is not a code");
    }
    for left in (1..5).rev() {
        let error = gateway.operator().approves(wrong).await.unwrap_err();
        assert!(error.contains(&format!("{left} more wrong ones")), "{error}");
    }
    let locked = |error: String| assert!(error.contains("too many codes were wrong"), "{error}");
    locked(gateway.operator().approves(wrong).await.unwrap_err());
    locked(gateway.operator().approves(&right).await.unwrap_err());
    gateway.restart().await;
    locked(gateway.operator().approves(&right).await.unwrap_err());
    tokio::time::sleep(50 * MINUTE).await;
    locked(gateway.operator().approves(&right).await.unwrap_err());

    tokio::time::sleep(15 * MINUTE).await;
    room.says("@eve", "hello").await;
    let right = code(&room).await;
    gateway.operator().approves(&right).await.unwrap();
    let rules: Vec<String> = audited(&gateway, "pair").await.into_iter().map(|row| row.rule).collect();
    let expected = [&["wrong code"; 5][..], &["locked"; 3], &["operator"]].concat();
    assert_eq!(rules, expected, "every try is on record");
}

#[tokio::test(start_paused = true)]
async fn a_right_code_makes_up_for_wrong_ones() {
    let gateway = gateway().await;
    for (who, room) in [("@eve", "!eve"), ("@mallory", "!mallory")] {
        let room = gateway.direct_room(room);
        room.says(who, "hello").await;
        let right = code(&room).await;
        let wrong = if right.starts_with('2') { "33333333" } else { "22222222" };
        for _ in 0..4 {
            gateway.operator().approves(wrong).await.unwrap_err();
        }
        gateway.operator().approves(&right).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn revoking_ends_what_they_asked_and_holds_at_once() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let code = code(&room).await;
    gateway.operator().approves(&code).await.unwrap();
    room.settled().await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    room.says("@eve", "plan my week").await;
    agent.is_hanging().await;
    room.says("@eve", "and the next one").await;
    room.shows("Let me think").await;

    let revoked = gateway.operator().revokes("@eve:test").await.unwrap();
    assert_eq!(revoked["stopped"], 2);
    room.says("@eve", "hello?").await;

    let shown = room.settled().await;
    assert!(agent.was_told_to_stop());
    assert!(shown.contains("Let me think\n      (stopped)\n"), "{shown}");
    assert_eq!(gateway.agent_itself().heard().len(), 1, "what waited never ran");
    assert!(room.ours().last().unwrap().contains("I do not know you yet"), "{shown}");
    let [row] = &audited(&gateway, "unpair").await[..] else { panic!("one decision") };
    assert_eq!((row.actor.as_str(), row.allowed), ("@eve:test", true), "what the operator did");
    assert!(
        gateway
            .operator()
            .revokes("@nobody:test")
            .await
            .unwrap_err()
            .contains("neither waits nor was let in")
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_was_let_in_stays_a_stranger_in_rooms() {
    let gateway = gateway().await;
    let direct = gateway.direct_room("!eve");
    direct.says("@eve", "hello").await;
    let code = code(&direct).await;
    gateway.operator().approves(&code).await.unwrap();

    let room = gateway.shared_room();
    for text in ["hello", "/help", "/stop", "/approve always"] {
        room.says("@eve", text).await;
        room.thread("$thread").says("@eve", text).await;
    }
    assert_eq!(answers(&room).await, 0);
    assert!(gateway.agent_itself().heard().is_empty());
    assert!(!room.invites("@eve").await);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_given_a_code_in_a_room_or_as_a_program_or_where_pairing_is_off() {
    let gateway = gateway().await;
    let (direct, room) = (gateway.direct_room("!eve"), gateway.shared_room());
    room.says("@eve", "hello").await;
    direct.a_bot_says("@eve", "hello").await;
    direct.a_forger_says("@eve", "hello").await;
    gateway.reload(AccountRules::listed(AccessLists::default()));
    direct.says("@eve", "hello").await;

    assert_eq!((answers(&direct).await, answers(&room).await), (0, 0));
    assert!(gateway.operator().pairings().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_pairing_was_switched_off_a_code_lets_nobody_in() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let code = code(&room).await;
    gateway.reload(AccountRules::listed(AccessLists::default()));

    let error = gateway.operator().approves(&code).await.unwrap_err();

    assert!(error.contains("`platforms.test` does not let strangers ask"), "{error}");
    assert_eq!(gateway.operator().pairings().await, ["@eve:test waits"]);
    room.says("@eve", "hello").await;
    assert_eq!(answers(&room).await, 1, "only the code from before");
}

/// The code is only in memory, so one that did not arrive is worth nothing. It was a request all the same: a stranger
/// whose chat accepts no message must not make us try again with each word.
#[tokio::test(start_paused = true)]
async fn a_code_that_did_not_arrive_is_void_and_the_next_comes_after_ten_minutes() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Rejected));
    room.says("@eve", "hello").await;
    assert_eq!(answers(&room).await, 0);
    assert!(gateway.operator().pairings().await.is_empty());
    room.says("@eve", "hello?").await;
    assert_eq!(answers(&room).await, 0);

    tokio::time::sleep(10 * MINUTE).await;
    room.says("@eve", "hello?").await;
    let code = code(&room).await;
    gateway.operator().approves(&code).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_operator_refused_is_not_made_again_at_once() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    room.says("@eve", "hello").await;
    let code = code(&room).await;
    gateway.operator().revokes("@eve:test").await.unwrap();

    room.says("@eve", "hello?").await;
    assert_eq!(answers(&room).await, 1, "silence");
    assert!(gateway.operator().pairings().await.is_empty());
    assert!(gateway.operator().approves(&code).await.unwrap_err().contains("nobody who waits"));
    let error = gateway.operator().revokes("@eve:test").await.unwrap_err();
    assert!(error.contains("neither waits nor was let in"), "{error}");

    tokio::time::sleep(10 * MINUTE).await;
    room.says("@eve", "hello?").await;
    assert_eq!(answers(&room).await, 2);
}

/// Strangers whose chats accept no message take no place among those who wait, but their number is limited too.
#[tokio::test(start_paused = true)]
async fn a_flood_of_strangers_whose_chats_take_nothing_has_an_end() {
    let gateway = gateway().await;
    for n in 0..150 {
        gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Rejected));
        gateway.direct_room(&format!("!{n}")).says(&format!("@stranger{n}"), "hello").await;
        gateway.chat().is_quiet(Duration::from_millis(200)).await;
    }
    assert_eq!(gateway.chat().requests().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_brings_us_into_one_room_and_strangers_into_three() {
    let gateway = gateway().await;
    assert!(gateway.direct_room("!eve").invites("@eve").await);
    assert!(!gateway.direct_room("!eve2").invites("@eve").await, "one room each");
    assert!(gateway.direct_room("!eve").invites("@eve").await, "the same again");
    // An invitation is no request yet, so the first message is answered.
    gateway.direct_room("!eve").says("@eve", "hello").await;
    assert_eq!(answers(&gateway.direct_room("!eve")).await, 1);
    assert!(!gateway.direct_room("!eve2").invites("@eve").await);

    assert!(gateway.direct_room("!mallory").invites("@mallory").await);
    assert!(gateway.direct_room("!trudy").invites("@trudy").await);
    assert_eq!(gateway.operator().pairings().await, ["@eve:test waits"]);
    assert!(!gateway.direct_room("!late").invites("@late").await, "three wait");
    assert!(gateway.direct_room("!ann").invites("@ann").await, "Ann is no stranger");
    gateway.direct_room("!late").says("@late", "hello").await;
    assert_eq!(answers(&gateway.direct_room("!late")).await, 0);

    // By then, strangers who only invited have lost their place.
    tokio::time::sleep(10 * MINUTE).await;
    assert!(gateway.direct_room("!late").invites("@late").await);
}

/// The network delivers a message a second time: that is no second request.
#[tokio::test(start_paused = true)]
async fn the_same_message_again_gives_no_other_code() {
    let mut gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    let hello = room.says("@eve", "hello").await;
    let code = code(&room).await;
    tokio::time::sleep(11 * MINUTE).await;
    room.delivers_again(&hello).await;
    gateway.restart().await;
    room.delivers_again(&hello).await;
    assert_eq!(answers(&room).await, 1);
    gateway.operator().approves(&code).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hostile_name_is_one_short_line_to_the_operator() {
    let gateway = gateway().await;
    let room = gateway.direct_room("!eve");
    let mut event = room.event(
        "@eve",
        talaria_platform::RoomEventKind::Message(talaria_platform::IncomingMessage::text("hello")),
    );
    event.author.name = Some(format!("Ann\n\u{1b}[2J\u{202e}{}", "x".repeat(10_000)));
    room.does(event).await;

    let list = gateway.store().read(|tx| tx.pairings()).await.unwrap();
    assert_eq!(list[0].name.as_deref(), Some(format!("Ann [2J{}", "x".repeat(53)).as_str()));
}
