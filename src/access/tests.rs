//! Tests: one scene for every rule of the access policy.

use super::*;

const ANN: &str = "@ann:test";

fn lists() -> AccessLists {
    let set = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect();
    AccessLists {
        admins: set(&["@admin:test"]),
        people: set(&["@people:test"]),
        direct: set(&["@direct:test"]),
        rooms: set(&["@rooms:test"]),
        ..AccessLists::default()
    }
}

fn actor(id: &UserId) -> Actor<'_> {
    let (trust, channel) = (AuthorTrust::Network, EntryChannel::Secure);
    Actor { id, trust, channel, bot: false, paired: false, left: false }
}

fn decide(lists: AccessLists, id: &str, place: PlaceKind, action: AccessAction) -> AccessDecision {
    AccessPolicy::Listed(lists).authorize(actor(&id.into()), place, action)
}

#[test]
fn empty_lists_let_nobody_do_anything() {
    let actions = [
        AccessAction::Message,
        AccessAction::Edit,
        AccessAction::Delete,
        AccessAction::Reaction,
        AccessAction::Deny,
        AccessAction::Invite,
    ];
    for action in actions
        .into_iter()
        .chain(GrantScope::ALL.map(AccessAction::Approve))
        .chain(ChatCommand::all().map(AccessAction::Command))
    {
        for place in [PlaceKind::Direct, PlaceKind::Room] {
            assert_eq!(decide(AccessLists::default(), ANN, place, action), deny(AccessRule::NotListed));
        }
    }
}

#[test]
fn each_list_counts_where_it_says() {
    for (id, direct, room) in [
        ("@admin:test", allow(AccessRule::Admin), allow(AccessRule::Admin)),
        ("@people:test", allow(AccessRule::Listed), allow(AccessRule::Listed)),
        ("@direct:test", allow(AccessRule::Listed), deny(AccessRule::NotListed)),
        ("@rooms:test", deny(AccessRule::NotListed), allow(AccessRule::Listed)),
        (ANN, deny(AccessRule::NotListed), deny(AccessRule::NotListed)),
    ] {
        assert_eq!(decide(lists(), id, PlaceKind::Direct, AccessAction::Message), direct, "{id}");
        assert_eq!(decide(lists(), id, PlaceKind::Room, AccessAction::Message), room, "{id}");
    }
}

#[test]
fn an_id_counts_byte_for_byte() {
    for like in [
        "@People:test",
        "@people:TEST",
        "@people:test.",
        "@people:test:8448",
        "people:test",
        "@people",
        "people",
        "@people:test ",
        " @people:test",
        "@pe\u{43e}ple:test",
        "@people:te\u{301}st",
        "",
    ] {
        assert_eq!(
            decide(lists(), like, PlaceKind::Direct, AccessAction::Message),
            deny(AccessRule::NotListed),
            "{like:?}"
        );
    }
}

#[test]
fn the_owner_may_do_everything_but_a_contradicted_author_nothing() {
    let id = UserId::from(ANN);
    let everything = [AccessAction::Message, AccessAction::Approve(GrantScope::Always), AccessAction::Invite];
    for action in everything {
        let owner = AccessPolicy::Owner.authorize(actor(&id), PlaceKind::Room, action);
        assert_eq!(owner, allow(AccessRule::Owner));
        let forged = Actor { trust: AuthorTrust::Violated, ..actor(&id) };
        assert_eq!(
            AccessPolicy::Owner.authorize(forged, PlaceKind::Room, action),
            deny(AccessRule::Violated)
        );
    }
}

#[test]
fn what_speaks_against_somebody_comes_first() {
    let admin = UserId::from("@admin:test");
    let with_trust = AccessLists { trust: Some(AuthorTrust::CrossSigned), ..lists() };
    let decide = |lists: AccessLists, actor| {
        AccessPolicy::Listed(lists).authorize(actor, PlaceKind::Room, AccessAction::Message)
    };
    for (actor, rule) in [
        (Actor { trust: AuthorTrust::Violated, ..actor(&admin) }, AccessRule::Violated),
        (Actor { bot: true, ..actor(&admin) }, AccessRule::Bot),
        (Actor { left: true, ..actor(&admin) }, AccessRule::Left),
    ] {
        assert_eq!(decide(lists(), actor), deny(rule));
    }
    assert_eq!(decide(with_trust.clone(), actor(&admin)), deny(AccessRule::Untrusted));
    for enough in [AuthorTrust::CrossSigned, AuthorTrust::Verified] {
        assert_eq!(
            decide(with_trust.clone(), Actor { trust: enough, ..actor(&admin) }),
            allow(AccessRule::Admin)
        );
    }
}

