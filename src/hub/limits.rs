//! How much one person may ask.

use super::accept::EventContext;
use super::loop_guard;
use crate::access::AccessAction;
use crate::command::ChatCommand;
use crate::i18n::{LocalizedText, TextKey};
use crate::rules::PersonLimits;
use crate::store::{LimitCount, Result, unix_now};
use crate::util::hash;

/// Whether somebody who may do something, or may learn that they may not, is heard this time.
pub(super) enum LimitVerdict {
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
    pub notice: Option<LocalizedText>,
}

/// Looks whether an action is one too many. `text` is what was written.
pub(super) fn check(context: &EventContext<'_>, action: AccessAction, text: &str) -> Result<LimitVerdict> {
    let Some(limits) = context.rules.limits else { return Ok(LimitVerdict::Full) };
    // What was written in hours comes in one second then, and what is refused now nobody sends again. It counts all
    // the same: whoever goes on like that is refused from the next message on.
    if context.late {
        return Ok(LimitVerdict::Full);
    }
    match action {
        // Whoever wants less of us must always be heard, and whoever is asked may always answer. But that we say
        // something each time would be a way to have us talk without end.
        AccessAction::Command(ChatCommand::Stop) | AccessAction::Deny | AccessAction::Approve(_) => {
            return Ok(if is_beyond(context, limits)? { LimitVerdict::Quiet } else { LimitVerdict::Full });
        }
        AccessAction::Message | AccessAction::Command(_) => {}
        AccessAction::Edit | AccessAction::Delete | AccessAction::Reaction | AccessAction::Invite => {
            return Ok(LimitVerdict::Full);
        }
    }
    // Silence first: that it is too much would be something said, too.
    if limits.loop_guard
        && let Some(silent) = loop_guard::silence(context)?
    {
        return Ok(LimitVerdict::Refused(silent));
    }
    let refused = match too_many(context, limits)? {
        None if limits.loop_guard && action == AccessAction::Message => loop_guard::check(context, text)?,
        refused => refused,
    };
    Ok(refused.map_or(LimitVerdict::Full, LimitVerdict::Refused))
}

/// Whether somebody has had as many answers as a person may.
fn is_beyond(context: &EventContext<'_>, limits: PersonLimits) -> Result<bool> {
    for (window, limit) in [(60, limits.per_minute), (3600, limits.per_hour)] {
        let since = unix_now() - window;
        if context
            .tx
            .nth_heard(context.account(), &context.event.author.id, LimitCount::Anything, since, limit)?
            .is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether somebody asks too much. The room is told once in each window, and when it goes on.
fn too_many(context: &EventContext<'_>, limits: PersonLimits) -> Result<Option<TooMuch>> {
    let (account, author, now) = (context.account(), &context.event.author.id, unix_now());
    for (rule, window, limit, text) in [
        ("limit minute", 60, limits.per_minute, TextKey::LimitMinute),
        ("limit hour", 3600, limits.per_hour, TextKey::LimitHour),
    ] {
        let Some(first) = context.tx.nth_heard(account, author, LimitCount::Asking, now - window, limit)?
        else {
            continue;
        };
        // Told again only once everything that fills the window came after the notice before. Whoever writes on and
        // on would otherwise be told for each message that leaves the window.
        let key = format!("limit.{}", hash([rule, account.as_str(), author.as_str()]));
        let told = context.tx.setting(&key)?.and_then(|at| at.parse().ok());
        if told.is_some_and(|at: i64| (first..=now).contains(&at)) {
            return Ok(Some(TooMuch { rule, notice: None }));
        }
        context.tx.set_setting(&key, &now.to_string())?;
        let wait = usize::try_from(first + window - now).unwrap_or_default().max(1);
        let (unit, wait) = if window == 60 { ("seconds", wait) } else { ("minutes", wait.div_ceil(60)) };
        let notice = text.with("limit", limit).with(unit, wait);
        return Ok(Some(TooMuch { rule, notice: Some(notice) }));
    }
    Ok(None)
}
