//! Commands about asks: `/approve`, `/deny` and `/answer`.
//!
//! The hub has decided before that the person may do this; here the ask and the answer are found. An answer that is not
//! clear decides nothing.

use talaria_platform::{MessageId, RoomEvent, RoomEventKind};

use super::{CommandContext, CommandOutcome, agents, decide, say};
use crate::access::{AccessAction, GrantScope, PlaceKind};
use crate::agent::{ANSWER_CHARS, AnswerError, AskChoice, DenyReason, OptionKind};
use crate::chat_command::ChatCommand;
use crate::i18n::{LocalizedText, TextKey};
use crate::post_commit::PostCommit;
use crate::store::{AskRow, GRANT_DAYS, OpenAsk, Result, unix_now};
use crate::util::CODE_ALPHABET;

/// Seconds in which nobody has read a new ask: an answer without a code that comes so soon after the end of another ask
/// may be meant for that one.
const CROSSING: i64 = 3;

/// The scope of an approval with these words behind it: the widest that they name, because that must be permitted.
pub fn wanted(behind: &str) -> GrantScope {
    behind.split_whitespace().filter_map(grant).max().unwrap_or(GrantScope::Once)
}

/// `/approve`
pub(super) fn approve(context: &CommandContext<'_>, behind: &str) -> Result<CommandOutcome> {
    let Some((code, scope)) = read_words(behind) else { return say(TextKey::ApproveWords) };
    match find(context, ChatCommand::Approve, code.as_deref())? {
        AskMatch::One(ask) => give(context, &ask, ask.form.approve(scope.unwrap_or(GrantScope::Once))),
        AskMatch::Unclear(phrase) => say(phrase),
    }
}

/// `/deny`
pub(super) fn deny(context: &CommandContext<'_>, behind: &str) -> Result<CommandOutcome> {
    let Some((code, None)) = read_words(behind) else { return say(TextKey::DenyWords) };
    match find(context, ChatCommand::Deny, code.as_deref())? {
        AskMatch::One(ask) => give(context, &ask, Ok(AskChoice::Deny(DenyReason::Person))),
        AskMatch::Unclear(phrase) => say(phrase),
    }
}

/// `/answer`
pub(super) fn answer(context: &CommandContext<'_>, behind: &str) -> Result<CommandOutcome> {
    let (code, words) = split_code(context, behind)?;
    if words.is_empty() {
        return say(TextKey::AnswerWords);
    }
    match find(context, ChatCommand::Answer, code.as_deref())? {
        AskMatch::One(ask) => give(context, &ask, ask.form.read(words)),
        AskMatch::Unclear(phrase) => say(phrase),
    }
}

/// Stores an answer, or says why it does not fit.
fn give(
    context: &CommandContext<'_>,
    ask: &AskRow,
    choice: Result<AskChoice, AnswerError>,
) -> Result<CommandOutcome> {
    let choice = match choice {
        Ok(choice) => choice,
        Err(error) => return say(misfit(context, ask, error)),
    };
    let chosen = match &choice {
        AskChoice::Option(id) => ask.form.option(id),
        AskChoice::Deny(_) | AskChoice::Allow(_) | AskChoice::Text(_) => None,
    };
    if let Some(option) = chosen.filter(|option| option.kind == OptionKind::AllowAlways)
        && !may_always(context)?
    {
        return say(TextKey::AnswerAdminsOnly.with("option", option.shown()));
    }
    // Every answer but a denial is acting through the agent.
    let action = match &choice {
        AskChoice::Deny(_) => None,
        AskChoice::Allow(scope) => Some(AccessAction::Approve(*scope)),
        AskChoice::Option(_) | AskChoice::Text(_) => Some(AccessAction::Approve(GrantScope::Once)),
    };
    if let Some(action) = action
        && let Some(refusal) = agents::refusal_to_allow(context, &ask.turn, action)?
    {
        return say(refusal);
    }
    if !context.tx.answer_ask(ask, context.event.author.id.as_str(), &choice)? {
        return say(TextKey::AskNone);
    }
    let text = match &choice {
        AskChoice::Deny(_) => TextKey::AskDenied,
        AskChoice::Option(_) if ask.form.is_once_only() => {
            match chosen.is_some_and(|option| option.kind.allows()) {
                true => TextKey::AskApprovedOnce,
                false => TextKey::AskDenied,
            }
        }
        AskChoice::Allow(GrantScope::Once) => TextKey::AskApprovedOnce,
        AskChoice::Allow(GrantScope::Session) => TextKey::AskApprovedSession,
        AskChoice::Allow(GrantScope::Always) => TextKey::AskApprovedAlways,
        AskChoice::Option(_) => TextKey::AskChosen,
        AskChoice::Text(_) => TextKey::AskAnswered,
    };
    let mut text = text.with("title", ask.title.as_str());
    if choice == AskChoice::Allow(GrantScope::Always) {
        text = text.with("days", GRANT_DAYS);
    }
    if let Some(option) = chosen.filter(|_| !ask.form.is_once_only()) {
        text = text.with("option", option.shown());
    }
    Ok((vec![PostCommit::Answered(ask.id.clone())], Some(text)))
}

