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
    Actor { id, trust: Trust::Network, bot: false, paired: false, left: false }
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
