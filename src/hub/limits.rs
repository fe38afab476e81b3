//! How much one person may ask.

use super::loop_guard;
use super::taking::One;
use crate::access::Action;
use crate::command::Command;
use crate::rules::Limits;
use crate::session::hash;
use crate::store::{Heard, Result, unix_now};
use crate::words::{Phrase, Text};

/// Whether somebody who may do something, or may learn that they may not, is heard this time.
pub(super) enum Hearing {
    /// It is done and answered.
    Full,
    /// It is done. An answer would be one too many.
    Quiet,
    /// Nothing is done.
    Refused(TooMuch),
}

/// Why somebody is not heard this time.
pub(super) struct TooMuch {
    /// What decided it, for the audit.
    pub rule: &'static str,
    /// What the room is told; `None` if it was told already.
    pub notice: Option<Phrase>,
}

/// Looks whether an action is one too many. `text` is what was written.
pub(super) fn check(one: &One<'_>, action: Action, text: &str) -> Result<Hearing> {
    let Some(limits) = one.rules.limits else { return Ok(Hearing::Full) };
    // What was written in hours comes in one second then, and what is refused now nobody sends again. It counts all
    // the same: whoever goes on like that is refused from the next message on.
    if one.late {
        return Ok(Hearing::Full);
    }
    match action {
        // Whoever wants less of us must always be heard, and whoever is asked may always answer. But that we say
        // something each time would be a way to have us talk without end.
        Action::Command(Command::Stop) | Action::Deny | Action::Approve(_) => {
            return Ok(if is_beyond(one, limits)? { Hearing::Quiet } else { Hearing::Full });
        }
        Action::Message | Action::Command(_) => {}
        Action::Edit | Action::Delete | Action::Reaction | Action::Invite => return Ok(Hearing::Full),
    }
    // Silence first: that it is too much would be something said, too.
    if limits.loop_guard
        && let Some(silent) = loop_guard::silence(one)?
    {
        return Ok(Hearing::Refused(silent));
    }
    let refused = match too_many(one, limits)? {
        None if limits.loop_guard && action == Action::Message => loop_guard::check(one, text)?,
        refused => refused,
    };
    Ok(refused.map_or(Hearing::Full, Hearing::Refused))
}

/// Whether somebody has had as many answers as a person may.
fn is_beyond(one: &One<'_>, limits: Limits) -> Result<bool> {
    for (window, limit) in [(60, limits.per_minute), (3600, limits.per_hour)] {
        let since = unix_now() - window;
        if one.tx.nth_heard(one.account(), &one.event.author.id, Heard::Anything, since, limit)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether somebody asks too much. The room is told once in each window, and when it goes on.
fn too_many(one: &One<'_>, limits: Limits) -> Result<Option<TooMuch>> {
    let (account, author, now) = (one.account(), &one.event.author.id, unix_now());
    for (rule, window, limit, text) in [
        ("limit minute", 60, limits.per_minute, Text::LimitMinute),
        ("limit hour", 3600, limits.per_hour, Text::LimitHour),
    ] {
        let Some(first) = one.tx.nth_heard(account, author, Heard::Asking, now - window, limit)? else {
            continue;
        };
        // Told again only once everything that fills the window came after the notice before. Whoever writes on and
        // on would otherwise be told for each message that leaves the window.
        let key = format!("limit.{}", hash([rule, account.as_str(), author.as_str()]));
        let told = one.tx.setting(&key)?.and_then(|at| at.parse().ok());
        if told.is_some_and(|at: i64| (first..=now).contains(&at)) {
            return Ok(Some(TooMuch { rule, notice: None }));
        }
        one.tx.set_setting(&key, &now.to_string())?;
        let wait = usize::try_from(first + window - now).unwrap_or_default().max(1);
        let (unit, wait) = if window == 60 { ("seconds", wait) } else { ("minutes", wait.div_ceil(60)) };
        let notice = text.with("limit", limit).with(unit, wait);
        return Ok(Some(TooMuch { rule, notice: Some(notice) }));
    }
    Ok(None)
}
