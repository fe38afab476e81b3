//! What an edit does to a question.
//!
//! One that still waits is asked as it reads now. The last one of a conversation is asked again, whether it is being
//! answered or has been: the same message of ours then shows the new answer. What is further back stays as it was
//! answered, or everything after it would have to be asked again too.
//!
//! A command is carried out when it comes, so an edit can neither change nor become one. Only the words for the
//! agent can be others, also those behind `/new`.

use talaria_platform::{EventId, Show};

use super::limits::{self, Hearing};
use super::taking::One;
use crate::access::Action;
use crate::agent::Rewind;
use crate::command::{self, After, Command, Parsed};
use crate::store::{Result, TurnRow};
use crate::words::Text;

/// Takes the edited text of a message. Only its author can change it, and only one who may still ask.
pub(super) fn take(one: &One<'_>, of: &EventId, text: &str) -> Result<Vec<After>> {
    let room = &one.event.place.room;
    if let Some(turn) = one.tx.waiting_turn_of(one.account(), room, of)? {
        if is_theirs(one, of, &turn) && one.authorize(Action::Edit)?.allowed {
            change(one, of, &turn, text)?;
        }
        return Ok(Vec::new());
    }
    let Some(turn) = last(one, of)? else { return Ok(Vec::new()) };
    match is_theirs(one, of, &turn) && one.authorize(Action::Edit)?.allowed {
        true => ask_again(one, of, turn, text),
        false => Ok(Vec::new()),
    }
}

/// Whether the edit may have a question asked again that an agent remembers. Changes nothing.
pub(super) fn may_rewind(one: &One<'_>, of: &EventId) -> Result<bool> {
    if one.tx.waiting_turn_of(one.account(), &one.event.place.room, of)?.is_some() {
        return Ok(false);
    }
    let Some(turn) = last(one, of)? else { return Ok(false) };
    Ok(is_theirs(one, of, &turn) && one.decide(Action::Edit)?.allowed)
}

/// Whether whoever edits wrote that message: the words that are asked, or the `/retry` of them.
fn is_theirs(one: &One<'_>, of: &EventId, turn: &TurnRow) -> bool {
    let writer = if turn.question == *of { turn.spoken_by() } else { turn.asked_by() };
    writer.id == one.event.author.id.as_str()
}

/// The turn that asked `of`, if it is the last one of the conversation that is going on.
fn last(one: &One<'_>, of: &EventId) -> Result<Option<TurnRow>> {
    let asked = one.tx.turns_about(one.account(), &one.event.place.room, of)?;
    let Some(asked) = asked.into_iter().next_back() else { return Ok(None) };
    if !one.tx.is_current(&asked.session)? {
        return Ok(None);
    }
    Ok(one.tx.last_turn(&asked.session)?.filter(|last| last.id == asked.id))
}

/// Another question in the place of one that nobody was asked yet.
fn change(one: &One<'_>, of: &EventId, turn: &TurnRow, text: &str) -> Result<()> {
    match words(one, of, turn, text)? {
        Some(words) if is_nothing(&words, turn) => Ok(()),
        Some(words) => one.tx.set_prompt(&turn.id, &words),
        None => unheard(one, of),
    }
}

/// Whether there is nothing left to ask.
fn is_nothing(words: &str, turn: &TurnRow) -> bool {
    words.trim().is_empty() && turn.media.is_empty()
}

/// The last question once more, as it reads now. It counts as a message: whoever edits on and on asks on and on.
fn ask_again(one: &One<'_>, of: &EventId, turn: TurnRow, text: &str) -> Result<Vec<After>> {
    let Some(words) = words(one, of, &turn, text)? else {
        unheard(one, of)?;
        return Ok(Vec::new());
    };
    // A client may send an edit that changes nothing but the looks.
    if words == turn.prompt || is_nothing(&words, &turn) {
        return Ok(Vec::new());
    }
    match limits::check(one, Action::Message, &words)? {
        Hearing::Full | Hearing::Quiet => {}
        Hearing::Refused(too_much) => {
            one.audit(Action::Message, false, too_much.rule)?;
            too_much.notice.iter().try_for_each(|phrase| one.notice(phrase))?;
            return Ok(Vec::new());
        }
    }
    if !one.authorize(Action::Message)?.allowed {
        return Ok(Vec::new());
    }
    match one.agent().rewind {
        Rewind::Possible => {}
        Rewind::Impossible => {
            one.notice_on(of, "edit", &Text::EditTooLate.into())?;
            return Ok(Vec::new());
        }
        Rewind::Unknown => {
            one.notice_on(of, "later", &Text::CannotRewindNow.into())?;
            return Ok(Vec::new());
        }
    }
    let tx = one.tx;
    let mut after = Vec::new();
    if tx.open_turns(&turn.session)?.iter().any(|open| open.id == turn.id) {
        tx.ask_to_stop(&turn.id)?;
        after.push(After::StopTurn(turn.session.clone(), turn.id.clone()));
    }
    tx.withdraw(&turn)?;
    tx.fork_session(&turn.session)?;
    tx.use_session(&turn.session)?;
    // The first message is edited; where that cannot be, it goes with the others.
    let edits = matches!(one.all.about.show, Show::Edit { .. });
    tx.remove_shown(&turn, usize::from(edits))?;
    let to = turn.event.clone();
    let next = TurnRow { prompt: words, speaker: None, ..command::again(turn, &to, one.event) };
    tx.add_turn(&next)?;
    after.push(After::Run(next.session, next.id));
    Ok(after)
}

/// What is asked of the agent now; `None` if the edit is about a command.
fn words(one: &One<'_>, of: &EventId, turn: &TurnRow, text: &str) -> Result<Option<String>> {
    // The message is a /retry, and the words are those of an earlier one.
    if turn.question != *of {
        return Ok(None);
    }
    Ok(match command::parse(text) {
        Parsed::Prompt => Some(text.to_owned()),
        // In the first turn of a session the command has done its part, or had none to do.
        Parsed::Command(Command::New, behind) if !behind.is_empty() && one.tx.is_first(turn)? => Some(behind),
        Parsed::Command(..) | Parsed::Unknown(_) => None,
    })
}

/// Told once for each message: whoever types on has read it.
fn unheard(one: &One<'_>, of: &EventId) -> Result<()> {
    one.notice_on(of, "edit", &Text::EditUnheard.into())
}
