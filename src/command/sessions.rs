//! Commands about sessions and people: `/sessions /resume /title /whoami /usage`.
//!
//! All of them see only sessions of the key that belongs to this place (and, by setting, thread and person),
//! and of people only the one who asks.

use std::time::{Duration, UNIX_EPOCH};

use super::{ChatCommand, CommandContext, CommandOutcome, agents, may, may_do, say};
use crate::access::{AccessAction, AccessRule, GrantScope};
use crate::i18n::{LocalizedText, TextKey};
use crate::rules::SessionKey;
use crate::store::{ListedSession, Result, SessionRow, TokenBudget, TokenPayer, UsageTotals};
use crate::util::UtcTime;
use crate::util::one_line;

/// Sessions that one list shows. Beyond these people do not remember what they look for.
const LISTED: usize = 10;

/// Characters of a title.
const TITLE: usize = 80;

const DAY: i64 = 24 * 60 * 60;

/// `/sessions`
pub(super) fn list(context: &CommandContext<'_>, key: &SessionKey) -> Result<CommandOutcome> {
    let (listed, more) = context.tx.sessions_of(key, LISTED)?;
    let line = |listed: &ListedSession| {
        let text = if listed.current { TextKey::SessionsCurrent } else { TextKey::SessionsOther };
        let number = listed.session.number.to_string();
        context.words.say(&described(text.with("number", number), listed))
    };
    let mut lines: Vec<String> = listed.iter().map(line).collect();
    if more > 0 {
        lines.push(context.words.say(&TextKey::SessionsMore.with("count", more)));
    }
    say(TextKey::Sessions.with("list", lines.join("\n")))
}

/// `/resume`, when nothing runs. A session of another key is as if it were not there: its number is another
/// one's here, and its id is nobody's.
pub(super) fn resume(context: &CommandContext<'_>, key: &SessionKey, behind: &str) -> Result<CommandOutcome> {
    if behind.is_empty() {
        return say(TextKey::ResumeWhich);
    }
    let Some(found) = context.tx.find_session(key, behind)? else {
        return say(TextKey::ResumeNone.with("which", one_line(behind, 40)));
    };
    if found.current {
        return say(TextKey::ResumeCurrent.with("title", title_of(&found)));
    }
    context.tx.resume_session(key, &found.session.id)?;
    say(described(TextKey::Resumed.into(), &found))
}

/// `/title`
pub(super) fn title(
    context: &CommandContext<'_>,
    key: &SessionKey,
    session: &SessionRow,
    behind: &str,
) -> Result<CommandOutcome> {
    let title = one_line(behind, TITLE);
    match &session.title {
        _ if !title.is_empty() => {
            context.tx.set_title(&session.id, &title)?;
            say(TextKey::Titled.with("title", title))
        }
        Some(title) => say(TextKey::Title.with("title", title.clone())),
        None => match context.tx.find_session(key, &session.id.0)?.and_then(|listed| listed.title) {
            Some(title) => say(TextKey::TitleShown.with("title", title)),
            None => say(TextKey::TitleNone),
        },
    }
}

/// `/whoami`
pub(super) fn whoami(context: &CommandContext<'_>, session: &SessionRow) -> Result<CommandOutcome> {
    let role = match context.decision.rule {
        AccessRule::Owner => TextKey::RoleOwner,
        AccessRule::Admin => TextKey::RoleAdmin,
        AccessRule::Listed => TextKey::RoleListed,
        AccessRule::Paired => TextKey::RolePaired,
        AccessRule::Everybody => TextKey::RoleEverybody,
        // Nobody about whom these decide sends a command; if somebody did, this claims the least.
        AccessRule::Pairing
        | AccessRule::Violated
        | AccessRule::Bot
        | AccessRule::Left
        | AccessRule::Untrusted
        | AccessRule::AdminsOnly
        | AccessRule::Plain
        | AccessRule::NotListed => TextKey::RoleEverybody,
    };
    let mut refused = Vec::new();
    for command in ChatCommand::all() {
        if !may(context, command)? {
            refused.push(format!("/{}", command.name()));
        }
    }
    if may(context, ChatCommand::Approve)? && !may_do(context, AccessAction::Approve(GrantScope::Always))? {
        refused.push(format!("/{} {}", ChatCommand::Approve.name(), GrantScope::Always.name()));
    }
    let may = match refused.is_empty() {
        true => TextKey::MayAll.into(),
        false => TextKey::MayNot.with("commands", refused.join(", ")),
    };
    say(TextKey::Whoami
        .with("id", one_line(context.event.author.id.as_str(), 255))
        .with("role", role)
        .with("place", if context.event.room.direct { TextKey::PlaceDirect } else { TextKey::PlaceRoom })
        .with("number", session.number.to_string())
        .with("session", session.id.0.as_str())
        .with("may", may))
}

/// `/usage`
pub(super) fn usage(context: &CommandContext<'_>, session: &SessionRow) -> Result<CommandOutcome> {
    let author = &context.event.author.id;
    let by_person = |seconds| context.tx.used_by_person(context.account, author, seconds);
    let usage = TextKey::Usage
        .with("session", used(context.tx.used_by_session(&session.id)?))
        .with("day", used(by_person(DAY)?))
        .with("month", used(by_person(30 * DAY)?));
    let mut lines = vec![context.words.say(&usage)];
    if let Some(limit) = context.budget.person {
        let payer = TokenPayer::person(context.account.as_str(), author.as_str());
        let used = context.tx.tokens_used(TokenBudget::Payer(&payer))?;
        lines.push(context.words.say(&budget_line(TextKey::UsageBudgetPerson.into(), used, limit)));
    }
    if let Some(limit) = context.budget.agent {
        let agent = agents::current(context, session);
        let used = context.tx.tokens_used(TokenBudget::Agent(&agent))?;
        let phrase = TextKey::UsageBudgetAgent.with("name", agent.as_str());
        lines.push(context.words.say(&budget_line(phrase, used, limit)));
    }
    say(LocalizedText::Said(lines.join("\n")))
}

fn budget_line(phrase: LocalizedText, used: u64, limit: u64) -> LocalizedText {
    phrase.with("used", used).with("limit", limit).with("left", limit.saturating_sub(used))
}

fn used(used: UsageTotals) -> LocalizedText {
    TextKey::UsageLine
        .with("turns", used.turns)
        .with("input", used.tokens.input)
        .with("output", used.tokens.output)
}

/// A phrase about a session, with what all such phrases say.
fn described(phrase: LocalizedText, listed: &ListedSession) -> LocalizedText {
    phrase
        .with("title", title_of(listed))
        .with("used", moment(listed.session.used))
        .with("messages", listed.messages)
}

/// The title of a session, or a text in its place.
fn title_of(listed: &ListedSession) -> LocalizedText {
    match listed.title.clone() {
        Some(title) => title.into(),
        None => TextKey::Untitled.into(),
    }
}

/// `2026-11-16 04:13`, of seconds since 1970.
pub(super) fn moment(at: i64) -> String {
    let utc = UtcTime::from(UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or_default()));
    let UtcTime { year, month, day, hour, minute, .. } = utc;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}
