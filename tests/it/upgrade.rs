//! A database that an earlier version left behind is opened by this one, and everything in it goes on as promised.
//!
//! `upgrade/written_by_c132097.sql` is the stored copy; its head says how it was made. [`written`] makes another one.

mod apps;
mod rooms;
mod written;

use talaria::ids::AgentName;
use talaria::rules::{AccountRules, PlaceRules};
use talaria_platform::{BodyKind, MessageBody, Place, Platform as _, SendKey};

use crate::support::gateway::{Setup, TestGateway};

/// A process of commit c132097 was killed with this database.
const WRITTEN_BY_C132097: &str = include_str!("upgrade/written_by_c132097.sql");

/// Settings of the gateway that left the database behind, and of the one that opens it.
fn setup() -> Setup {
    let lab = PlaceRules { agent: Some(AgentName::local()), ..PlaceRules::default() };
    let rules = Setup::default().rules;
    let rules = AccountRules { places: [("!lab".into(), lab)].into(), ..rules };
    Setup { resumable: true, rules, ..Setup::default() }
}

/// People's messages before the process was killed, in order.
const PEOPLE_SAID: [(&str, &str, &str); 5] = [
    ("!home", "@ann", "when is tea?"),
    ("!home", "@ann", "clean up"),
    ("!home", "@ann", "and then?"),
    ("!all", "@bob", "who is in?"),
    ("!lab", "@ann", "which model are you?"),
];

/// Messages of ours that the network had when the process was killed: the key and the kind of each, and the text.
const WE_SAID: [(&str, BodyKind, &str); 3] = [
    ("t.9617b11343486357.0", BodyKind::Answer, "Tea is at four."),
    ("t.5d7dd750c6096029.0", BodyKind::Answer, "Looking around."),
    ("a.6c495ed9219ca386209a763245acd82c", BodyKind::Ask, "May I delete the build?"),
];

/// A gateway that has yet to start, with the stored database in its folder and the chat network as that process left it.
async fn left_behind() -> TestGateway {
    let gateway = TestGateway::unstarted(setup());
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    database.execute_batch(WRITTEN_BY_C132097).unwrap();
    // The process was killed a moment ago, so nothing is too old to be kept.
    let recent = "UPDATE sessions SET used = unixepoch(); UPDATE idempotency SET at = unixepoch();";
    database.execute_batch(recent).unwrap();
    for (room, who, text) in PEOPLE_SAID {
        gateway.direct_room(room).posts(who, text, Vec::new());
    }
    for (key, kind, text) in WE_SAID {
        let body = MessageBody::new(kind, text.to_owned());
        gateway.chat().send(&Place::room("!home"), &SendKey::new(key), &body).await.unwrap();
    }
    gateway
}
