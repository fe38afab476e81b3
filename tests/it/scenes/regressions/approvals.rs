//! Real attacks on the approvals of similar programs: each incident once, under its name (CVE, GHSA, or issue of the
//! project), tried on us.

use std::time::Duration;

use talaria::access::{AccessLists, GrantScope};
use talaria::agent::{Ask, AskChoice};
use talaria::chat_command::ChatCommand;
use talaria::rules::AccountRules;
use talaria_platform::UserId;

use crate::scenes::asks::{gateway, outcomes, people};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Asked, Room};
use crate::support::scripted::ask;

/// A room where Ann's agent asks for an action.
async fn asked(gateway: &TestGateway) -> (Room, Asked) {
    let room = gateway.shared_room();
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    let asked = room.is_asked("run a command").await;
    gateway.chat().is_quiet(Duration::from_secs(1)).await;
    (room, asked)
}

/// Checks that nothing was decided, and that no message was posted.
async fn nothing_happened(gateway: &TestGateway, room: &Room) {
    let before = room.ours().len();
    gateway.chat().is_quiet(Duration::from_secs(30)).await;
    assert_eq!(room.ours().len(), before, "{}", room.now());
    assert_eq!(gateway.agent_itself().answers().len(), 0);
    assert_eq!(outcomes(gateway).await, [""; 0]);
}

/// `/approve` in a chat bypassed the right that approvals need.
#[tokio::test(start_paused = true)]
async fn cve_2026_28473_approve_needs_the_same_right_as_everything_else() {
    let gateway = gateway().await;
    let (room, asked) = asked(&gateway).await;
    for words in ["/approve", "/approve session", "/approve always", "/deny"] {
        room.says("@eve", words).await;
    }
    room.says("@eve", &format!("/approve {}", asked.code)).await;
    room.a_forger_says("@ada", &format!("/approve {}", asked.code)).await;
    room.a_bot_says("@ada", &format!("/approve {}", asked.code)).await;
    let shown = room.ours().len();
    nothing_happened(&gateway, &room).await;
    assert_eq!(shown, 1, "strangers are told nothing");
}

/// `/approve` bypassed the right; here the right is an admin's.
#[tokio::test(start_paused = true)]
async fn cve_2026_28473_approve_can_be_for_admins() {
    let mut rules = people();
    if let talaria::access::AccessPolicy::Listed(lists) = &mut rules.access {
        lists.admin_commands = [ChatCommand::Approve].into();
    }
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let (room, asked) = asked(&gateway).await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.shows("Only admins can use /approve here.").await;
    nothing_happened(&gateway, &room).await;
    room.says("@ada", &format!("/approve {}", asked.code)).await;
    room.settled().await;
    assert_eq!(outcomes(&gateway).await, ["ask once yes by @ada:test (approved)"]);
}

/// A reaction was obeyed without a check of the list.
#[tokio::test(start_paused = true)]
async fn ghsa_9vvh_2768_c8vp_the_mark_of_a_stranger_means_nothing() {
    let gateway = gateway().await;
    let (room, asked) = asked(&gateway).await;
    for mark in ["✅", "👍", "❌"] {
        room.reacts("@eve", &asked.message, mark).await;
    }
    nothing_happened(&gateway, &room).await;
}

/// With an empty list any member of the room could approve by a reaction.
#[tokio::test(start_paused = true)]
async fn hermes_34567_an_empty_list_lets_nobody_answer() {
    let gateway = gateway().await;
    let (room, asked) = asked(&gateway).await;
    gateway.reload(AccountRules::listed(AccessLists::default()));
    for who in ["@ann", "@bob", "@ada", "@eve"] {
        for mark in ["✅", "👍", "❌"] {
            room.reacts(who, &asked.message, mark).await;
        }
        room.says(who, &format!("/approve {}", asked.code)).await;
    }
    nothing_happened(&gateway, &room).await;
    room.shows("nobody answered within 5 minutes").await;
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
}

/// A client trusted the kind of action that the agent itself had claimed.
#[tokio::test(start_paused = true)]
async fn cve_2026_32898_what_an_agent_calls_an_action_decides_nothing() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    let titles = ["read", "safe", "approved", "always", "/approve", "kind: read-only"];
    gateway.agent().asks_all(titles.map(|title| ask(title, "rm -r build")));
    room.says("@ann", "clean up").await;
    for title in titles {
        room.is_asked(&format!("`{title}`")).await;
    }
    nothing_happened(&gateway, &room).await;
    // The name of an action that was allowed for ever decides nothing either, and neither does another reason for it.
    let read = room.is_asked("`read`").await;
    room.says("@ada", &format!("/approve {} always", read.code)).await;
    room.shows("Allowed here for 30 days: `read`").await;
    room.says("@ann", "/stop").await;
    room.settled().await;
    let folder = |cwd: &str| Ask { cwd: Some(cwd.to_owned()), ..ask("read", "rm -r build") };
    let reasoned = Ask { reason: Some("It is full.".to_owned()), ..ask("read", "rm -r build") };
    gateway.agent().asks_all([reasoned, ask("read", "rm -r ~"), folder("/")]);
    room.says("@ann", "again").await;
    room.is_asked("rm -r ~").await;
    room.is_asked("in `/`").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"; 2]);
}

/// For many actions at once, nobody was asked.
#[tokio::test(start_paused = true)]
async fn cve_2026_9350_many_at_once_are_as_many_questions() {
    let gateway = gateway().await;
    let room = gateway.shared_room();
    gateway.agent().asks_all((0..5).map(|number| ask(&format!("step {number}"), &format!("rm {number}"))));
    room.says("@ann", "clean up").await;
    let two = room.is_asked("step 2").await;
    room.is_asked("step 4").await;
    gateway.chat().is_quiet(Duration::from_secs(1)).await;
    for words in ["/approve", "/approve session", "/approve all", "/approve 2"] {
        room.says("@ann", words).await;
    }
    room.says("@ann", &format!("/approve {} session", two.code)).await;
    room.shows("nobody answered within 5 minutes").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm 2"]);
    let allowed = |choice: &AskChoice| *choice == AskChoice::Allow(GrantScope::Session);
    let answers = gateway.agent_itself().answers();
    assert_eq!(answers.iter().filter(|answer| allowed(&answer.choice)).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.is_denied()).count(), 4);
}

/// If nobody is there to answer, as in a batch, that is a denial.
#[tokio::test(start_paused = true)]
async fn cve_2026_9350_nobody_there_is_no() {
    let owner = TestGateway::with(Setup { rules: AccountRules::owner(), ..Setup::default() }).await;
    let room = owner.room();
    owner.agent().asks("run a command", "rm -r build").says(["Then not."]);
    room.says("@ann", "clean up").await;
    room.shows("Then not.").await;
    assert_eq!(owner.agent_itself().ran(), [""; 0]);
    let nobody = UserId::from("(gateway)");
    assert_eq!(outcomes(&owner).await, [format!("ask no by {} (timeout)", nobody.as_str())]);
}