#[test]
fn a_doubt_is_about_those_whom_a_list_names() {
    let id = UserId::from(ANN);
    let guarded = AccessLists { trust: Some(AuthorTrust::CrossSigned), secure_only: true, ..lists() };
    for channel in [EntryChannel::Secure, EntryChannel::Plain, EntryChannel::Bare] {
        let stranger = Actor { channel, ..actor(&id) };
        let decision = AccessPolicy::Listed(guarded.clone()).authorize(
            stranger,
            PlaceKind::Direct,
            AccessAction::Message,
        );
        assert_eq!(decision, deny(AccessRule::NotListed), "{channel:?}");
    }
}

#[test]
fn in_the_clear_nobody_is_heard_where_encryption_is_needed() {
    let open = lists();
    let guarded = AccessLists { secure_only: true, ..lists() };
    for (lists, channel, decision) in [
        (&open, EntryChannel::Plain, allow(AccessRule::Admin)),
        (&open, EntryChannel::Secure, allow(AccessRule::Admin)),
        (&guarded, EntryChannel::Plain, deny(AccessRule::Plain)),
        (&guarded, EntryChannel::Secure, allow(AccessRule::Admin)),
    ] {
        let admin = UserId::from("@admin:test");
        let actor = Actor { channel, ..actor(&admin) };
        for action in [
            AccessAction::Message,
            AccessAction::Edit,
            AccessAction::Deny,
            AccessAction::Approve(GrantScope::Once),
        ] {
            let decided = AccessPolicy::Listed(lists.clone()).authorize(actor, PlaceKind::Room, action);
            assert_eq!(decided, decision, "{channel:?} {action:?}");
        }
    }
}

#[test]
fn without_encryption_the_networks_word_is_taken_where_that_is_served() {
    let id = UserId::from("@people:test");
    let proven = AccessLists { trust: Some(AuthorTrust::Verified), ..lists() };
    let decide = |channel| {
        let actor = Actor { channel, ..actor(&id) };
        AccessPolicy::Listed(proven.clone()).authorize(actor, PlaceKind::Room, AccessAction::Message)
    };
    assert_eq!(decide(EntryChannel::Plain), allow(AccessRule::Listed));
    assert_eq!(decide(EntryChannel::Secure), deny(AccessRule::Untrusted));
}

#[test]
fn what_nobody_can_prove_only_refuses_removes_or_invites() {
    let id = UserId::from("@people:test");
    let bare = Actor { channel: EntryChannel::Bare, ..actor(&id) };
    let guarded = AccessLists { trust: Some(AuthorTrust::Verified), secure_only: true, ..lists() };
    for lists in [lists(), guarded] {
        let decide = |action| AccessPolicy::Listed(lists.clone()).authorize(bare, PlaceKind::Room, action);
        for action in [AccessAction::Reaction, AccessAction::Deny, AccessAction::Delete, AccessAction::Invite]
        {
            assert_eq!(decide(action), allow(AccessRule::Listed), "{action:?}");
        }
        let others = [AccessAction::Message, AccessAction::Edit].into_iter();
        for action in others
            .chain(GrantScope::ALL.map(AccessAction::Approve))
            .chain(ChatCommand::all().map(AccessAction::Command))
        {
            assert_eq!(decide(action), deny(AccessRule::Plain), "{action:?}");
        }
    }
}

#[test]
fn how_an_event_came_is_known_by_its_kind() {
    let event = |secure, kind| RoomEvent {
        id: "$1".into(),
        place: talaria_platform::Place::room("!all"),
        room: talaria_platform::RoomInfo::default(),
        author: talaria_platform::EventAuthor {
            id: ANN.into(),
            name: None,
            trust: AuthorTrust::Network,
            bot: false,
            device: None,
        },
        secure,
        kind,
    };
    let reacted = || RoomEventKind::Reacted { to: "$2".into(), mark: "❌".to_owned() };
    assert_eq!(EntryChannel::of(&event(false, reacted())), EntryChannel::Bare);
    assert_eq!(EntryChannel::of(&event(true, reacted())), EntryChannel::Secure);
    for kind in [
        RoomEventKind::Message(talaria_platform::IncomingMessage::text("x")),
        RoomEventKind::Edited { of: "$2".into(), text: String::new() },
        RoomEventKind::Deleted { of: "$2".into() },
        RoomEventKind::Left,
        RoomEventKind::Joined,
        RoomEventKind::Unreadable,
        RoomEventKind::Missed { count: 1 },
    ] {
        assert_eq!(EntryChannel::of(&event(false, kind.clone())), EntryChannel::Plain, "{kind:?}");
        assert_eq!(EntryChannel::of(&event(true, kind.clone())), EntryChannel::Secure, "{kind:?}");
    }
}

