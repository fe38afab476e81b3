//! Every line of the rules.

use super::*;

const ANN: &str = "@ann:test";

fn lists() -> Lists {
    let set = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect();
    Lists {
        admins: set(&["@admin:test"]),
        people: set(&["@people:test"]),
        direct: set(&["@direct:test"]),
        rooms: set(&["@rooms:test"]),
        ..Lists::default()
    }
}

fn actor(id: &UserId) -> Actor<'_> {
    let (trust, channel) = (Trust::Network, Channel::Secure);
    Actor { id, trust, channel, bot: false, paired: false, left: false }
}

fn decide(lists: Lists, id: &str, place: Where, action: Action) -> Decision {
    Policy::Listed(lists).authorize(actor(&id.into()), place, action)
}

#[test]
fn empty_lists_let_nobody_do_anything() {
    let actions =
        [Action::Message, Action::Edit, Action::Delete, Action::Reaction, Action::Deny, Action::Invite];
    for action in
        actions.into_iter().chain(Grant::ALL.map(Action::Approve)).chain(Command::all().map(Action::Command))
    {
        for place in [Where::Direct, Where::Room] {
            assert_eq!(decide(Lists::default(), ANN, place, action), deny(Rule::NotListed));
        }
    }
}

#[test]
fn each_list_counts_where_it_says() {
    for (id, direct, room) in [
        ("@admin:test", allow(Rule::Admin), allow(Rule::Admin)),
        ("@people:test", allow(Rule::Listed), allow(Rule::Listed)),
        ("@direct:test", allow(Rule::Listed), deny(Rule::NotListed)),
        ("@rooms:test", deny(Rule::NotListed), allow(Rule::Listed)),
        (ANN, deny(Rule::NotListed), deny(Rule::NotListed)),
    ] {
        assert_eq!(decide(lists(), id, Where::Direct, Action::Message), direct, "{id}");
        assert_eq!(decide(lists(), id, Where::Room, Action::Message), room, "{id}");
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
        assert_eq!(decide(lists(), like, Where::Direct, Action::Message), deny(Rule::NotListed), "{like:?}");
    }
}

#[test]
fn the_owner_may_do_everything_but_a_contradicted_author_nothing() {
    let id = UserId::from(ANN);
    let everything = [Action::Message, Action::Approve(Grant::Always), Action::Invite];
    for action in everything {
        let owner = Policy::Owner.authorize(actor(&id), Where::Room, action);
        assert_eq!(owner, allow(Rule::Owner));
        let forged = Actor { trust: Trust::Violated, ..actor(&id) };
        assert_eq!(Policy::Owner.authorize(forged, Where::Room, action), deny(Rule::Violated));
    }
}

#[test]
fn what_speaks_against_somebody_comes_first() {
    let admin = UserId::from("@admin:test");
    let with_trust = Lists { trust: Some(Trust::CrossSigned), ..lists() };
    let decide = |lists: Lists, actor| Policy::Listed(lists).authorize(actor, Where::Room, Action::Message);
    for (actor, rule) in [
        (Actor { trust: Trust::Violated, ..actor(&admin) }, Rule::Violated),
        (Actor { bot: true, ..actor(&admin) }, Rule::Bot),
        (Actor { left: true, ..actor(&admin) }, Rule::Left),
    ] {
        assert_eq!(decide(lists(), actor), deny(rule));
    }
    assert_eq!(decide(with_trust.clone(), actor(&admin)), deny(Rule::Untrusted));
    for enough in [Trust::CrossSigned, Trust::Verified] {
        assert_eq!(decide(with_trust.clone(), Actor { trust: enough, ..actor(&admin) }), allow(Rule::Admin));
    }
}

#[test]
fn a_doubt_is_about_those_whom_a_list_names() {
    let id = UserId::from(ANN);
    let guarded = Lists { trust: Some(Trust::CrossSigned), secure_only: true, ..lists() };
    for channel in [Channel::Secure, Channel::Plain, Channel::Bare] {
        let stranger = Actor { channel, ..actor(&id) };
        let decision = Policy::Listed(guarded.clone()).authorize(stranger, Where::Direct, Action::Message);
        assert_eq!(decision, deny(Rule::NotListed), "{channel:?}");
    }
}

#[test]
fn in_the_clear_nobody_is_heard_where_encryption_is_needed() {
    let open = lists();
    let guarded = Lists { secure_only: true, ..lists() };
    for (lists, channel, decision) in [
        (&open, Channel::Plain, allow(Rule::Admin)),
        (&open, Channel::Secure, allow(Rule::Admin)),
        (&guarded, Channel::Plain, deny(Rule::Plain)),
        (&guarded, Channel::Secure, allow(Rule::Admin)),
    ] {
        let admin = UserId::from("@admin:test");
        let actor = Actor { channel, ..actor(&admin) };
        for action in [Action::Message, Action::Edit, Action::Deny, Action::Approve(Grant::Once)] {
            let decided = Policy::Listed(lists.clone()).authorize(actor, Where::Room, action);
            assert_eq!(decided, decision, "{channel:?} {action:?}");
        }
    }
}

