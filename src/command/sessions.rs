//! Commands about sessions and people: `/sessions /resume /title /whoami /usage`.

use super::{Desk, Done, say};
use crate::session::SessionKey;
use crate::store::{Result, Session};
use crate::words::Text;

pub(super) fn list(_desk: &Desk<'_>, _key: &SessionKey) -> Result<Done> {
    say(Text::NothingRunning)
}

pub(super) fn resume(_desk: &Desk<'_>, _key: &SessionKey, _behind: &str) -> Result<Done> {
    say(Text::NothingRunning)
}

pub(super) fn title(_desk: &Desk<'_>, _session: &Session, _behind: &str) -> Result<Done> {
    say(Text::NothingRunning)
}

pub(super) fn whoami(_desk: &Desk<'_>) -> Result<Done> {
    say(Text::NothingRunning)
}

pub(super) fn usage(_desk: &Desk<'_>, _session: &Session) -> Result<Done> {
    say(Text::NothingRunning)
}
