//! Commands about asks: `/approve` and `/deny`.

use talaria_platform::MessageId;

use super::{After, Desk, Done, say};
use crate::access::Grant;
use crate::hub::One;
use crate::store::Result;
use crate::words::Text;

/// How far an approval with these words behind it would reach.
pub fn wanted(behind: &str) -> Grant {
    let named = |grant: &Grant| behind.split_whitespace().any(|word| word.eq_ignore_ascii_case(grant.name()));
    // The furthest of those named: that is what must be permitted.
    Grant::ALL.into_iter().rev().find(named).unwrap_or(Grant::Once)
}

pub(super) fn approve(_desk: &Desk<'_>, _behind: &str) -> Result<Done> {
    say(Text::NothingRunning)
}

pub(super) fn deny(_desk: &Desk<'_>, _behind: &str) -> Result<Done> {
    say(Text::NothingRunning)
}

/// A mark on a message of ours.
pub fn reaction(_one: &One<'_>, _to: &MessageId, _mark: &str) -> Result<Vec<After>> {
    Ok(Vec::new())
}