#[test]
fn pairing_opens_direct_chats_and_nothing_else() {
    let pairing = AccessLists { pairing: true, ..lists() };
    let id = UserId::from(ANN);
    let paired = Actor { paired: true, ..actor(&id) };
    let decide = |lists: &AccessLists, actor, place, action| {
        AccessPolicy::Listed(lists.clone()).authorize(actor, place, action)
    };
    assert_eq!(decide(&pairing, paired, PlaceKind::Direct, AccessAction::Message), allow(AccessRule::Paired));
    assert_eq!(decide(&pairing, paired, PlaceKind::Room, AccessAction::Message), deny(AccessRule::NotListed));
    // With pairing switched off, an earlier pairing no longer counts.
    assert_eq!(
        decide(&lists(), paired, PlaceKind::Direct, AccessAction::Message),
        deny(AccessRule::NotListed)
    );
    // A stranger may open a direct chat with us to ask for a code, and do nothing else.
    assert_eq!(
        decide(&pairing, actor(&id), PlaceKind::Direct, AccessAction::Invite),
        allow(AccessRule::Pairing)
    );
    assert_eq!(
        decide(&pairing, actor(&id), PlaceKind::Room, AccessAction::Invite),
        deny(AccessRule::NotListed)
    );
    assert_eq!(
        decide(&pairing, actor(&id), PlaceKind::Direct, AccessAction::Message),
        deny(AccessRule::NotListed)
    );
    assert_eq!(
        decide(&lists(), actor(&id), PlaceKind::Direct, AccessAction::Invite),
        deny(AccessRule::NotListed)
    );
}

#[test]
fn strangers_may_ask_for_a_code_only_where_that_is_switched_on() {
    assert!(AccessPolicy::Listed(AccessLists { pairing: true, ..lists() }).pairs());
    assert!(!AccessPolicy::Listed(lists()).pairs());
    assert!(!AccessPolicy::Owner.pairs());
}

#[test]
fn nobody_is_answered_in_the_clear_where_encryption_is_needed() {
    let guarded = AccessPolicy::Listed(AccessLists { secure_only: true, ..lists() });
    for channel in [EntryChannel::Secure, EntryChannel::Plain, EntryChannel::Bare] {
        assert_eq!(guarded.serves(channel), channel != EntryChannel::Plain, "{channel:?}");
        assert!(AccessPolicy::Listed(lists()).serves(channel) && AccessPolicy::Owner.serves(channel));
    }
}

#[test]
fn everybody_may_talk_where_that_is_written_but_is_no_admin() {
    let open = || AccessLists { allow_all: true, ..lists() };
    for place in [PlaceKind::Direct, PlaceKind::Room] {
        assert_eq!(decide(open(), ANN, place, AccessAction::Message), allow(AccessRule::Everybody));
        assert_eq!(
            decide(open(), ANN, place, AccessAction::Approve(GrantScope::Always)),
            deny(AccessRule::AdminsOnly)
        );
        assert_eq!(decide(open(), "@people:test", place, AccessAction::Message), allow(AccessRule::Listed));
    }
}

