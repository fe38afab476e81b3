//! `/memory`: shows and changes the notes that agents of ours keep.
//!
//! In a direct chat these are the notes about the person, in a shared room those about the room: the same notes that the
//! agent reads and writes there.

use super::{CommandCall, CommandContext, CommandOutcome, say};
use crate::access::PlaceKind;
use crate::agent::NoteScope;
use crate::i18n::TextKey;
use crate::store::{NOTE_CHARS, NOTES_PER_SCOPE, NoteError, Result};
use crate::util::one_line;

/// Characters of a number that is repeated to the person.
const WHICH: usize = 20;

/// Carries the command out.
pub(super) fn run(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let (context, behind) = (call.context, call.behind);
    let (word, rest) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
    match word.to_ascii_lowercase().as_str() {
        "" => list(context),
        "forget" => forget(context, rest.trim()),
        "add" => add(context, rest.trim()),
        _ => say(TextKey::MemoryWords),
    }
}

fn list(context: &CommandContext<'_>) -> Result<CommandOutcome> {
    let owner = match place(context) {
        PlaceKind::Direct => TextKey::NotesOfPerson,
        PlaceKind::Room => TextKey::NotesOfRoom,
    };
    let notes = context.tx.notes(&scope(context))?;
    if notes.is_empty() {
        return say(TextKey::NotesNone.with("owner", owner));
    }
    let lines = (1_usize..).zip(notes).map(|(number, note)| {
        context.words.say(&TextKey::NotesItem.with("number", number).with("text", note.text))
    });
    say(TextKey::Notes.with("owner", owner).with("list", lines.collect::<Vec<_>>().join("\n")))
}

fn forget(context: &CommandContext<'_>, which: &str) -> Result<CommandOutcome> {
    if which.is_empty() {
        return say(TextKey::MemoryWords);
    }
    let unknown = || say(TextKey::NoteUnknown.with("which", one_line(which, WHICH)));
    let Ok(number) = which.trim_start_matches('#').parse() else { return unknown() };
    match context.tx.remove_note(&scope(context), number, "")? {
        Ok(text) => say(TextKey::NoteForgotten.with("text", text)),
        Err(_) => unknown(),
    }
}

fn add(context: &CommandContext<'_>, text: &str) -> Result<CommandOutcome> {
    match context.tx.add_note(&scope(context), text)? {
        Ok(number) => {
            let text = one_line(text, NOTE_CHARS);
            say(TextKey::NoteAdded.with("number", number).with("text", text))
        }
        Err(NoteError::TooLong) => say(TextKey::NoteTooLong.with("limit", NOTE_CHARS)),
        Err(NoteError::Full) => say(TextKey::NotesFull.with("limit", NOTES_PER_SCOPE)),
        Err(NoteError::Empty | NoteError::NoSuchNote | NoteError::Changed) => say(TextKey::MemoryWords),
    }
}

/// The notes of this place.
fn scope(context: &CommandContext<'_>) -> NoteScope {
    let (account, event) = (context.account.clone(), context.event);
    match place(context) {
        PlaceKind::Direct => NoteScope::Person { account, person: event.author.id.as_str().to_owned() },
        PlaceKind::Room => NoteScope::Room { account, room: event.place.room.clone() },
    }
}

fn place(context: &CommandContext<'_>) -> PlaceKind {
    PlaceKind::from(context.event.room.direct)
}
