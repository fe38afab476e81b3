//! Commands that do I/O: they run after their message was committed, and are answered once.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::{AgentError, AgentErrorKind};
use talaria::chat_command::ChatCommand;
use talaria::command::{COMMAND_DEADLINE, COMMANDS_AT_ONCE, COMMANDS_WAITING};
use talaria::rules::AccountRules;
use talaria::store::{AuditFilter, CommandRow};
use talaria_platform::{Place, PlatformErrorKind, UserId};
use tokio::time::Instant;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Fault, Room};

const INTERRUPTED: &str = "The command /self-check was interrupted by a restart. Please send it again.";

/// Lets everything happen that takes no time.
async fn a_moment(room: &Room) {
    room.chat.is_quiet(Duration::from_millis(500)).await;
}

async fn open_commands(gateway: &TestGateway) -> Vec<CommandRow> {
    gateway.store().read(|tx| tx.open_commands()).await.unwrap()
}

/// The last line that the room was told.
fn last_line(room: &Room) -> String {
    room.ours().last().and_then(|words| words.lines().last()).unwrap_or_default().to_owned()
}

/// Ann may talk, and only the admin may use `/self-check`.
fn checks_are_for_admins() -> AccountRules {
    let one = |id: &str| BTreeSet::from([UserId::from(id)]);
    let lists = AccessLists {
        admins: one("@admin:test"),
        people: one("@ann:test"),
        admin_commands: [ChatCommand::SelfCheck].into(),
        ..AccessLists::default()
    };
    AccountRules { limits: None, ..AccountRules::listed(lists) }
}

async fn audited(gateway: &TestGateway) -> Vec<(String, String, bool, String)> {
    let rows = gateway.store().read(|tx| tx.audited(&AuditFilter::default())).await.unwrap();
    rows.into_iter().map(|row| (row.actor, row.action, row.allowed, row.rule)).collect()
}

#[tokio::test(start_paused = true)]
async fn status_says_whether_the_agent_answers_now() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/status").await;
    room.settled().await;
    assert_eq!(last_line(&room), "Asked just now: scripted answers.");

    gateway.agent_itself().goes_away();
    room.says("@ann", "/status").await;
    room.settled().await;
    assert_eq!(last_line(&room), "Asked just now: scripted is away: nobody is there.");
    assert!(open_commands(&gateway).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn status_says_that_the_agent_fails_or_refuses() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for number in 1..=3 {
        gateway.agent().then_fails(AgentErrorKind::Refused, "⚠️ Proxy error (401): no such key.");
        room.says("@ann", &format!("question {number}")).await;
        room.settled().await;
    }
    room.says("@ann", "/status").await;
    room.settled().await;
    let failing = "scripted is there, but the last 3 questions failed: Proxy error (401): no such key";
    assert_eq!(last_line(&room), format!("Asked just now: {failing}."));

    gateway.agent_itself().refuses(AgentError::new(AgentErrorKind::Refused, "⚠️ It wants another key."));
    room.says("@ann", "/status").await;
    room.settled().await;
    let refused = "scripted is there but refuses requests: It wants another key";
    assert_eq!(last_line(&room), format!("Asked just now: {refused}."));
}

/// The hub goes on at once, and the room hears within seconds that nobody answers.
#[tokio::test(start_paused = true)]
async fn an_agent_that_says_nothing_holds_up_nobody() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let gate = gateway.agent_itself().hesitates();
    let asked = Instant::now();
    room.says("@ann", "/status").await;
    room.says("@ann", "hello").await;
    room.shows("bot   ok").await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    room.shows("Asked just now: scripted is away: no connection in time.").await;
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    gate.open();
}

