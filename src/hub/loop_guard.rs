//! Detects programs that talk to each other through us, and stops answering them.
//!
//! Speed alone proves nothing: people do ask two seconds after each answer. So a row of quick prompts must also look
//! like a program: its author sends events that only bots send, the same few texts come again and again, or two or more
//! accounts take turns. Only a row without any pause at all is enough by itself. Other programs are bounded by the
//! limits per person.

use std::collections::HashSet;

use super::accept::EventContext;
use super::limits::TooMuch;
use crate::i18n::TextKey;
use crate::store::{LimitCount, RecentTurn, Result, unix_now};
use crate::util::hash;

/// A row of `turns` turns, each asked for within `seconds` seconds of the answer before.
#[derive(Clone, Copy)]
struct QuickRow {
    turns: usize,
    seconds: i64,
}

/// Nobody reads an answer and writes the next prompt within a second, eight times. Times are whole seconds, so this
/// means less than two.
const WITHOUT_PAUSE: QuickRow = QuickRow { turns: 8, seconds: 1 };

/// Rows that count if they look like a program. The second is for programs that think before they write.
const SUSPICIOUS: [QuickRow; 2] = [QuickRow { turns: 8, seconds: 3 }, QuickRow { turns: 40, seconds: 30 }];

/// Most different texts in a row that repeats. Few: people answer a quiz with the same four letters.
const REPEATED_TEXTS: usize = 2;

/// Seconds for which an account counts as a bot after it sent an event that only bots send.
const BOT_FOR: i64 = 24 * 60 * 60;

/// Seconds without answers.
const SILENCE: i64 = 600;

/// Name of the silence in the audit.
const RULE: &str = "loop";

/// Whether we are silent here. Silence ends with its time, or when somebody writes who let more time pass since the
/// last message than the programs did: programs that answer one another never do.
pub(super) fn silence(context: &EventContext<'_>) -> Result<Option<TooMuch>> {
    let (tx, key, now) = (context.tx, silence_key(context), unix_now());
    let Some(kept) = tx.setting(&key)? else { return Ok(None) };
    if let Some((until, last, quick)) = parse_silence(&kept)
        && (now..now + 2 * SILENCE).contains(&until)
        && (0..=quick).contains(&(now - last))
    {
        tx.set_setting(&key, &format!("{until} {now} {quick}"))?;
        return Ok(Some(TooMuch { rule: RULE, notice: None }));
    }
    tx.forget_setting(&key)?;
    Ok(None)
}

/// Whether programs seem to talk to each other here. The room is told when the silence begins.
pub(super) fn check(context: &EventContext<'_>, text: &str) -> Result<Option<TooMuch>> {
    let (tx, account, room, now) = (context.tx, context.account(), &context.event.place.room, unix_now());
    let longest = SUSPICIOUS.iter().map(|row| row.turns).max().unwrap_or_default();
    let recent = tx.recent_turns(account, room, longest)?;
    let author = &context.event.author.id;
    let mut found = is_quick(&recent, WITHOUT_PAUSE, now).then_some(WITHOUT_PAUSE);
    for row in SUSPICIOUS {
        if found.is_some() || !is_quick(&recent, row, now) {
            continue;
        }
        let turns = recent.get(..row.turns).unwrap_or_default();
        let is_bot = tx.nth_heard(account, author, LimitCount::Refused("bot"), now - BOT_FOR, 1)?.is_some();
        found = (is_bot || repeats(turns, text) || alternates(turns, author.as_str())).then_some(row);
    }
    let Some(row) = found else { return Ok(None) };
    tx.set_setting(&silence_key(context), &format!("{} {now} {}", now + SILENCE, row.seconds))?;
    let minutes = usize::try_from(SILENCE / 60).unwrap_or_default();
    Ok(Some(TooMuch { rule: RULE, notice: Some(TextKey::LoopGuard.with("minutes", minutes)) }))
}

/// Whether the latest turns (newest first), and one that would begin `now`, all began that quickly after the answer
/// before.
fn is_quick(recent: &[RecentTurn], row: QuickRow, now: i64) -> bool {
    let Some(turns) = recent.get(..row.turns) else { return false };
    let mut next = now;
    turns.iter().all(|turn| {
        let pause = turn.ended.map(|ended| next - ended);
        next = turn.created;
        pause.is_some_and(|pause| (0..=row.seconds).contains(&pause))
    })
}

/// Whether the same few texts come again and again.
fn repeats(turns: &[RecentTurn], text: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let texts: HashSet<_> =
        turns.iter().map(|turn| plain(&turn.prompt)).chain(std::iter::once(plain(text))).collect();
    texts.len() <= REPEATED_TEXTS
}

/// Whether no account asks twice in a row.
fn alternates(turns: &[RecentTurn], author: &str) -> bool {
    let authors = std::iter::once(author).chain(turns.iter().map(|turn| turn.author.as_str()));
    authors.clone().zip(authors.skip(1)).all(|(context, other)| context != other)
}

fn silence_key(context: &EventContext<'_>) -> String {
    format!("loop.{}", hash([context.account().as_str(), context.event.place.room.as_str()]))
}

/// Parses the end of the silence, the time of the last message, and the programs' pause in seconds.
fn parse_silence(text: &str) -> Option<(i64, i64, i64)> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}
