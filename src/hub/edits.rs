//! What an edit does to a question that still waits.
//!
//! A command is carried out when it comes, so an edit can neither change nor become one. Only the words for the
//! agent can be others, also those behind `/new`.

use talaria_platform::EventId;

use super::taking::One;
use crate::command::{self, Command, Parsed};
use crate::store::{Result, TurnRow};
use crate::words::Text;

/// Takes the edited text of a message whose turn waits.
pub(super) fn take(one: &One<'_>, of: &EventId, turn: &TurnRow, text: &str) -> Result<()> {
    match words(one, turn, text)? {
        Some(words) => one.tx.set_prompt(&turn.id, &words),
        // Told once for each message: whoever types on has read it.
        None => one.notice_on(of, "edit", &Text::EditUnheard.into()),
    }
}

/// What is asked of the agent now; `None` if the edit is about a command.
fn words(one: &One<'_>, turn: &TurnRow, text: &str) -> Result<Option<String>> {
    // The message is a /retry, and the words are those of an earlier one.
    if turn.attempt > 0 {
        return Ok(None);
    }
    Ok(match command::parse(text) {
        Parsed::Prompt => Some(text.to_owned()),
        // In the first turn of a session the command has done its part, or had none to do.
        Parsed::Command(Command::New, behind) if !behind.is_empty() && one.tx.is_first(turn)? => Some(behind),
        Parsed::Command(..) | Parsed::Unknown(_) => None,
    })
}
