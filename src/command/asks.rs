//! Commands about asks: `/approve` and `/deny`, and the mark that denies.
//!
//! Who may is decided before; here it is found out what is meant. Whatever is not clear decides nothing.

use talaria_platform::{EventKind, MessageId};

use super::{After, Command, Desk, Done, say};
use crate::access::{Action, Grant};
use crate::hub::One;
use crate::session::CODE_ALPHABET;
use crate::store::{AskRow, GRANT_DAYS, OpenAsk, Result, unix_now};
use crate::words::{Phrase, Text};

/// Seconds in which nobody has read a new question: an approval without a code that comes so soon after the end
/// of another one may well be meant for that one.
const CROSSING: i64 = 3;

/// The mark that denies. None approves: a network can forge marks, and they are easily misplaced.
const NO: &str = "❌";

/// How far an approval with these words behind it would reach.
pub fn wanted(behind: &str) -> Grant {
    // The furthest of those named: that is what must be permitted.
    behind.split_whitespace().filter_map(grant).max().unwrap_or(Grant::Once)
}

pub(super) fn approve(desk: &Desk<'_>, behind: &str) -> Result<Done> {
    let Some((code, grant)) = read_words(behind) else { return say(Text::ApproveWords) };
    let ask = match find(desk, Command::Approve, code.as_deref())? {
        Found::One(ask) => ask,
        Found::Unclear(phrase) => return say(phrase),
    };
    let grant = grant.unwrap_or(Grant::Once);
    if !desk.tx.approve_ask(&ask.id, desk.event.author.id.as_str(), grant)? {
        return say(Text::AskNone);
    }
    let text = match grant {
        Grant::Once => Text::AskApprovedOnce.with("title", ask.title),
        Grant::Session => Text::AskApprovedSession.with("title", ask.title),
        Grant::Always => Text::AskApprovedAlways.with("title", ask.title).with("days", GRANT_DAYS),
    };
    Ok((vec![After::Answered(ask.id)], Some(text)))
}

pub(super) fn deny(desk: &Desk<'_>, behind: &str) -> Result<Done> {
    let Some((code, None)) = read_words(behind) else { return say(Text::DenyWords) };
    let ask = match find(desk, Command::Deny, code.as_deref())? {
        Found::One(ask) => ask,
        Found::Unclear(phrase) => return say(phrase),
    };
    match refuse(desk, &ask)? {
        Some(after) => Ok((vec![after], Some(Text::AskDenied.with("title", ask.title)))),
        None => say(Text::AskNone),
    }
}

/// A mark on a message of ours: it may deny what the message asks, never more.
pub fn reaction(one: &One<'_>, to: &MessageId, mark: &str) -> Result<Vec<After>> {
    let Some(ask) = one.tx.ask_shown_by(one.account(), &one.event.place, to)? else { return Ok(Vec::new()) };
    if !one.authorize(Action::Reaction)?.allowed || mark.trim_end_matches('\u{fe0f}') != NO {
        return Ok(Vec::new());
    }
    let decision = one.authorize(Action::Deny)?;
    if !decision.allowed {
        return Ok(Vec::new());
    }
    let Some(after) = refuse(&one.desk(decision), &ask)? else { return Ok(Vec::new()) };
    one.notice(&Text::AskDenied.with("title", ask.title))?;
    Ok(vec![after])
}

/// Denies, by the person at the desk. `None`: too late.
fn refuse(desk: &Desk<'_>, ask: &AskRow) -> Result<Option<After>> {
    let (tx, by) = (desk.tx, desk.event.author.id.as_str());
    if !tx.deny_ask(&ask.id, by, "denied")? {
        return Ok(None);
    }
    if let Some(turn) = tx.turn(&ask.turn)? {
        tx.audit_ask(&turn, &ask.digest, by, None, "denied")?;
    }
    Ok(Some(After::Answered(ask.id.clone())))
}

/// Which question is meant.
enum Found {
    One(AskRow),
    /// None, or it cannot be told; with what to say.
    Unclear(Phrase),
}