/// Decides, and audits, whether the person may approve for ever: an option with which the agent never asks again is as
/// much.
fn may_always(context: &CommandContext<'_>) -> Result<bool> {
    let RoomEvent { author, place, room, .. } = context.event;
    let action = AccessAction::Approve(GrantScope::Always);
    let decision = decide(context, action)?;
    let (allowed, rule) = (decision.allowed, decision.rule.name());
    let kind = PlaceKind::from(room.direct);
    context.tx.audit(context.account, &author.id, &place.room, kind, action, allowed, rule)?;
    Ok(allowed)
}

/// The reply to an answer that does not fit its ask.
fn misfit(context: &CommandContext<'_>, ask: &AskRow, error: AnswerError) -> LocalizedText {
    let with_options = |text: TextKey| {
        text.with("options", ask.form.options_text(context.words)).with("code", ask.code.as_str())
    };
    match error {
        AnswerError::NeedsAnswer if ask.form.is_once_only() => {
            TextKey::AnswerOnlyOnce.with("code", ask.code.as_str())
        }
        AnswerError::NeedsAnswer => TextKey::AnswerNeeded.with("code", ask.code.as_str()),
        AnswerError::IsApproval => TextKey::AnswerApproval.with("code", ask.code.as_str()),
        AnswerError::UnknownOption | AnswerError::NoText => with_options(TextKey::AnswerNoOption),
        AnswerError::AmbiguousOption => with_options(TextKey::AnswerAmbiguous),
        AnswerError::Empty => TextKey::AnswerWords.into(),
        AnswerError::TooLong => TextKey::AskAnswerTooLong.with("limit", ANSWER_CHARS),
    }
}

/// Result of the search for the ask that a person means.
enum AskMatch {
    One(Box<AskRow>),
    /// No ask, or more than one; the reply says so.
    Unclear(LocalizedText),
}

/// Finds the ask that a person means among the open ones of this place. The code of another place finds nothing.
fn find(context: &CommandContext<'_>, command: ChatCommand, code: Option<&str>) -> Result<AskMatch> {
    let (tx, account, place) = (context.tx, context.account, &context.event.place);
    // A reply to the message of an ask means that ask, and no other if it is over.
    if code.is_none()
        && let Some(to) = replied_to(context)
    {
        match tx.ask_shown_by(account, place, &to)? {
            Some(ask) => return Ok(AskMatch::One(Box::new(ask))),
            None if tx.is_ask(account, place, &to)? => return Ok(AskMatch::Unclear(TextKey::AskOver.into())),
            None => {}
        }
    }
    let mut open = tx.open_asks(account, place)?;
    if let Some(code) = code {
        return Ok(match open.into_iter().find(|open| open.ask.code == code) {
            Some(open) => AskMatch::One(Box::new(open.ask)),
            None if command == ChatCommand::Answer => {
                AskMatch::Unclear(TextKey::AnswerUnknown.with("code", code))
            }
            None => AskMatch::Unclear(TextKey::AskUnknown.with("code", code)),
        });
    }
    // An ask that nobody can have read cannot be meant, except by a denial.
    let crossing = command != ChatCommand::Deny
        && (open.iter().any(|open| !open.shown)
            || tx.ask_ended_since(account, place, unix_now() - CROSSING)?);
    match (open.pop(), open.is_empty()) {
        (None, _) => Ok(AskMatch::Unclear(TextKey::AskNone.into())),
        (Some(only), true) if !crossing => Ok(AskMatch::One(Box::new(only.ask))),
        (Some(last), _) => {
            open.push(last);
            Ok(AskMatch::Unclear(which(context, command, &open)))
        }
    }
}

/// The message that the command replies to, where the network has replies.
fn replied_to(context: &CommandContext<'_>) -> Option<MessageId> {
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

/// The question which ask is meant. It lists only asks that the room shows, because people read the codes there.
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

/// Splits the words behind `/answer` into a code and the answer. In a reply the ask is known, so that a first word is a
/// code only if an open ask has it.
fn split_code<'a>(context: &CommandContext<'_>, behind: &'a str) -> Result<(Option<String>, &'a str)> {
    let (first, rest) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
    let code = first.to_ascii_uppercase();
    let open = || context.tx.open_asks(context.account, &context.event.place);
    match is_code(first)
        && (replied_to(context).is_none() || open()?.iter().any(|open| open.ask.code == code))
    {
        true => Ok((Some(code), rest.trim())),
        false => Ok((None, behind)),
    }
}

/// Reads a code and a scope, each at most once; `None` if there are other words.
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

/// Whether a word looks like a code, no matter if an ask has it.
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