#[tokio::test(start_paused = true)]
async fn status_asks_the_agent_of_the_room() {
    let place = talaria::rules::PlaceRules {
        agent: Some(talaria::ids::AgentName::local()),
        ..talaria::rules::PlaceRules::default()
    };
    let rules = AccountRules { places: [("!all".into(), place)].into(), ..Setup::default().rules };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    gateway.agent_itself().goes_away();
    let room = gateway.shared_room();
    room.says("@ann", "/status").await;
    room.settled().await;
    assert_eq!(last_line(&room), "Asked just now: model small answers.");
    assert_eq!(gateway.agent_itself().questions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_never_ends_is_given_up_with_a_sentence() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let asked = Instant::now();
    room.says("@ann", "/self-check hangs").await;
    room.shows("After 20 s there was no answer to /self-check, so it was given up.").await;
    assert!((COMMAND_DEADLINE..COMMAND_DEADLINE * 2).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    room.says("@ann", "/self-check next").await;
    room.settled().await;
    assert_eq!(room.ours()[1..], ["checked next"]);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_or_breaks_says_so_and_the_next_one_runs() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for how in ["fails", "panics", "misanswers", "well"] {
        room.says("@ann", &format!("/self-check {how}")).await;
    }
    assert_snapshot!(room.settled().await, @r"
    @ann  /self-check fails
    @ann  /self-check panics
    @ann  /self-check misanswers
    @ann  /self-check well
    note  failed
    note  Something went wrong inside the gateway with /self-check. Please send it again.
    note  Something went wrong inside the gateway with /self-check. Please send it again.
    note  checked well
    ");
    assert!(open_commands(&gateway).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn commands_of_a_place_run_in_order_and_places_do_not_wait_for_each_other() {
    let gateway = TestGateway::start().await;
    let (room, other) = (gateway.room(), gateway.direct_room("!other"));
    room.says("@ann", "/self-check hangs").await;
    room.says("@ann", "/self-check second").await;
    other.says("@bob", "/self-check elsewhere").await;
    a_moment(&room).await;
    assert_eq!((room.ours().len(), other.ours()), (0, vec!["checked elsewhere".to_owned()]));
    room.settled().await;
    let told = room.ours();
    assert!(told[0].contains("was given up") && told[1] == "checked second", "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_commands_run_at_the_same_moment() {
    let gateway = TestGateway::start().await;
    let rooms: Vec<_> =
        (0..COMMANDS_AT_ONCE + 2).map(|number| gateway.direct_room(&format!("!{number}"))).collect();
    for room in &rooms {
        room.says("@ann", "/self-check hangs").await;
    }
    a_moment(&rooms[0]).await;
    let open = open_commands(&gateway).await;
    let started = open.iter().filter(|row| row.started).count();
    assert_eq!((open.len(), started), (COMMANDS_AT_ONCE + 2, COMMANDS_AT_ONCE));
    rooms[0].settled().await;
    assert!(rooms.iter().all(|room| room.ours().len() == 1));
}

#[tokio::test(start_paused = true)]
async fn more_commands_than_a_place_may_have_waiting_are_refused() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/self-check hangs").await;
    for number in 2..=COMMANDS_WAITING + 1 {
        room.says("@ann", &format!("/self-check {number}")).await;
    }
    a_moment(&room).await;
    let full = "16 commands wait here already, so /self-check was not taken. Please send it again later.";
    assert_eq!(room.ours(), [full]);
    room.settled().await;
    assert_eq!(room.ours().len(), COMMANDS_WAITING + 1);
    assert_eq!(room.ours().last().unwrap(), "checked 16");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_power_cut_interrupts_is_answered_by_the_next_process() {
    let mut gateway = TestGateway::start().await;
    let gate = gateway.agent_itself().hesitates();
    let room = gateway.room();
    room.says("@ann", "/status").await;
    a_moment(&room).await;
    assert_eq!(gateway.agent_itself().questions(), 1);
    gateway.kill().await;
    gate.open();
    gateway.restart().await;
    let room = gateway.room();
    room.settled().await;
    assert_eq!(room.ours().len(), 1, "{:?}", room.ours());
    assert_eq!(last_line(&room), "Asked just now: scripted answers.");
}

/// It may have had its effect. One that waited behind it did not begin, and runs.
#[tokio::test(start_paused = true)]
async fn a_command_that_must_not_run_twice_is_refused_after_a_power_cut() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "/self-check hangs").await;
    room.says("@ann", "/self-check behind").await;
    a_moment(&room).await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().settled().await;
    assert_eq!(gateway.room().ours(), [INTERRUPTED, "checked behind"]);

    gateway.restart().await;
    gateway.room().settled().await;
    assert_eq!(gateway.room().ours().len(), 2, "nothing is said again");
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_command_that_runs_and_leaves_the_next_one_to_the_next_process() {
    let mut gateway = TestGateway::start().await;
    let _gate = gateway.agent_itself().hesitates();
    let room = gateway.room();
    room.says("@ann", "/status").await;
    room.says("@ann", "/self-check later").await;
    a_moment(&room).await;
    gateway.drain().await;
    assert_eq!(room.ours().len(), 1);
    assert_eq!(last_line(&room), "Asked just now: scripted is away: no connection in time.");

    gateway.restart().await;
    room.settled().await;
    assert_eq!(room.ours()[1..], ["checked later"]);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_fails_at_first_shows_the_answer_once() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    for _ in 0..2 {
        gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Retry { after: None }));
    }
    room.says("@ann", "/self-check it").await;
    room.settled().await;
    assert_eq!(room.ours(), ["checked it"]);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_send_a_command_has_nothing_run() {
    let gateway = TestGateway::with(Setup { rules: checks_are_for_admins(), ..Setup::default() }).await;
    let room = gateway.shared_room();
    room.says("@eve", "/self-check for eve").await;
    room.says("@ann", "/self-check for ann").await;
    room.says("@admin", "/self-check for the admin").await;
    assert_snapshot!(room.settled().await, @r"
    @eve  /self-check for eve
    @ann  /self-check for ann
    @admin/self-check for the admin
    note  Only admins can use /self-check here.
    note  checked for the admin
    ");
    let action = || "command self-check".to_owned();
    assert_eq!(
        audited(&gateway).await,
        [
            ("@eve:test".to_owned(), action(), false, "not listed".to_owned()),
            ("@ann:test".to_owned(), action(), false, "admins only".to_owned()),
            ("@admin:test".to_owned(), action(), true, "admin".to_owned()),
        ]
    );
}

/// The rules of the moment in which it runs hold too: a reload, or that somebody left, comes before what waits.
#[tokio::test(start_paused = true)]
async fn who_may_no_longer_send_a_command_has_no_answer_to_it() {
    let gateway = TestGateway::start().await;
    let room = gateway.shared_room();
    let gate = gateway.agent_itself().hesitates();
    room.says("@bob", "/status").await;
    room.says("@ann", "/self-check it").await;
    a_moment(&room).await;
    room.leaves("@bob").await;
    gateway.reload(checks_are_for_admins());
    gate.open();
    room.settled().await;
    assert_eq!(room.ours(), ["Only admins can use /self-check here."]);
    assert!(open_commands(&gateway).await.is_empty());
    let refused: Vec<_> = audited(&gateway).await.into_iter().filter(|row| !row.2).collect();
    let row =
        |who: &str, action: &str, rule: &str| (who.to_owned(), action.to_owned(), false, rule.to_owned());
    assert_eq!(
        refused,
        [row("@bob:test", "command status", "left"), row("@ann:test", "command self-check", "admins only")]
    );
}

/// A database that a later version used may hold commands that this one does not know.
#[tokio::test(start_paused = true)]
async fn a_command_of_another_version_is_refused_visibly() {
    let mut gateway = TestGateway::start().await;
    let row = CommandRow {
        key: talaria_platform::SendKey::new("n.1".to_owned()),
        account: "test".into(),
        place: Place::room("!home"),
        event: talaria_platform::EventId::new("$7"),
        author: "@ann:test".into(),
        direct: true,
        name: "acp-runtime".to_owned(),
        behind: "on".to_owned(),
        started: false,
    };
    gateway.store().write(move |tx| tx.add_command(&row)).await.unwrap();
    gateway.restart().await;
    gateway.room().settled().await;
    assert_eq!(
        gateway.room().ours(),
        ["The command /acp-runtime was interrupted by a restart. Please send it again."]
    );
}
