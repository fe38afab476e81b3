//! Who may do what, and where: every cell of {person} × {place} × {action}, through the whole hub.
//!
//! [`expected`] writes the policy down a second time, independently of the code that decides. A cell acts if its
//! effect is there and the audit says so; otherwise the room shows nothing at all (except, to people who may talk,
//! that a command is for admins).

use std::collections::BTreeSet;

use talaria::access::{AccessLists, AgentAccess, GrantScope};
use talaria::chat_command::ChatCommand;
use talaria::ids::AgentName;
use talaria::rules::{AccountRules, AgentPolicy, AgentRules};
use talaria::store::AuditFilter;
use talaria_platform::{IncomingMessage, RoomEventKind, UserId};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

/// The person of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Admin,
    Allowed,
    Paired,
    Stranger,
    /// An admin who has left the room.
    Left,
    /// An admin's own program.
    Bot,
}

const PEOPLE: [Who; 6] = [Who::Admin, Who::Allowed, Who::Paired, Who::Stranger, Who::Left, Who::Bot];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spot {
    Direct,
    Room,
    Thread,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Message,
    Command(ChatCommand),
    Edit,
    Delete,
    Approve(GrantScope),
    Deny,
    Invite,
    /// Chooses an agent that is for admins.
    ChooseAgent,
}

/// All actions. A reaction counts only on an ask; `asks` has that scene.
fn everything() -> Vec<Does> {
    let plain = [Does::Message, Does::Edit, Does::Delete, Does::Deny, Does::Invite, Does::ChooseAgent];
    let commands =
        ChatCommand::all().filter(|command| !matches!(command, ChatCommand::Approve | ChatCommand::Deny));
    plain.into_iter().chain(GrantScope::ALL.map(Does::Approve)).chain(commands.map(Does::Command)).collect()
}

/// The one command that is for admins in these scenes, besides those that always are.
const GUARDED: ChatCommand = ChatCommand::Undo;

fn expected(who: Who, spot: Spot, does: Does) -> bool {
    // The network has deleted the message already; there is nothing left to allow.
    if does == Does::Delete {
        return true;
    }
    let for_admins = [
        Does::Command(GUARDED),
        Does::Command(ChatCommand::CodexRuntime),
        Does::Approve(GrantScope::Always),
        Does::ChooseAgent,
    ]
    .contains(&does);
    match who {
        Who::Admin => true,
        Who::Allowed => !for_admins,
        Who::Paired => spot == Spot::Direct && !for_admins,
        // Pairing is on, so a stranger may open a direct chat.
        Who::Stranger => spot == Spot::Direct && does == Does::Invite,
        // The invitation itself proves that the inviter is there.
        Who::Left => does == Does::Invite,
        Who::Bot => false,
    }
}

fn id(who: Who) -> &'static str {
    match who {
        Who::Admin | Who::Left | Who::Bot => "@admin",
        Who::Allowed => "@allowed",
        Who::Paired => "@paired",
        Who::Stranger => "@stranger",
    }
}

fn rules() -> AccountRules {
    let one = |id: &str| BTreeSet::from([UserId::from(id)]);
    let lists = AccessLists {
        admins: one("@admin:test"),
        people: one("@allowed:test"),
        pairing: true,
        admin_commands: BTreeSet::from([GUARDED]),
        ..AccessLists::default()
    };
    AccountRules { limits: None, ..AccountRules::listed(lists) }
}

/// The agent `local` is for admins, the other one for everybody.
fn agents() -> AgentRules {
    let nobody = AgentPolicy { access: AgentAccess::default(), ..AgentPolicy::default() };
    let by_name = [(AgentName::proxy(), AgentPolicy::default()), (AgentName::local(), nobody)];
    AgentRules { by_name: by_name.into(), ..AgentRules::default() }
}

#[tokio::test(start_paused = true)]
async fn exactly_the_allowed_cells_act_in_direct_chats() {
    for who in PEOPLE {
        row(who, Spot::Direct).await;
    }
}

#[tokio::test(start_paused = true)]
async fn exactly_the_allowed_cells_act_in_rooms() {
    for who in PEOPLE {
        row(who, Spot::Room).await;
    }
}

#[tokio::test(start_paused = true)]
async fn exactly_the_allowed_cells_act_in_threads() {
    for who in PEOPLE {
        row(who, Spot::Thread).await;
    }
}

/// Does every action once as one person in one place.
async fn row(who: Who, spot: Spot) {
    for does in everything() {
        let acted = cell(who, spot, does).await;
        assert_eq!(acted, expected(who, spot, does), "{who:?} {spot:?} {does:?}");
    }
}

