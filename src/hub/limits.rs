//! Rate limits of one person.

use super::accept::EventContext;
use super::loop_guard;
use crate::access::AccessAction;
use crate::chat_command::ChatCommand;
use crate::i18n::{LocalizedText, TextKey};
use crate::rules::PersonLimits;
use crate::store::{LimitCount, Result, unix_now};
use crate::util::hash;

/// Result of the limits for a person who may do an action, or who may learn that they may not.
pub(super) enum LimitVerdict {
    /// Act and answer.
    Full,
    /// Act without an answer: an answer would be one too many.
    Quiet,
    /// Do nothing.
    Refused(TooMuch),
}

/// Reason why an action is one too many.
pub(super) struct TooMuch {
    /// Name of the rule, for the audit.
    pub rule: &'static str,
    /// Notice for the room; `None` if the room was told already.
    pub notice: Option<LocalizedText>,
}

/// Checks whether an action is one too many. `text` is the text of the message.
pub(super) fn check(context: &EventContext<'_>, action: AccessAction, text: &str) -> Result<LimitVerdict> {
    let Some(limits) = context.rules.limits else { return Ok(LimitVerdict::Full) };
    // After an outage, messages of hours come within a second, and nobody sends a refused one again. They count all the
    // same: a person who goes on like that is refused from the next message on.
    if context.late {
        return Ok(LimitVerdict::Full);
    }
    match action {
        // A person who wants us to do less must always be heard, and a person who is asked may always answer. But an
        // answer of ours each time would let them make us talk without end.
        AccessAction::Command(ChatCommand::Stop) | AccessAction::Deny | AccessAction::Approve(_) => {
            return Ok(if is_beyond(context, limits)? { LimitVerdict::Quiet } else { LimitVerdict::Full });
        }
        AccessAction::Message | AccessAction::Command(_) => {}
        AccessAction::Edit | AccessAction::Delete | AccessAction::Reaction | AccessAction::Invite => {
            return Ok(LimitVerdict::Full);
        }
    }
    // Silence comes first: a notice about the limit would be an answer, too.
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

/// Whether a person has had as many answers as the limits allow.
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

/// Whether a person asks too often. The room is told once in each window in which they go on.
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
        // Told again only once every message that fills the window came after the last notice. A person who keeps
        // writing would otherwise be told for each message that leaves the window.
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
