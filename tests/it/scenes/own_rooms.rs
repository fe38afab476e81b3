//! A room can have a list of its own, which holds there and nowhere else.

use std::collections::HashMap;

use talaria::access::{Lists, Policy};
use talaria::rules::{AccountRules, PlaceRules};
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};

fn lists(admins: &[&str], people: &[&str]) -> Lists {
    let set = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect();
    Lists { admins: set(admins), people: set(people), ..Lists::default() }
}

#[tokio::test(start_paused = true)]
async fn a_rooms_own_list_replaces_the_others_but_not_the_admins() {
    let account = AccountRules::listed(Lists { pairing: true, ..lists(&["@root:test"], &["@ann:test"]) });
    let own = Policy::Listed(lists(&["@root:test"], &["@bob:test"]));
    let place = PlaceRules { access: Some(own), ..PlaceRules::default() };
    let rules = AccountRules { places: HashMap::from([("!all".into(), place)]), ..account };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let (room, direct) = (gateway.shared_room(), gateway.room());
    assert_eq!(room.name, "!all");

    for who in ["@ann", "@bob", "@root"] {
        room.says(who, "hello").await;
        room.settled().await;
        direct.says(who, "hello").await;
        direct.settled().await;
    }
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|heard| heard.prompt).collect();
    insta::assert_snapshot!(heard.join("\n"), @r#"
    hello
    "bob" (@bob:test): hello
    "root" (@root:test): hello
    hello
    "#);
    assert!(!room.invites("@ann").await && room.invites("@bob").await && direct.invites("@ann").await);
}
