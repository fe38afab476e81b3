//! How much one person may ask, and that programs do not talk to each other for ever.

use super::taking::One;
use crate::access::Action;
use crate::command::Command;
use crate::rules::Limits;
use crate::session::hash;
use crate::store::{Heard, Result, unix_now};
use crate::words::{Phrase, Text};

/// So many answers in a row, each asked for within so many seconds of the one before, after which we believe that
/// a program asks. Nobody reads an answer and writes the next question within three seconds, eight times; and
/// nobody goes on for forty without once taking half a minute, but a program that thinks before it writes does.
const ROWS: [(usize, i64); 2] = [(8, 3), (40, 30)];

/// Seconds for which we are silent then.
const SILENCE: i64 = 600;

/// What the audit calls that silence.
const LOOP: &str = "loop";

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

/// Looks whether an action is one too many.
pub(super) fn check(one: &One<'_>, action: Action) -> Result<Hearing> {
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
    if is_silent(one)? {
        return Ok(Hearing::Refused(TooMuch { rule: LOOP, notice: None }));
    }
    let refused = match too_many(one, limits)? {
        None if action == Action::Message => looping(one)?,
        refused => refused,
    };
    Ok(refused.map_or(Hearing::Full, Hearing::Refused))
}

/// Whether somebody has had as many answers as a person may.
fn is_beyond(one: &One<'_>, limits: Limits) -> Result<bool> {
    for (window, limit) in [(60, limits.per_minute), (3600, limits.per_hour)] {
        let since = unix_now() - window;
        if one.tx.heard(one.account(), &one.event.author.id, Heard::Anything, since)? >= limit {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether somebody asks too much. The room is told once in each window.
fn too_many(one: &One<'_>, limits: Limits) -> Result<Option<TooMuch>> {
    let (account, author, now) = (one.account(), &one.event.author.id, unix_now());
    for (rule, window, limit, text) in [
        ("limit minute", 60, limits.per_minute, Text::LimitMinute),
        ("limit hour", 3600, limits.per_hour, Text::LimitHour),
    ] {
        if one.tx.heard(account, author, Heard::Asking, now - window)? < limit {
            continue;
        }
        let told = one.tx.heard(account, author, Heard::Refused(rule), now - window)? > 0;
        return Ok(Some(TooMuch { rule, notice: (!told).then(|| text.with("limit", limit)) }));
    }
    Ok(None)
}

/// Whether programs seem to talk to each other here, whichever of them wrote. The room is told when the silence
/// begins.
fn looping(one: &One<'_>) -> Result<Option<TooMuch>> {
    let (tx, account, room, now) = (one.tx, one.account(), &one.event.place.room, unix_now());
    let mut found = None;
    for (count, quick) in ROWS {
        if found.is_none() && tx.is_quick_row(account, room, count, quick, now)? {
            found = Some(quick);
        }
    }
    let Some(quick) = found else { return Ok(None) };
    tx.set_setting(&silence_key(one), &format!("{} {now} {quick}", now + SILENCE))?;
    let minutes = usize::try_from(SILENCE / 60).unwrap_or_default();
    Ok(Some(TooMuch { rule: LOOP, notice: Some(Text::LoopGuard.with("minutes", minutes)) }))
}

/// Whether we are silent here. That ends with its time, or when somebody writes who let more time pass after
/// whoever wrote last than the programs did: those that answer one another never do.
fn is_silent(one: &One<'_>) -> Result<bool> {
    let (tx, key, now) = (one.tx, silence_key(one), unix_now());
    let Some(kept) = tx.setting(&key)? else { return Ok(false) };
    if let Some((until, last, quick)) = parse_silence(&kept)
        && (now..now + 2 * SILENCE).contains(&until)
        && (0..=quick).contains(&(now - last))
    {
        tx.set_setting(&key, &format!("{until} {now} {quick}"))?;
        return Ok(true);
    }
    tx.forget_setting(&key)?;
    Ok(false)
}

fn silence_key(one: &One<'_>) -> String {
    format!("loop.{}", hash([one.account().as_str(), one.event.place.room.as_str()]))
}

/// When the silence ends, when somebody last wrote, and how quick the programs were.
fn parse_silence(text: &str) -> Option<(i64, i64, i64)> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}
