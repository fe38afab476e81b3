//! Strangers get nothing at all; people who lose their right lose it at once; the audit records every decision.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::AgentErrorKind;
use talaria::rules::{AccountRules, Rules};
use talaria::store::{AuditFilter, Tx};
use talaria_platform::{RoomEventKind, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::logged::Logged;

/// Rules that allow only these people, everywhere.
fn only(people: &[&str]) -> AccountRules {
    let people = people.iter().map(|id| UserId::from(*id)).collect();
    AccountRules::listed(AccessLists { people, ..AccessLists::default() })
}

async fn gateway(rules: AccountRules) -> TestGateway {
    TestGateway::with(Setup { rules, ..Setup::default() }).await
}

/// Every decision so far, one line each, without rooms and times.
async fn decisions(gateway: &TestGateway) -> String {
    let rows = gateway.store().read(|tx: &Tx<'_>| tx.audited(&AuditFilter::default())).await.unwrap();
    let line = |row: &talaria::store::AuditRow| {
        let decision = if row.allowed { "allowed" } else { "refused" };
        format!("{} {} {} {decision} ({})\n", row.actor, row.place, row.action, row.rule)
    };
    rows.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stranger_gets_nothing_at_all_and_the_agent_hears_nothing() {
    let gateway = gateway(only(&["@ann:test"])).await;
    for room in [gateway.room(), gateway.shared_room(), gateway.shared_room().thread("$1")] {
        let asked = room.says("@eve", "hello?").await;
        room.says("@eve", "/help").await;
        room.says("@eve", "/nonsense").await;
        room.edits("@eve", &asked, "hello!").await;
        room.deletes("@eve", &asked).await;
        room.does(room.event("@eve", RoomEventKind::Missed { count: 3 })).await;
        room.settled().await;
        assert!(!room.invites("@eve").await);
    }
    assert!(gateway.chat().requests().is_empty(), "nothing was sent anywhere");
    assert!(!gateway.chat().is_typing(&gateway.room()));
    assert!(gateway.agent_itself().heard().is_empty());
    assert_snapshot!(decisions(&gateway).await.lines().take(4).collect::<Vec<_>>().join("\n"), @"
    @eve:test direct message refused (not listed)
    @eve:test direct command help refused (not listed)
    @eve:test direct message refused (not listed)
    @eve:test direct invite refused (not listed)
    ");
}

#[tokio::test(start_paused = true)]
async fn the_audit_holds_every_decision_and_never_a_word_or_a_room() {
    let gateway = gateway(only(&["@ann:test"])).await;
    let room = gateway.shared_room();
    room.says("@ann", "a secret plan").await;
    room.settled().await;
    room.says("@eve", "/stop").await;
    room.settled().await;

    assert_snapshot!(decisions(&gateway).await, @"
    @ann:test room message allowed (listed)
    @eve:test room command stop refused (not listed)
    ");
    let rows = gateway.store().read(|tx| tx.audited(&AuditFilter::default())).await.unwrap();
    let kept = format!("{rows:?}");
    assert!(!kept.contains("secret") && !kept.contains(&room.name), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_nobody_configured_lets_nobody_in() {
    let gateway = gateway(only(&["@ann:test"])).await;
    gateway.reload_all(Rules::default());
    gateway.room().says("@ann", "hello?").await;
    gateway.room().settled().await;
    assert!(gateway.chat().requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_loses_the_right_while_waiting_is_not_answered_and_told_nothing() {
    let gateway = gateway(only(&["@ann:test", "@bob:test"])).await;
    let room = gateway.shared_room();
    let first = gateway.agent().says(["The first answer"]).then_hangs();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@bob", "two").await;
    room.settled().await;

    gateway.reload(only(&["@ann:test"]));
    first.goes_on();

    assert_snapshot!(room.settled().await, @"
    @ann  one
    bot   The first answer
    @bob  two
    note  Queued: one other message comes first. /stop ends both.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_store_during_a_reload_is_judged_by_the_new_rules() {
    let gateway = gateway(only(&["@ann:test", "@bob:test"])).await;
    let room = gateway.shared_room();
    let busy = gateway.store_is_busy().await;
    room.posts("@bob", "hello?", Vec::new());
    busy.holds_everybody_up().await;
    gateway.reload(only(&["@ann:test"]));
    busy.goes_on().await;

    assert_snapshot!(room.settled().await, @"@bob  hello?");
    assert_snapshot!(decisions(&gateway).await, @"@bob:test room message refused (not listed)");
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_the_room_ends_what_they_asked_and_no_one_elses() {
    let gateway = gateway(only(&["@ann:test", "@bob:test"])).await;
    let room = gateway.shared_room();
    let first = gateway.agent().says(["The first answer"]).then_hangs();
    room.says("@ann", "one").await;
    first.is_hanging().await;
    room.settled().await;
    room.says("@bob", "two").await;
    room.says("@ann", "three").await;
    room.settled().await;

    room.leaves("@ann").await;

    assert_snapshot!(room.settled().await, @"
    @ann  one
    bot   The first answer
          (stopped)
    @bob  two
    @ann  three
    note  Queued: 2 messages come before the last one. They are answered in order; /stop ends all of them.
    bot   ok
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_left_is_heard_again_when_they_are_back() {
    let gateway = gateway(only(&["@ann:test"])).await;
    let room = gateway.shared_room();
    room.leaves("@ann").await;
    room.says("@ann", "still there?").await;
    room.settled().await;
    assert!(room.ours().is_empty());

    room.joins("@ann").await;
    room.says("@ann", "and now?").await;
    assert_snapshot!(room.settled().await, @"
    @ann  still there?
    @ann  and now?
    bot   ok
    ");
}

#[tokio::test(start_paused = true)]
async fn a_program_is_never_answered_even_if_it_is_listed() {
    let gateway = gateway(only(&["@ann:test"])).await;
    gateway.room().a_bot_says("@ann", "beep").await;
    gateway.room().settled().await;
    assert!(gateway.chat().requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn people_are_told_that_a_command_is_for_admins_and_help_leaves_it_out() {
    let admin_commands = BTreeSet::from([talaria::chat_command::ChatCommand::New]);
    let lists = |rules: AccountRules| match rules.access {
        talaria::access::AccessPolicy::Listed(lists) => lists,
        talaria::access::AccessPolicy::Owner => unreachable!(),
    };
    let rules = AccountRules::listed(AccessLists { admin_commands, ..lists(only(&["@ann:test"])) });
    let gateway = gateway(rules).await;
    let room = gateway.room();
    room.says("@ann", "/new").await;
    room.settled().await;
    room.says("@ann", "/help").await;
    let shown = room.settled().await;
    assert!(shown.starts_with("@ann  /new\nnote  Only admins can use /new here.\n"), "{shown}");
    assert!(shown.contains("`/undo`") && !shown.contains("`/new`"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_offered_to_people_who_may_not_use_it() {
    let admin_commands = BTreeSet::from([talaria::chat_command::ChatCommand::Retry]);
    let one = |id: &str| BTreeSet::from([UserId::from(id)]);
    let lists = AccessLists {
        admins: one("@bob:test"),
        people: one("@ann:test"),
        admin_commands,
        ..AccessLists::default()
    };
    let gateway = gateway(AccountRules::listed(lists)).await;
    let room = gateway.shared_room();
    for (who, mark) in
        [("@ann", "(cut short: it broke)"), ("@bob", "(cut short: it broke — /retry runs it again)")]
    {
        gateway.agent().says(["Half of it"]).then_fails(AgentErrorKind::Unknown { after: None }, "it broke");
        room.says(who, "how?").await;
        let shown = room.settled().await;
        assert!(shown.trim_end().ends_with(mark), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invitation_is_followed_if_its_author_may_talk_there() {
    let one = |id: &str| BTreeSet::from([UserId::from(id)]);
    let lists = AccessLists { direct: one("@ann:test"), rooms: one("@bob:test"), ..AccessLists::default() };
    let gateway = gateway(AccountRules::listed(lists)).await;
    let (direct, shared) = (gateway.room(), gateway.shared_room());
    assert!(direct.invites("@ann").await);
    assert!(!shared.invites("@ann").await);
    assert!(!direct.invites("@bob").await);
    assert!(shared.invites("@bob").await);
}

/// We are removed from the room; Ann leaves and comes back while we are out, and invites us again: only her
/// invitation shows that she is there.
#[tokio::test(start_paused = true)]
async fn whoever_invites_us_is_there_whatever_was_before() {
    let gateway = gateway(only(&["@ann:test"])).await;
    let room = gateway.shared_room();
    room.leaves("@ann").await;
    assert!(room.invites("@ann").await);
    room.says("@ann", "there you are").await;
    assert_snapshot!(room.settled().await, @"
    @ann  there you are
    bot   ok
    ");
}

/// Joins and leaves in a large room are not stored, except those of people whom we may obey.
#[tokio::test(start_paused = true)]
async fn only_the_leaving_of_people_we_know_is_kept() {
    let mut gateway =
        gateway(AccountRules::listed(AccessLists { pairing: true, ..AccessLists::default() })).await;
    let room = gateway.shared_room();
    for n in 0..20 {
        room.leaves(&format!("@stranger{n}")).await;
    }
    gateway.reload(only(&["@ann:test", "@bob:test"]));
    room.leaves("@ann").await;
    room.says("@bob", "hello").await;
    room.settled().await;
    gateway.reload(only(&["@ann:test"]));
    room.leaves("@bob").await;
    gateway.restart().await;

    gateway.reload(only(&["@ann:test", "@bob:test", "@stranger1:test"]));
    let before = room.ours().len();
    for gone in ["@ann", "@bob"] {
        room.says(gone, "hello").await;
    }
    room.settled().await;
    assert_eq!(room.ours().len(), before);
    room.says("@stranger1", "hello").await;
    room.settled().await;
    assert_eq!(room.ours().len(), before + 1);
}

/// Operators who forgot to list themselves, and who only invite us.
#[tokio::test(start_paused = true)]
async fn the_log_names_once_whoever_is_on_no_list_also_if_they_only_invite_us() {
    let log = Logged::listen();
    let gateway = gateway(only(&["@ann:test"])).await;
    let room = gateway.shared_room();
    for _ in 0..3 {
        assert!(!room.invites("@eve").await);
        room.says("@mallory", "hello").await;
    }
    room.says("@eve", "hello").await;
    room.settled().await;
    for (id, did) in [("@eve:test", "invited us"), ("@mallory:test", "wrote")] {
        let lines = log.with(&format!("id=\"{id}\""));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("is on no list") && lines[0].contains(did), "{lines:?}");
        assert!(lines[0].contains("platforms.test.access.people"), "{lines:?}");
    }
}