/// Finds what is meant among what is open in this place. A code of another place is as good as none.
fn find(desk: &Desk<'_>, command: Command, code: Option<&str>) -> Result<Found> {
    let (tx, account, place) = (desk.tx, desk.account, &desk.event.place);
    // Who answers a question's message means that question, and no other if it is over.
    if code.is_none()
        && let Some(to) = answered(desk)
    {
        match tx.ask_shown_by(account, place, &to)? {
            Some(ask) => return Ok(Found::One(ask)),
            None if tx.is_ask(account, place, &to)? => return Ok(Found::Unclear(Text::AskOver.into())),
            None => {}
        }
    }
    let mut open = tx.open_asks(account, place)?;
    if let Some(code) = code {
        return Ok(match open.into_iter().find(|open| open.ask.code == code) {
            Some(open) => Found::One(open.ask),
            None => Found::Unclear(Text::AskUnknown.with("code", code)),
        });
    }
    // What nobody can have read cannot be meant, unless to be rid of it.
    let crossing = command == Command::Approve
        && (open.iter().any(|open| !open.shown)
            || tx.ask_ended_since(account, place, unix_now() - CROSSING)?);
    match (open.pop(), open.is_empty()) {
        (None, _) => Ok(Found::Unclear(Text::AskNone.into())),
        (Some(only), true) if !crossing => Ok(Found::One(only.ask)),
        (Some(last), _) => {
            open.push(last);
            Ok(Found::Unclear(which(desk, command, &open)))
        }
    }
}

/// The message that the command answers, where the network has replies.
fn answered(desk: &Desk<'_>) -> Option<MessageId> {
    match &desk.event.kind {
        EventKind::Message(message) => message.reply_to.as_ref().map(|to| MessageId::new(to.as_str())),
        EventKind::Edited { .. }
        | EventKind::Deleted { .. }
        | EventKind::Reacted { .. }
        | EventKind::Left
        | EventKind::Joined
        | EventKind::Unreadable
        | EventKind::Missed { .. } => None,
    }
}

/// The question back: which one? Only those are named that the room shows, because a code is to be read there.
fn which(desk: &Desk<'_>, command: Command, open: &[OpenAsk]) -> Phrase {
    let item = |open: &OpenAsk| {
        let title = open.ask.title.as_str();
        desk.words.say(&Text::AskWhichItem.with("code", open.ask.code.as_str()).with("title", title))
    };
    let list: Vec<String> = open.iter().filter(|open| open.shown).map(item).collect();
    match list.is_empty() {
        true => Text::AskNameIt.with("command", command.name()),
        false => Text::AskWhich.with("command", command.name()).with("list", list.join("\n")),
    }
}

/// A code and how far, each at most once and nothing else; `None` if the words are others.
fn read_words(behind: &str) -> Option<(Option<String>, Option<Grant>)> {
    let (mut code, mut reach) = (None, None);
    for word in behind.split_whitespace() {
        match grant(word) {
            Some(grant) if reach.is_none() => reach = Some(grant),
            None if code.is_none() && is_code(word) => code = Some(word.to_ascii_uppercase()),
            Some(_) | None => return None,
        }
    }
    Some((code, reach))
}

fn grant(word: &str) -> Option<Grant> {
    Grant::ALL.into_iter().find(|grant| word.eq_ignore_ascii_case(grant.name()))
}

/// Whether a word could be a code. That there is none of it is another answer.
fn is_code(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| CODE_ALPHABET.contains(&byte.to_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_code_and_a_reach_are_understood() {
        let code = |code: &str| Some(code.to_owned());
        for (behind, read) in [
            ("", Some((None, None))),
            ("b7kq", Some((code("B7KQ"), None))),
            ("B7KQ ALWAYS", Some((code("B7KQ"), Some(Grant::Always)))),
            ("session b7kq", Some((code("B7KQ"), Some(Grant::Session)))),
            ("once", Some((None, Some(Grant::Once)))),
            ("once always", None),
            ("b7kq b7kr", None),
            ("yes", None),
            ("b7kq please", None),
            ("b7k", None),
            ("b7ka", None),
        ] {
            assert_eq!(read_words(behind), read, "{behind:?}");
        }
    }

    #[test]
    fn what_must_be_permitted_is_the_furthest_that_is_named() {
        for (behind, grant) in
            [("", Grant::Once), ("x once always y", Grant::Always), ("SESSION", Grant::Session)]
        {
            assert_eq!(wanted(behind), grant, "{behind:?}");
        }
    }

    #[test]
    fn no_code_is_a_word_of_ours() {
        assert!(Grant::ALL.iter().all(|grant| !is_code(grant.name())));
    }
}