#[test]
fn without_encryption_the_networks_word_is_taken_where_that_is_served() {
    let id = UserId::from("@people:test");
    let proven = Lists { trust: Some(Trust::Verified), ..lists() };
    let decide = |channel| {
        let actor = Actor { channel, ..actor(&id) };
        Policy::Listed(proven.clone()).authorize(actor, Where::Room, Action::Message)
    };
    assert_eq!(decide(Channel::Plain), allow(Rule::Listed));
    assert_eq!(decide(Channel::Secure), deny(Rule::Untrusted));
}

#[test]
fn what_nobody_can_prove_only_refuses_removes_or_invites() {
    let id = UserId::from("@people:test");
    let bare = Actor { channel: Channel::Bare, ..actor(&id) };
    let guarded = Lists { trust: Some(Trust::Verified), secure_only: true, ..lists() };
    for lists in [lists(), guarded] {
        let decide = |action| Policy::Listed(lists.clone()).authorize(bare, Where::Room, action);
        for action in [Action::Reaction, Action::Deny, Action::Delete, Action::Invite] {
            assert_eq!(decide(action), allow(Rule::Listed), "{action:?}");
        }
        let others = [Action::Message, Action::Edit].into_iter();
        for action in others.chain(Grant::ALL.map(Action::Approve)).chain(Command::all().map(Action::Command))
        {
            assert_eq!(decide(action), deny(Rule::Plain), "{action:?}");
        }
    }
}

#[test]
fn how_an_event_came_is_known_by_its_kind() {
    let event = |secure, kind| Event {
        id: "$1".into(),
        place: talaria_platform::Place::room("!all"),
        room: talaria_platform::Room::default(),
        author: talaria_platform::Author {
            id: ANN.into(),
            name: None,
            trust: Trust::Network,
            bot: false,
            device: None,
        },
        secure,
        kind,
    };
    let reacted = || EventKind::Reacted { to: "$2".into(), mark: "❌".to_owned() };
    assert_eq!(Channel::of(&event(false, reacted())), Channel::Bare);
    assert_eq!(Channel::of(&event(true, reacted())), Channel::Secure);
    for kind in [
        EventKind::Message(talaria_platform::Message::text("x")),
        EventKind::Edited { of: "$2".into(), text: String::new() },
        EventKind::Deleted { of: "$2".into() },
        EventKind::Left,
        EventKind::Joined,
        EventKind::Unreadable,
        EventKind::Missed { count: 1 },
    ] {
        assert_eq!(Channel::of(&event(false, kind.clone())), Channel::Plain, "{kind:?}");
        assert_eq!(Channel::of(&event(true, kind.clone())), Channel::Secure, "{kind:?}");
    }
}

#[test]
fn pairing_opens_direct_chats_and_nothing_else() {
    let pairing = Lists { pairing: true, ..lists() };
    let id = UserId::from(ANN);
    let paired = Actor { paired: true, ..actor(&id) };
    let decide =
        |lists: &Lists, actor, place, action| Policy::Listed(lists.clone()).authorize(actor, place, action);
    assert_eq!(decide(&pairing, paired, Where::Direct, Action::Message), allow(Rule::Paired));
    assert_eq!(decide(&pairing, paired, Where::Room, Action::Message), deny(Rule::NotListed));
    // Switched off, it no longer counts.
    assert_eq!(decide(&lists(), paired, Where::Direct, Action::Message), deny(Rule::NotListed));
    // A stranger may open a direct chat with us to ask for a code; that is all.
    assert_eq!(decide(&pairing, actor(&id), Where::Direct, Action::Invite), allow(Rule::Pairing));
    assert_eq!(decide(&pairing, actor(&id), Where::Room, Action::Invite), deny(Rule::NotListed));
    assert_eq!(decide(&pairing, actor(&id), Where::Direct, Action::Message), deny(Rule::NotListed));
    assert_eq!(decide(&lists(), actor(&id), Where::Direct, Action::Invite), deny(Rule::NotListed));
}

#[test]
fn strangers_may_ask_for_a_code_only_where_that_is_switched_on() {
    assert!(Policy::Listed(Lists { pairing: true, ..lists() }).pairs());
    assert!(!Policy::Listed(lists()).pairs());
    assert!(!Policy::Owner.pairs());
}