#[test]
fn what_is_for_admins_is_for_nobody_else() {
    let guarded = |command| AccessLists { admin_commands: BTreeSet::from([command]), ..lists() };
    let as_people = |lists, action| decide(lists, "@people:test", PlaceKind::Room, action);
    for command in ChatCommand::all() {
        let action = AccessAction::Command(command);
        let usual = match command.is_for_admins() {
            true => deny(AccessRule::AdminsOnly),
            false => allow(AccessRule::Listed),
        };
        assert_eq!(as_people(lists(), action), usual, "{command:?}");
        assert_eq!(as_people(guarded(command), action), deny(AccessRule::AdminsOnly));
        assert_eq!(
            decide(guarded(command), "@admin:test", PlaceKind::Room, action),
            allow(AccessRule::Admin)
        );
        // A stranger does not even learn that the command is for admins.
        assert_eq!(decide(guarded(command), ANN, PlaceKind::Room, action), deny(AccessRule::NotListed));
    }
    for grant in [GrantScope::Once, GrantScope::Session] {
        assert_eq!(as_people(lists(), AccessAction::Approve(grant)), allow(AccessRule::Listed));
        // `/answer` is the same action.
        for command in [ChatCommand::Approve, ChatCommand::Answer] {
            assert_eq!(
                as_people(guarded(command), AccessAction::Approve(grant)),
                deny(AccessRule::AdminsOnly)
            );
        }
        assert_eq!(
            as_people(guarded(ChatCommand::Deny), AccessAction::Approve(grant)),
            allow(AccessRule::Listed)
        );
    }
    assert_eq!(as_people(lists(), AccessAction::Approve(GrantScope::Always)), deny(AccessRule::AdminsOnly));
    assert_eq!(as_people(lists(), AccessAction::Deny), allow(AccessRule::Listed));
    assert_eq!(as_people(guarded(ChatCommand::Deny), AccessAction::Deny), deny(AccessRule::AdminsOnly));
    assert_eq!(as_people(guarded(ChatCommand::Approve), AccessAction::Deny), allow(AccessRule::Listed));
    for action in [
        AccessAction::Message,
        AccessAction::Edit,
        AccessAction::Delete,
        AccessAction::Reaction,
        AccessAction::Invite,
    ] {
        let all = AccessLists { admin_commands: ChatCommand::all().collect(), ..lists() };
        assert_eq!(as_people(all, action), allow(AccessRule::Listed));
    }
}

#[test]
fn the_audit_tells_actions_and_rules_apart() {
    let actions = [
        AccessAction::Message,
        AccessAction::Edit,
        AccessAction::Delete,
        AccessAction::Reaction,
        AccessAction::Deny,
        AccessAction::Invite,
    ];
    let actions = actions
        .into_iter()
        .chain(GrantScope::ALL.map(AccessAction::Approve))
        // The one command that exists in tests only is never on record.
        .chain(
            ChatCommand::all().filter(|command| command.name() != "self-check").map(AccessAction::Command),
        );
    let names: Vec<_> = actions.map(AccessAction::name).collect();
    insta::assert_snapshot!(names.join(", "), @"message, edit, delete, reaction, deny, invite, approve once, approve session, approve always, command help, command new, command agent, command model, command stop, command retry, command undo, command status, command sessions, command resume, command title, command whoami, command usage, command memory, command skills, command approve, command deny, command answer, command approvals, command codex-runtime");
    let rules = [
        AccessRule::Owner,
        AccessRule::Admin,
        AccessRule::Listed,
        AccessRule::Paired,
        AccessRule::Everybody,
        AccessRule::Pairing,
        AccessRule::Violated,
        AccessRule::Bot,
        AccessRule::Left,
        AccessRule::Untrusted,
        AccessRule::Plain,
        AccessRule::AdminsOnly,
        AccessRule::NotListed,
    ];
    insta::assert_snapshot!(rules.map(AccessRule::name).join(", "), @"owner, admin, listed, paired, everybody, pairing, violated, bot, left, untrusted, plain, admins only, not listed");
    assert_eq!([true, false].map(PlaceKind::from), [PlaceKind::Direct, PlaceKind::Room]);
    assert_eq!([PlaceKind::Direct, PlaceKind::Room].map(PlaceKind::name), ["direct", "room"]);
}

#[test]
fn whoever_is_on_any_list_may_be_let_in() {
    let may = |lists: AccessLists, id: &str| AccessPolicy::Listed(lists).may_admit(&id.into());
    for id in ["@admin:test", "@people:test", "@direct:test", "@rooms:test"] {
        assert!(may(lists(), id), "{id}");
        assert!(!may(AccessLists::default(), id), "{id}");
    }
    assert!(!may(lists(), ANN));
    assert!(!may(AccessLists { pairing: true, ..lists() }, ANN), "a stranger who may ask is a stranger");
    assert!(may(AccessLists { allow_all: true, ..AccessLists::default() }, ANN));
    assert!(AccessPolicy::Owner.may_admit(&ANN.into()));
}
