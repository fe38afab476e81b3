//! A listed person is not obeyed, because the sender may be an impostor: the room says so once, with what to do.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::{AskChoice, DenyReason};
use talaria::rules::AccountRules;
use talaria::store::{AuditFilter, AuditRow};
use talaria_platform::{AccountId, AuthorTrust, PlatformErrorKind, RateLimit, RoomEventKind, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::logged::Logged;
use crate::support::room::{Gate, Shown};

/// Ann and Bob may talk, but only from signed devices and in encrypted rooms.
async fn careful() -> TestGateway {
    careful_with(Setup::default()).await
}

async fn careful_with(setup: Setup) -> TestGateway {
    let people: BTreeSet<UserId> = ["@ann:test".into(), "@bob:test".into()].into();
    let (trust, secure_only) = (Some(AuthorTrust::CrossSigned), true);
    let rules = AccountRules::listed(AccessLists { people, trust, secure_only, ..AccessLists::default() });
    TestGateway::with(Setup { rules, ..setup }).await
}

async fn rules_of(gateway: &TestGateway) -> String {
    let rows = gateway.store().read(|tx| tx.audited(&AuditFilter::default())).await.unwrap();
    let line = |row: &AuditRow| format!("{} {} {} ({})\n", row.actor, row.action, row.allowed, row.rule);
    rows.iter().map(line).collect()
}

/// Number of messages that are marked as not read.
fn locks(gateway: &TestGateway) -> usize {
    let is_lock = |shown: &Shown| matches!(shown, Shown::Mark(_, mark) if mark == "🔒");
    gateway.chat().signals().iter().filter(|shown| is_lock(shown)).count()
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_not_signed_is_told_so_once() {
    let logged = Logged::listen();
    let gateway = careful().await;
    let (room, other) = (gateway.shared_room(), gateway.room());
    for text in ["one", "two"] {
        room.says_on("@ann", "PHONE", AuthorTrust::Network, text).await;
    }
    other.says_on("@ann", "PHONE", AuthorTrust::Network, "three").await;
    room.says_on("@ann", "LAPTOP", AuthorTrust::Network, "four").await;
    room.says_on("@ann", "LAPTOP", AuthorTrust::CrossSigned, "five").await;

    let shown = room.settled().await;
    for device in ["PHONE", "LAPTOP"] {
        assert_eq!(shown.matches(&format!("the device `{device}` is not signed")).count(), 1, "{shown}");
    }
    assert!(shown.contains("enter your recovery key") && shown.contains("bot   ok"), "{shown}");
    assert_eq!(other.settled().await, "@ann  three\n", "it is about the device, not about the room");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
    assert_eq!(logged.with("a device is not trusted").len(), 2);
    // Such a device cannot read the notice, but it sees the reaction; the next one comes only after a while.
    assert_eq!(locks(&gateway), 2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    room.says_on("@ann", "PHONE", AuthorTrust::Network, "six").await;
    room.settled().await;
    assert_eq!(locks(&gateway), 3);
    assert_snapshot!(rules_of(&gateway).await, @"
    @ann:test message false (untrusted)
    @ann:test message false (untrusted)
    @ann:test message false (untrusted)
    @ann:test message false (untrusted)
    @ann:test message true (listed)
    @ann:test message false (untrusted)
    ");
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_waited_for_the_network_when_the_process_died_comes_with_the_next_one() {
    let slow = Some(RateLimit { per_second: 0.1, burst: 1.0 });
    let mut gateway = careful_with(Setup { rate: slow, limit: slow, ..Setup::default() }).await;
    gateway
        .room()
        .says_on("@ann", "LAPTOP", AuthorTrust::CrossSigned, "this takes what the network allows")
        .await;
    gateway.room().shows("bot   ok").await;
    gateway.room().says_on("@ann", "PHONE", AuthorTrust::Network, "one").await;
    assert_eq!(locks(&gateway), 0);
    gateway.kill().await;
    let opening = Gate::default();
    gateway.chat().next_opening(opening.clone());
    gateway.restart().await;
    // Enough time for everything that the outbox could send before the account is open.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(locks(&gateway), 0);
    opening.open();
    gateway.room().settled().await;
    assert_eq!(locks(&gateway), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_tried_until_it_is_there_and_nobody_waits_for_it() {
    let gateway = careful().await;
    let room = gateway.room();
    for kind in [
        PlatformErrorKind::Retry { after: None },
        PlatformErrorKind::Retry { after: Some(Duration::from_secs(3)) },
    ] {
        for _ in 0..2 {
            gateway.chat().reaction_fails(kind);
        }
    }
    room.says_on("@ann", "PHONE", AuthorTrust::Network, "one").await;
    room.shows("the device `PHONE` is not signed").await;
    room.says_on("@ann", "LAPTOP", AuthorTrust::CrossSigned, "two").await;
    room.shows("bot   ok").await;
    assert_eq!(locks(&gateway), 0);
    room.settled().await;
    assert_eq!(locks(&gateway), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_the_network_refuses_is_given_up() {
    for kind in [PlatformErrorKind::Gone, PlatformErrorKind::Rejected, PlatformErrorKind::Unsupported] {
        let gateway = careful().await;
        gateway.chat().reaction_fails(kind);
        gateway.room().says_on("@ann", "PHONE", AuthorTrust::Network, "one").await;
        gateway.room().settled().await;
        assert_eq!(locks(&gateway), 0);
        let account = AccountId::from("test");
        let left = gateway.store().read(move |tx| tx.pending(&account, 0, 10)).await.unwrap();
        assert_eq!(left, [], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_verified_is_told_whom_to_ask() {
    let people: BTreeSet<UserId> = ["@ann:test".into()].into();
    let rules = AccountRules::listed(AccessLists {
        people,
        trust: Some(AuthorTrust::Verified),
        ..AccessLists::default()
    });
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = gateway.room();
    room.says_on("@ann", "PHONE", AuthorTrust::CrossSigned, "hello?").await;
    assert_snapshot!(room.settled().await, @"
    @ann  hello?
    note  I did not read this: the person who runs me has not verified you yet. Please ask them to; they do it with `talaria matrix verify`. Then send it again.
    ");
    room.says_on("@ann", "PHONE", AuthorTrust::Verified, "hello!").await;
    assert!(room.settled().await.contains("bot   ok"));
}

#[tokio::test(start_paused = true)]
async fn a_stranger_learns_nothing_of_devices_or_encryption() {
    let gateway = careful().await;
    let room = gateway.room();
    room.says_on("@eve", "PHONE", AuthorTrust::Network, "hello?").await;
    room.says("@eve", "hello?").await;
    room.does(room.event("@eve", RoomEventKind::Unreadable)).await;
    room.settled().await;
    assert!(gateway.chat().requests().is_empty());
    assert_snapshot!(rules_of(&gateway).await, @"
    @eve:test message false (not listed)
    @eve:test message false (not listed)
    ");
}

#[tokio::test(start_paused = true)]
async fn whoever_writes_in_somebodys_name_is_never_answered_and_the_operator_is_warned() {
    let logged = Logged::listen();
    let gateway = careful().await;
    let room = gateway.room();
    for text in ["give me the key", "now", "/stop"] {
        room.says_on("@ann", "PHONE", AuthorTrust::Violated, text).await;
    }
    room.says_on("@eve", "PHONE", AuthorTrust::Violated, "hello?").await;
    room.settled().await;
    assert!(gateway.chat().requests().is_empty());
    let warned = logged.with("the keys are not this person's");
    assert!(warned.len() == 1 && warned[0].contains("@ann:test"), "{warned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_room_without_encryption_is_told_why_nobody_is_answered_there() {
    let gateway = careful().await;
    let room = gateway.shared_room();
    for (who, text) in [("@ann", "hello?"), ("@bob", "hello??"), ("@ann", "/help"), ("@eve", "me too")] {
        room.says(who, text).await;
    }
    let asked = room.says("@ann", "last try").await;
    room.edits("@ann", &asked, "really").await;

    assert_snapshot!(room.settled().await, @"
    @ann  hello?
    @bob  hello??
    @ann  /help
    @eve  me too
    @ann  last try
    note  I answer only in encrypted rooms, so that nobody on the way can read along. Turn on encryption in the settings of this room, then write again; or write to me in an encrypted room.
    ");
    assert!(gateway.agent_itself().heard().is_empty());
    let other = gateway.room();
    other.says("@ann", "and here?").await;
    assert!(other.settled().await.contains("only in encrypted rooms"));
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_never_encrypted_and_denies_all_the_same() {
    let gateway = careful().await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build").says(["As you like."]);
    room.says_on("@ann", "PHONE", AuthorTrust::CrossSigned, "tidy up").await;
    let asked = room.is_asked("run a command").await;
    room.reacts("@ann", &asked.message, "✅").await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.reacts("@ann", &asked.message, "❌").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().answers()[0].choice, AskChoice::Deny(DenyReason::Person));
    assert!(room.now().contains("only in encrypted rooms"), "an approval in the clear is none");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_asked_for_again_but_not_without_end() {
    let gateway = careful().await;
    let room = gateway.shared_room();
    let unreadable = |who: &str| room.event(who, RoomEventKind::Unreadable);
    for who in ["@ann", "@ann", "@bob"] {
        room.does(unreadable(who)).await;
    }
    assert_snapshot!(room.settled().await, @"note  A message could not be read: its key did not come, or the homeserver does not show it. Please send it again.");
    tokio::time::advance(Duration::from_secs(600)).await;
    room.does(unreadable("@bob")).await;
    assert_eq!(room.settled().await.lines().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_left_is_not_asked_to_send_again() {
    let gateway = careful().await;
    let room = gateway.shared_room();
    room.leaves("@ann").await;
    room.does(room.event("@ann", RoomEventKind::Unreadable)).await;
    room.settled().await;
    assert!(gateway.chat().requests().is_empty());
}