#[test]
fn nobody_is_answered_in_the_clear_where_encryption_is_needed() {
    let guarded = Policy::Listed(Lists { secure_only: true, ..lists() });
    for channel in [Channel::Secure, Channel::Plain, Channel::Bare] {
        assert_eq!(guarded.serves(channel), channel != Channel::Plain, "{channel:?}");
        assert!(Policy::Listed(lists()).serves(channel) && Policy::Owner.serves(channel));
    }
}

#[test]
fn everybody_may_talk_where_that_is_written_but_is_no_admin() {
    let open = || Lists { allow_all: true, ..lists() };
    for place in [Where::Direct, Where::Room] {
        assert_eq!(decide(open(), ANN, place, Action::Message), allow(Rule::Everybody));
        assert_eq!(decide(open(), ANN, place, Action::Approve(Grant::Always)), deny(Rule::AdminsOnly));
        assert_eq!(decide(open(), "@people:test", place, Action::Message), allow(Rule::Listed));
    }
}

#[test]
fn what_is_for_admins_is_for_nobody_else() {
    let guarded = |command| Lists { admin_commands: BTreeSet::from([command]), ..lists() };
    let as_people = |lists, action| decide(lists, "@people:test", Where::Room, action);
    for command in Command::all() {
        let action = Action::Command(command);
        assert_eq!(as_people(lists(), action), allow(Rule::Listed));
        assert_eq!(as_people(guarded(command), action), deny(Rule::AdminsOnly));
        assert_eq!(decide(guarded(command), "@admin:test", Where::Room, action), allow(Rule::Admin));
        // A stranger does not even learn that it is for admins.
        assert_eq!(decide(guarded(command), ANN, Where::Room, action), deny(Rule::NotListed));
    }
    for grant in [Grant::Once, Grant::Session] {
        assert_eq!(as_people(lists(), Action::Approve(grant)), allow(Rule::Listed));
        assert_eq!(as_people(guarded(Command::Approve), Action::Approve(grant)), deny(Rule::AdminsOnly));
        assert_eq!(as_people(guarded(Command::Deny), Action::Approve(grant)), allow(Rule::Listed));
    }
    assert_eq!(as_people(lists(), Action::Approve(Grant::Always)), deny(Rule::AdminsOnly));
    assert_eq!(as_people(lists(), Action::Deny), allow(Rule::Listed));
    assert_eq!(as_people(guarded(Command::Deny), Action::Deny), deny(Rule::AdminsOnly));
    assert_eq!(as_people(guarded(Command::Approve), Action::Deny), allow(Rule::Listed));
    for action in [Action::Message, Action::Edit, Action::Delete, Action::Reaction, Action::Invite] {
        let all = Lists { admin_commands: Command::all().collect(), ..lists() };
        assert_eq!(as_people(all, action), allow(Rule::Listed));
    }
}

#[test]
fn the_audit_tells_actions_and_rules_apart() {
    let actions =
        [Action::Message, Action::Edit, Action::Delete, Action::Reaction, Action::Deny, Action::Invite];
    let actions =
        actions.into_iter().chain(Grant::ALL.map(Action::Approve)).chain(Command::all().map(Action::Command));
    let names: Vec<_> = actions.map(Action::name).collect();
    insta::assert_snapshot!(names.join(", "), @"message, edit, delete, reaction, deny, invite, approve once, approve session, approve always, command help, command new, command stop, command retry, command undo, command status, command sessions, command resume, command title, command whoami, command usage, command approve, command deny");
    let rules = [
        Rule::Owner,
        Rule::Admin,
        Rule::Listed,
        Rule::Paired,
        Rule::Everybody,
        Rule::Pairing,
        Rule::Violated,
        Rule::Bot,
        Rule::Left,
        Rule::Untrusted,
        Rule::Plain,
        Rule::AdminsOnly,
        Rule::NotListed,
    ];
    insta::assert_snapshot!(rules.map(Rule::name).join(", "), @"owner, admin, listed, paired, everybody, pairing, violated, bot, left, untrusted, plain, admins only, not listed");
    assert_eq!([true, false].map(Where::from), [Where::Direct, Where::Room]);
    assert_eq!([Where::Direct, Where::Room].map(Where::name), ["direct", "room"]);
}

#[test]
fn whoever_is_on_any_list_may_be_let_in() {
    let may = |lists: Lists, id: &str| Policy::Listed(lists).may_admit(&id.into());
    for id in ["@admin:test", "@people:test", "@direct:test", "@rooms:test"] {
        assert!(may(lists(), id), "{id}");
        assert!(!may(Lists::default(), id), "{id}");
    }
    assert!(!may(lists(), ANN));
    assert!(!may(Lists { pairing: true, ..lists() }, ANN), "a stranger who may ask is a stranger");
    assert!(may(Lists { allow_all: true, ..Lists::default() }, ANN));
    assert!(Policy::Owner.may_admit(&ANN.into()));
}
