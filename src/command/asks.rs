//! Commands about asks: `/approve` and `/deny`.
//!
//! Who may is decided before; here it is found out what is meant. Whatever is not clear decides nothing.

use talaria_platform::{MessageId, RoomEventKind};

use super::{CommandContext, CommandOutcome, agents, say};
use crate::access::{AccessAction, GrantScope};
use crate::chat_command::ChatCommand;
use crate::i18n::{LocalizedText, TextKey};
use crate::post_commit::PostCommit;
use crate::store::{AskRow, GRANT_DAYS, OpenAsk, Result, unix_now};
use crate::util::CODE_ALPHABET;

/// Seconds in which nobody has read a new question: an approval without a code that comes so soon after the end
/// of another one may well be meant for that one.
const CROSSING: i64 = 3;

/// How far an approval with these words behind it would reach.
pub fn wanted(behind: &str) -> GrantScope {
    // The furthest of those named: that is what must be permitted.
    behind.split_whitespace().filter_map(grant).max().unwrap_or(GrantScope::Once)
}

pub(super) fn approve(context: &CommandContext<'_>, behind: &str) -> Result<CommandOutcome> {
    let Some((code, grant)) = read_words(behind) else { return say(TextKey::ApproveWords) };
    let ask = match find(context, ChatCommand::Approve, code.as_deref())? {
        AskMatch::One(ask) => ask,
        AskMatch::Unclear(phrase) => return say(phrase),
    };
    let grant = grant.unwrap_or(GrantScope::Once);
    if let Some(refusal) = agents::refusal_to_allow(context, &ask.turn, AccessAction::Approve(grant))? {
        return say(refusal);
    }
    if !context.tx.approve_ask(&ask.id, context.event.author.id.as_str(), grant)? {
        return say(TextKey::AskNone);
    }
    let text = match grant {
        GrantScope::Once => TextKey::AskApprovedOnce.with("title", ask.title),
        GrantScope::Session => TextKey::AskApprovedSession.with("title", ask.title),
        GrantScope::Always => TextKey::AskApprovedAlways.with("title", ask.title).with("days", GRANT_DAYS),
    };
    Ok((vec![PostCommit::Answered(ask.id)], Some(text)))
}

pub(super) fn deny(context: &CommandContext<'_>, behind: &str) -> Result<CommandOutcome> {
    let Some((code, None)) = read_words(behind) else { return say(TextKey::DenyWords) };
    let ask = match find(context, ChatCommand::Deny, code.as_deref())? {
        AskMatch::One(ask) => ask,
        AskMatch::Unclear(phrase) => return say(phrase),
    };
    match refuse(context, &ask)? {
        Some(after) => Ok((vec![after], Some(TextKey::AskDenied.with("title", ask.title)))),
        None => say(TextKey::AskNone),
    }
}

/// Denies, by the person who sent it. `None`: too late.
pub fn refuse(context: &CommandContext<'_>, ask: &AskRow) -> Result<Option<PostCommit>> {
    let (tx, by) = (context.tx, context.event.author.id.as_str());
    if !tx.deny_ask(&ask.id, by, "denied")? {
        return Ok(None);
    }
    if let Some(turn) = tx.turn(&ask.turn)? {
        tx.audit_ask(&turn, &ask.digest, by, None, "denied")?;
    }
    Ok(Some(PostCommit::Answered(ask.id.clone())))
}

/// Which question is meant.
enum AskMatch {
    One(AskRow),
    /// None, or it cannot be told; with what to say.
    Unclear(LocalizedText),
}

/// Finds what is meant among what is open in this place. A code of another place is as good as none.
fn find(context: &CommandContext<'_>, command: ChatCommand, code: Option<&str>) -> Result<AskMatch> {
    let (tx, account, place) = (context.tx, context.account, &context.event.place);
    // Who answers a question's message means that question, and no other if it is over.
    if code.is_none()
        && let Some(to) = answered(context)
    {
        match tx.ask_shown_by(account, place, &to)? {
            Some(ask) => return Ok(AskMatch::One(ask)),
            None if tx.is_ask(account, place, &to)? => return Ok(AskMatch::Unclear(TextKey::AskOver.into())),
            None => {}
        }
    }
    let mut open = tx.open_asks(account, place)?;
    if let Some(code) = code {
        return Ok(match open.into_iter().find(|open| open.ask.code == code) {
            Some(open) => AskMatch::One(open.ask),
            None => AskMatch::Unclear(TextKey::AskUnknown.with("code", code)),
        });
    }
    // What nobody can have read cannot be meant, unless to be rid of it.
    let crossing = command == ChatCommand::Approve
        && (open.iter().any(|open| !open.shown)
            || tx.ask_ended_since(account, place, unix_now() - CROSSING)?);
    match (open.pop(), open.is_empty()) {
        (None, _) => Ok(AskMatch::Unclear(TextKey::AskNone.into())),
        (Some(only), true) if !crossing => Ok(AskMatch::One(only.ask)),
        (Some(last), _) => {
            open.push(last);
            Ok(AskMatch::Unclear(which(context, command, &open)))
        }
    }
}

/// The message that the command answers, where the network has replies.
fn answered(context: &CommandContext<'_>) -> Option<MessageId> {
    match &context.event.kind {
        RoomEventKind::Message(message) => message.reply_to.as_ref().map(|to| MessageId::new(to.as_str())),
        RoomEventKind::Edited { .. }
        | RoomEventKind::Deleted { .. }
        | RoomEventKind::Reacted { .. }
        | RoomEventKind::Left
        | RoomEventKind::Joined
        | RoomEventKind::Unreadable
        | RoomEventKind::Missed { .. } => None,
    }
}

/// The question back: which one? Only those are named that the room shows, because a code is to be read there.
fn which(context: &CommandContext<'_>, command: ChatCommand, open: &[OpenAsk]) -> LocalizedText {
    let item = |open: &OpenAsk| {
        let title = open.ask.title.as_str();
        context.words.say(&TextKey::AskWhichItem.with("code", open.ask.code.as_str()).with("title", title))
    };
    let list: Vec<String> = open.iter().filter(|open| open.shown).map(item).collect();
    match list.is_empty() {
        true => TextKey::AskNameIt.with("command", command.name()),
        false => TextKey::AskWhich.with("command", command.name()).with("list", list.join("\n")),
    }
}

/// A code and how far, each at most once and nothing else; `None` if the words are others.
fn read_words(behind: &str) -> Option<(Option<String>, Option<GrantScope>)> {
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

fn grant(word: &str) -> Option<GrantScope> {
    GrantScope::ALL.into_iter().find(|grant| word.eq_ignore_ascii_case(grant.name()))
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
            ("B7KQ ALWAYS", Some((code("B7KQ"), Some(GrantScope::Always)))),
            ("session b7kq", Some((code("B7KQ"), Some(GrantScope::Session)))),
            ("once", Some((None, Some(GrantScope::Once)))),
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
        for (behind, grant) in [
            ("", GrantScope::Once),
            ("x once always y", GrantScope::Always),
            ("SESSION", GrantScope::Session),
        ] {
            assert_eq!(wanted(behind), grant, "{behind:?}");
        }
    }

    #[test]
    fn no_code_is_a_word_of_ours() {
        assert!(GrantScope::ALL.iter().all(|grant| !is_code(grant.name())));
    }
}
