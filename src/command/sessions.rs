//! Commands about sessions and people: `/sessions /resume /title /whoami /usage`.
//!
//! All of them see only sessions of the key that belongs to this place (and, by setting, thread and person),
//! and of people only the one who asks.

use std::time::{Duration, UNIX_EPOCH};

use super::{Command, Desk, Done, may, may_do, say};
use crate::access::{Action, Grant, Rule};
use crate::reply::one_line;
use crate::session::{SessionKey, Utc};
use crate::store::{ListedSession, Result, Session, Used};
use crate::words::{Phrase, Text};

/// Sessions that one list shows. Beyond these people do not remember what they look for.
const LISTED: usize = 10;

/// Characters of a title.
const TITLE: usize = 80;

const DAY: i64 = 24 * 60 * 60;

/// `/sessions`
pub(super) fn list(desk: &Desk<'_>, key: &SessionKey) -> Result<Done> {
    let (listed, more) = desk.tx.sessions_of(key, LISTED)?;
    let line = |listed: &ListedSession| {
        let text = if listed.current { Text::SessionsCurrent } else { Text::SessionsOther };
        let number = listed.session.number.to_string();
        desk.words.say(&described(text.with("number", number), listed))
    };
    let mut lines: Vec<String> = listed.iter().map(line).collect();
    if more > 0 {
        lines.push(desk.words.say(&Text::SessionsMore.with("count", more)));
    }
    say(Text::Sessions.with("list", lines.join("\n")))
}

/// `/resume`, when nothing runs. A session of another key is as if it were not there: its number is another
/// one's here, and its id is nobody's.
pub(super) fn resume(desk: &Desk<'_>, key: &SessionKey, behind: &str) -> Result<Done> {
    if behind.is_empty() {
        return say(Text::ResumeWhich);
    }
    let Some(found) = desk.tx.find_session(key, behind)? else {
        return say(Text::ResumeNone.with("which", one_line(behind, 40)));
    };
    if found.current {
        return say(Text::ResumeCurrent.with("title", title_of(&found)));
    }
    desk.tx.resume_session(key, &found.session.id)?;
    say(described(Text::Resumed.into(), &found))
}

/// `/title`
pub(super) fn title(desk: &Desk<'_>, key: &SessionKey, session: &Session, behind: &str) -> Result<Done> {
    let title = one_line(behind, TITLE);
    match &session.title {
        _ if !title.is_empty() => {
            desk.tx.set_title(&session.id, &title)?;
            say(Text::Titled.with("title", title))
        }
        Some(title) => say(Text::Title.with("title", title.clone())),
        None => match desk.tx.find_session(key, &session.id.0)?.and_then(|listed| listed.title) {
            Some(title) => say(Text::TitleShown.with("title", title)),
            None => say(Text::TitleNone),
        },
    }
}

/// `/whoami`
pub(super) fn whoami(desk: &Desk<'_>, session: &Session) -> Result<Done> {
    let role = match desk.decision.rule {
        Rule::Owner => Text::RoleOwner,
        Rule::Admin => Text::RoleAdmin,
        Rule::Listed => Text::RoleListed,
        Rule::Paired => Text::RolePaired,
        Rule::Everybody => Text::RoleEverybody,
        // Nobody about whom these decide comes to a desk; if somebody did, this claims the least.
        Rule::Pairing
        | Rule::Violated
        | Rule::Bot
        | Rule::Left
        | Rule::Untrusted
        | Rule::AdminsOnly
        | Rule::Plain
        | Rule::NotListed => Text::RoleEverybody,
    };
    let mut refused = Vec::new();
    for command in Command::all() {
        if !may(desk, command)? {
            refused.push(format!("/{}", command.name()));
        }
    }
    if may(desk, Command::Approve)? && !may_do(desk, Action::Approve(Grant::Always))? {
        refused.push(format!("/{} {}", Command::Approve.name(), Grant::Always.name()));
    }
    let may = match refused.is_empty() {
        true => Text::MayAll.into(),
        false => Text::MayNot.with("commands", refused.join(", ")),
    };
    say(Text::Whoami
        .with("id", one_line(desk.event.author.id.as_str(), 255))
        .with("role", role)
        .with("place", if desk.event.room.direct { Text::PlaceDirect } else { Text::PlaceRoom })
        .with("number", session.number.to_string())
        .with("session", session.id.0.as_str())
        .with("may", may))
}

/// `/usage`
pub(super) fn usage(desk: &Desk<'_>, session: &Session) -> Result<Done> {
    let by_person = |seconds| desk.tx.used_by_person(desk.account, &desk.event.author.id, seconds);
    say(Text::Usage
        .with("session", used(desk.tx.used_by_session(&session.id)?))
        .with("day", used(by_person(DAY)?))
        .with("month", used(by_person(30 * DAY)?)))
}

fn used(used: Used) -> Phrase {
    Text::UsageLine
        .with("turns", used.turns)
        .with("input", used.tokens.input)
        .with("output", used.tokens.output)
}

/// A phrase about a session, with what all such phrases say.
fn described(phrase: Phrase, listed: &ListedSession) -> Phrase {
    phrase
        .with("title", title_of(listed))
        .with("used", moment(listed.session.used))
        .with("messages", listed.messages)
}

/// What people know a session by.
fn title_of(listed: &ListedSession) -> Phrase {
    match listed.title.clone() {
        Some(title) => title.into(),
        None => Text::Untitled.into(),
    }
}

/// `2026-11-16 04:13`, of seconds since 1970.
fn moment(at: i64) -> String {
    let utc = Utc::from(UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or_default()));
    let Utc { year, month, day, hour, minute, .. } = utc;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}