/// Does one action and returns whether it had its effect. Also checks that the audit agrees, and that nothing is
/// shown where nothing may be.
async fn cell(who: Who, spot: Spot, does: Does) -> bool {
    // At first everybody may talk, so that there is a message to edit and delete.
    let gateway = TestGateway::with(Setup::default()).await;
    let room = match spot {
        Spot::Direct => gateway.room(),
        Spot::Room => gateway.shared_room(),
        Spot::Thread => gateway.shared_room().thread("$thread"),
    };
    let first = gateway.agent().then_hangs();
    room.says("@host", "hold the line").await;
    first.is_hanging().await;
    let asked = room.says(id(who), "mine").await;
    room.settled().await;

    gateway.reload_agents(rules(), agents());
    if who == Who::Paired {
        gateway.store().write(|tx| tx.let_in(&"test".into(), &"@paired:test".into())).await.unwrap();
    }
    if who == Who::Left {
        // Not `leaves`, which would end the question at once.
        let place = room.place();
        let left =
            move |tx: &talaria::store::Tx<'_>| tx.depart(&"test".into(), &place.room, &"@admin:test".into());
        gateway.store().write(left).await.unwrap();
    }
    let before = room.ours().len();
    let effect = act(&gateway, &room, who, does, &asked).await;
    room.settled().await;
    let mut shown = room.ours().split_off(before);
    if who == Who::Stranger && spot == Spot::Direct {
        // Pairing is on: strangers are shown a code and nothing else.
        shown.retain(|words| !words.contains("talaria pairing approve"));
    }
    let acted = match effect {
        Effect::Known(acted) => acted,
        Effect::Ended => gateway.store().read(|tx| tx.all_open_turns()).await.unwrap().is_empty(),
        // It answers, and not with a refusal.
        Effect::Answer => {
            let refusals = ["Only admins can use", "You may not talk to the agent"];
            let is_refusal = |words: &String| refusals.iter().any(|refusal| words.contains(refusal));
            !shown.is_empty() && !shown.iter().any(is_refusal)
        }
    };

    let audit = gateway.store().read(|tx| tx.audited(&AuditFilter::default())).await.unwrap();
    let last = audit.last().unwrap();
    assert_eq!(
        (last.actor.as_str(), last.allowed),
        (format!("{}:test", id(who)).as_str(), acted),
        "{last:?}"
    );
    if !acted {
        let talks = matches!(who, Who::Allowed) || (who == Who::Paired && spot == Spot::Direct);
        assert!(shown.is_empty() || talks, "{who:?} {spot:?} {does:?} was shown {shown:?}");
    }
    acted
}

enum Effect {
    Known(bool),
    /// The running and the waiting turns have ended.
    Ended,
    /// The effect is visible in the messages.
    Answer,
}

async fn act(
    gateway: &TestGateway,
    room: &Room,
    who: Who,
    does: Does,
    asked: &talaria_platform::EventId,
) -> Effect {
    let text = match does {
        Does::Invite => {
            let mut event = room.event(id(who), RoomEventKind::Joined);
            event.author.bot = who == Who::Bot;
            return Effect::Known(room.invites_as(event).await);
        }
        Does::Edit | Does::Delete => {
            let kind = match does {
                Does::Edit => RoomEventKind::Edited { of: asked.clone(), text: "changed".to_owned() },
                _ => RoomEventKind::Deleted { of: asked.clone() },
            };
            say(room, who, kind).await;
            let turns = gateway.store().read({
                let place = room.place();
                let asked = asked.clone();
                move |tx| tx.waiting_turn_of(&"test".into(), &place.room, &asked)
            });
            let turn = turns.await.unwrap();
            return Effect::Known(turn.is_none_or(|turn| turn.row.prompt == "changed"));
        }
        Does::Message => "a question".to_owned(),
        Does::Command(command) => format!("/{}", command.name()),
        Does::Approve(grant) => format!("/approve {}", grant.name()),
        Does::Deny => "/deny".to_owned(),
        Does::ChooseAgent => "/agent local".to_owned(),
    };
    say(room, who, RoomEventKind::Message(IncomingMessage::text(text))).await;
    match does {
        Does::Command(ChatCommand::Stop | ChatCommand::New) => Effect::Ended,
        _ => Effect::Answer,
    }
}

async fn say(room: &Room, who: Who, kind: RoomEventKind) {
    let mut event = room.event(id(who), kind);
    event.author.bot = who == Who::Bot;
    room.does(event).await;
}
