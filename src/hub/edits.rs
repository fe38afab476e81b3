//! Effect of an edited prompt.
//!
//! A prompt that still waits is asked in its new form. The last prompt of a session is asked again, whether its answer
//! is running or complete: the same message of ours then shows the new answer. An older prompt stays as it was
//! answered, or everything after it would have to be asked again too.
//!
//! A command runs when it comes, so an edit can neither change a command nor make one. Only the text for the agent can
//! change, also the text after `/new`.

use talaria_platform::{EventId, ShowMode};

use super::accept::EventContext;
use super::limits::{self, LimitVerdict};
use crate::access::AccessAction;
use crate::agent::{AgentInfo, RewindSupport};
use crate::chat_command::ChatCommand;
use crate::command::{self, ParsedMessage};
use crate::i18n::TextKey;
use crate::post_commit::PostCommit;
use crate::store::{Result, RoomTurn, TurnRow};

/// Handles the edit of a message. Only its author can edit it, and only while they may still ask.
pub(super) fn take(context: &EventContext<'_>, of: &EventId, text: &str) -> Result<Vec<PostCommit>> {
    let room = &context.event.place.room;
    if let Some(turn) = context.tx.waiting_turn_of(context.account(), room, of)? {
        if is_theirs(context, of, &turn) && context.authorize(AccessAction::Edit)?.allowed {
            change(context, of, &turn, text)?;
        }
        return Ok(Vec::new());
    }
    let Some(turn) = last(context, of)? else { return Ok(Vec::new()) };
    match is_theirs(context, of, &turn) && context.authorize(AccessAction::Edit)?.allowed {
        true => ask_again(context, of, turn, text),
        false => Ok(Vec::new()),
    }
}

/// The agent that remembers the prompt which the edit repeats, if it does. Changes nothing.
pub(super) fn remembered_by<'a>(
    context: &'a EventContext<'_>,
    of: &EventId,
) -> Result<Option<&'a AgentInfo>> {
    if context.tx.waiting_turn_of(context.account(), &context.event.place.room, of)?.is_some() {
        return Ok(None);
    }
    let Some(turn) = last(context, of)? else { return Ok(None) };
    let repeats = is_theirs(context, of, &turn) && context.decide(AccessAction::Edit)?.allowed;
    Ok(repeats.then(|| context.agent_of(&turn.row)))
}

/// Whether the editor wrote that message: the prompt itself, or the `/retry` of it.
fn is_theirs(context: &EventContext<'_>, of: &EventId, turn: &RoomTurn) -> bool {
    let question = &turn.question;
    let writer = if question.question == *of { question.spoken_by() } else { question.asked_by() };
    writer.id == context.event.author.id.as_str()
}

/// The turn that `of` started, if it is the last one of the current session.
fn last(context: &EventContext<'_>, of: &EventId) -> Result<Option<RoomTurn>> {
    let asked = context.tx.turns_about(context.account(), &context.event.place.room, of)?;
    let Some(asked) = asked.into_iter().next_back() else { return Ok(None) };
    if !context.tx.is_current(&asked.row.session)? {
        return Ok(None);
    }
    let last = context.tx.last_turn(&asked.row.session)?;
    Ok(last.is_some_and(|last| last.id == asked.row.id).then_some(asked))
}

/// Replaces a prompt that no agent has got yet.
fn change(context: &EventContext<'_>, of: &EventId, turn: &RoomTurn, text: &str) -> Result<()> {
    match words(context, of, turn, text)? {
        Some(words) if is_nothing(&words, turn) => Ok(()),
        Some(words) => context.tx.set_prompt(&turn.row.id, &words),
        None => unheard(context, of),
    }
}

/// Whether there is nothing left to ask.
fn is_nothing(words: &str, turn: &RoomTurn) -> bool {
    words.trim().is_empty() && turn.question.media.is_empty()
}

/// Asks the last prompt again, in its new form. It counts as a message: each edit asks the agent once more.
fn ask_again(
    context: &EventContext<'_>,
    of: &EventId,
    turn: RoomTurn,
    text: &str,
) -> Result<Vec<PostCommit>> {
    let Some(words) = words(context, of, &turn, text)? else {
        unheard(context, of)?;
        return Ok(Vec::new());
    };
    // A client may send an edit that changes only the formatting.
    if words == turn.row.prompt || is_nothing(&words, &turn) {
        return Ok(Vec::new());
    }
    match limits::check(context, AccessAction::Message, &words)? {
        LimitVerdict::Full | LimitVerdict::Quiet => {}
        LimitVerdict::Refused(too_much) => {
            context.audit(AccessAction::Message, false, too_much.rule)?;
            too_much.notice.iter().try_for_each(|phrase| context.notice(phrase))?;
            return Ok(Vec::new());
        }
    }
    if !context.authorize(AccessAction::Message)?.allowed {
        return Ok(Vec::new());
    }
    if let Some(refusal) = context.refusal_of(turn.row.agent.as_ref())? {
        context.notice_on(of, "edit", &refusal)?;
        return Ok(Vec::new());
    }
    match context.agent_of(&turn.row).rewind {
        RewindSupport::Possible => {}
        RewindSupport::Impossible => {
            context.notice_on(of, "edit", &TextKey::EditTooLate.into())?;
            return Ok(Vec::new());
        }
        RewindSupport::Unknown => {
            context.notice_on(of, "later", &TextKey::CannotRewindNow.into())?;
            return Ok(Vec::new());
        }
    }
    let tx = context.tx;
    let mut after = Vec::new();
    let RoomTurn { row, question } = &turn;
    if tx.open_turns(&row.session)?.iter().any(|open| open.id == row.id) {
        tx.ask_to_stop(&row.id)?;
        after.push(PostCommit::StopTurn(row.session.clone(), row.id.clone()));
    }
    tx.withdraw(row)?;
    tx.fork_session(&row.session)?;
    tx.use_session(&row.session)?;
    // The first message is edited; where that is impossible, it is deleted with the others.
    let edits = matches!(context.acceptor.about.show, ShowMode::Edit { .. });
    tx.remove_shown(&row.id, question, usize::from(edits))?;
    let to = question.event.clone();
    let next = TurnRow { prompt: words, ..command::again(turn, &to, context.event) };
    tx.add_turn(&next)?;
    after.push(PostCommit::Run(next.session, next.id));
    Ok(after)
}

/// The new text for the agent; `None` if the edit is about a command.
fn words(context: &EventContext<'_>, of: &EventId, turn: &RoomTurn, text: &str) -> Result<Option<String>> {
    // The message is a `/retry`, and the text is that of an earlier message.
    if turn.question.question != *of {
        return Ok(None);
    }
    Ok(match command::parse(text) {
        ParsedMessage::Prompt => Some(text.to_owned()),
        // In the first turn of a session `/new` has already had its effect, or had none.
        ParsedMessage::Command(ChatCommand::New, behind)
            if !behind.is_empty() && context.tx.is_first(turn)? =>
        {
            Some(behind)
        }
        ParsedMessage::Command(..) | ParsedMessage::Unknown(_) => None,
    })
}

/// Says that the edit has no effect. Once for each message: a person who keeps typing has read it.
fn unheard(context: &EventContext<'_>, of: &EventId) -> Result<()> {
    context.notice_on(of, "edit", &TextKey::EditUnheard.into())
}
