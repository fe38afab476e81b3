//! How much one person may ask, and that two programs do not talk to each other for ever.

use super::taking::One;
use crate::access::Action;
use crate::command::Command;
use crate::rules::Limits;
use crate::session::hash;
use crate::store::{Result, unix_now};
use crate::words::{Phrase, Text};

/// Answers in a row, each asked for within [`QUICK`] of the one before, after which we believe that a
/// program asks: nobody reads an answer and writes the next question that fast, that often.
const IN_A_ROW: usize = 8;

/// Seconds in which nobody has read an answer.
const QUICK: i64 = 3;

/// Seconds for which we are silent then.
const SILENCE: i64 = 600;

/// Why somebody who may do something is not heard this time.
pub(super) struct TooMuch {
    /// What decided it, for the audit.
    pub rule: &'static str,
    /// What the room is told; `None` if it was told already.
    pub notice: Option<Phrase>,
}

/// Looks whether an allowed action is one too many.
pub(super) fn check(one: &One<'_>, action: Action) -> Result<Option<TooMuch>> {
    match action {
        // Whoever wants less of us must always be heard.
        Action::Command(Command::Stop) | Action::Deny | Action::Approve(_) => return Ok(None),
        Action::Message | Action::Command(_) => {}
        Action::Edit | Action::Delete | Action::Reaction | Action::Invite => return Ok(None),
    }
    let Some(limits) = one.rules.limits else { return Ok(None) };
    match too_many(one, limits)? {
        Some(too_much) => Ok(Some(too_much)),
        None => looping(one, action),
    }
}

/// Whether somebody asks too much. The room is told once in each window.
fn too_many(one: &One<'_>, limits: Limits) -> Result<Option<TooMuch>> {
    let (account, author, now) = (one.account(), &one.event.author.id, unix_now());
    for (rule, window, limit, text) in [
        ("limit minute", 60, limits.per_minute, Text::LimitMinute),
        ("limit hour", 3600, limits.per_hour, Text::LimitHour),
    ] {
        if one.tx.heard(account, author, None, now - window)? < limit {
            continue;
        }
        let told = one.tx.heard(account, author, Some(rule), now - window)? > 0;
        return Ok(Some(TooMuch { rule, notice: (!told).then(|| text.with("limit", limit)) }));
    }
    Ok(None)
}

/// Whether two programs seem to talk to each other here. The room is told when the silence begins; it ends
/// with its time or when somebody else writes.
fn looping(one: &One<'_>, action: Action) -> Result<Option<TooMuch>> {
    let (tx, account, room, now) = (one.tx, one.account(), &one.event.place.room, unix_now());
    let author = one.event.author.id.as_str();
    let key = format!("loop.{}", hash([account.as_str(), room.as_str()]));
    let silent = tx.setting(&key)?.and_then(|text| parse_silence(&text));
    if let Some((until, whom)) = silent {
        if whom == author && (now..now + 2 * SILENCE).contains(&until) {
            return Ok(Some(TooMuch { rule: "loop", notice: None }));
        }
        tx.set_setting(&key, "")?;
    }
    if action != Action::Message || !tx.is_quick_row(account, room, author, IN_A_ROW, QUICK, now)? {
        return Ok(None);
    }
    tx.set_setting(&key, &format!("{} {author}", now + SILENCE))?;
    let minutes = usize::try_from(SILENCE / 60).unwrap_or_default();
    Ok(Some(TooMuch { rule: "loop", notice: Some(Text::LoopGuard.with("minutes", minutes)) }))
}

fn parse_silence(text: &str) -> Option<(i64, String)> {
    let (until, whom) = text.split_once(' ')?;
    Some((until.parse().ok()?, whom.to_owned()))
}
