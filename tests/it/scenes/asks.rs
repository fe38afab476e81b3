//! An agent asks a person during a turn; nothing runs without a valid approval.

mod answers;
mod ends;
mod grants;
mod interleavings;
mod options;
mod reasons;
mod shown;
mod who;

use std::time::Duration;

use talaria::access::AccessLists;
use talaria::rules::AccountRules;
use talaria::store::{AuditFilter, AuditRow, Tx};
use talaria_platform::UserId;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

/// The time that people have to answer.
const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// Ann and Bob may talk everywhere, Ada is an admin, everybody else is a stranger.
pub fn people() -> AccountRules {
    let set = |ids: &[&str]| ids.iter().map(|id| UserId::from(*id)).collect();
    let lists = AccessLists {
        admins: set(&["@ada:test"]),
        people: set(&["@ann:test", "@bob:test"]),
        ..AccessLists::default()
    };
    AccountRules { limits: None, ..AccountRules::listed(lists) }
}

/// A gateway with the rules of [`people`].
pub async fn gateway() -> TestGateway {
    TestGateway::with(Setup { rules: people(), ..Setup::default() }).await
}

/// The room when nothing changes any more, with every code masked.
async fn settled(room: &Room) -> String {
    room.settled().await;
    masked(room)
}

fn masked(room: &Room) -> String {
    let mut text = room.now();
    for asked in room.asked() {
        text = text.replace(&asked.code, "CODE").replace(&asked.code.to_lowercase(), "code");
    }
    text
}

/// The outcome of every ask, one line each.
pub async fn outcomes(gateway: &TestGateway) -> Vec<String> {
    let rows = gateway.store().read(|tx: &Tx<'_>| tx.audited(&AuditFilter::default())).await.unwrap();
    let line = |row: &AuditRow| {
        format!("{} {} by {} ({})", row.action, if row.allowed { "yes" } else { "no" }, row.actor, row.rule)
    };
    rows.iter().filter(|row| row.action.starts_with("ask")).map(line).collect()
}
