//! Notes that agents of ours keep about a person, a room, or a session key of an app.
//!
//! All notes of a scope are in the prompt of every turn, so they are few and short. People and models name a note by its
//! position in the list; the position is resolved in the transaction that changes the note.

use rusqlite::params;

use super::{Result, Tx, unix_now};
use crate::agent::NoteScope;
use crate::util::one_line;

/// Most characters of one note.
pub const NOTE_CHARS: usize = 1000;

/// Most notes of one scope.
pub const NOTES_PER_SCOPE: usize = 60;

/// Most bytes of all notes of one scope together.
pub const NOTES_BYTES: usize = 8 * 1024;

/// One note. Its number is its position in the list, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRow {
    /// Id in the store.
    pub id: i64,
    /// The note, in one line.
    pub text: String,
    /// Time when it was written, in seconds since 1970.
    pub at: i64,
}

/// Why notes were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteError {
    /// The note has no text.
    Empty,
    /// The note has more than [`NOTE_CHARS`] characters.
    TooLong,
    /// There would be more than [`NOTES_PER_SCOPE`] notes, or more than [`NOTES_BYTES`] of them.
    Full,
    /// No note has this number.
    NoSuchNote,
    /// The note with this number begins with other words: the list has changed.
    Changed,
}

impl Tx<'_> {
    /// All notes of a scope, oldest first.
    pub fn notes(&self, scope: &NoteScope) -> Result<Vec<NoteRow>> {
        let mut query =
            self.conn.prepare_cached("SELECT id, text, at FROM agent_notes WHERE scope = ?1 ORDER BY id")?;
        let rows = query.query_map([scope.stored_name()], |row| {
            Ok(NoteRow { id: row.get(0)?, text: row.get(1)?, at: row.get(2)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Adds a note; one that is there already is not added again. Returns its number.
    pub fn add_note(&self, scope: &NoteScope, text: &str) -> Result<Result<usize, NoteError>> {
        let notes = self.notes(scope)?;
        let text = match checked(text) {
            Ok(text) => text,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(at) = notes.iter().position(|note| note.text == text) {
            return Ok(Ok(at + 1));
        }
        if notes.len() >= NOTES_PER_SCOPE || bytes(&notes) + text.len() > NOTES_BYTES {
            return Ok(Err(NoteError::Full));
        }
        self.conn
            .prepare_cached("INSERT INTO agent_notes (scope, text, at) VALUES (?1, ?2, ?3)")?
            .execute(params![scope.stored_name(), text, unix_now()])?;
        Ok(Ok(notes.len() + 1))
    }

    /// Replaces the text of a note. `begins` are the first words of the note that is meant: they find it even if the
    /// list has changed; empty trusts the number.
    pub fn replace_note(
        &self,
        scope: &NoteScope,
        number: usize,
        begins: &str,
        text: &str,
    ) -> Result<Result<(), NoteError>> {
        let notes = self.notes(scope)?;
        let (note, text) = match (find(&notes, number, begins), checked(text)) {
            (Ok(note), Ok(text)) => (note, text),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
        };
        if bytes(&notes) - note.text.len() + text.len() > NOTES_BYTES {
            return Ok(Err(NoteError::Full));
        }
        self.conn
            .prepare_cached("UPDATE agent_notes SET text = ?2, at = ?3 WHERE id = ?1")?
            .execute(params![note.id, text, unix_now()])?;
        Ok(Ok(()))
    }

    /// Removes a note, and returns its text. `begins` are the first words of the note that is meant: they find it even if
    /// the list has changed; empty trusts the number.
    pub fn remove_note(
        &self,
        scope: &NoteScope,
        number: usize,
        begins: &str,
    ) -> Result<Result<String, NoteError>> {
        let notes = self.notes(scope)?;
        let note = match find(&notes, number, begins) {
            Ok(note) => note,
            Err(error) => return Ok(Err(error)),
        };
        self.conn.prepare_cached("DELETE FROM agent_notes WHERE id = ?1")?.execute([note.id])?;
        Ok(Ok(note.text.clone()))
    }
}

/// The note that is meant: the one with this number, if it begins with `begins`. The list may have changed since it was
/// read; then it is the only one that begins so. An empty `begins` trusts the number.
fn find<'a>(notes: &'a [NoteRow], number: usize, begins: &str) -> Result<&'a NoteRow, NoteError> {
    let begins = one_line(begins, NOTE_CHARS);
    let numbered = number.checked_sub(1).and_then(|at| notes.get(at));
    if let Some(note) = numbered.filter(|note| note.text.starts_with(&begins)) {
        return Ok(note);
    }
    if begins.is_empty() {
        return Err(NoteError::NoSuchNote);
    }
    let mut fitting = notes.iter().filter(|note| note.text.starts_with(&begins));
    match (fitting.next(), fitting.next()) {
        (Some(note), None) => Ok(note),
        (Some(_), Some(_)) => Err(NoteError::Changed),
        (None, _) if numbered.is_some() => Err(NoteError::Changed),
        (None, _) => Err(NoteError::NoSuchNote),
    }
}

/// The text as it is kept: in one line, so that no note can look like several, or like the end of the list.
fn checked(text: &str) -> Result<String, NoteError> {
    let text = one_line(text, NOTE_CHARS + 1);
    match text.chars().count() {
        0 => Err(NoteError::Empty),
        chars if chars > NOTE_CHARS => Err(NoteError::TooLong),
        _ => Ok(text),
    }
}

fn bytes(notes: &[NoteRow]) -> usize {
    notes.iter().map(|note| note.text.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;

    fn ann() -> NoteScope {
        NoteScope::Person { account: "a".into(), person: "@ann".to_owned() }
    }

    fn texts(tx: &Tx<'_>, scope: &NoteScope) -> Result<Vec<String>> {
        Ok(tx.notes(scope)?.into_iter().map(|note| note.text).collect())
    }

    #[tokio::test]
    async fn notes_are_numbered_by_age_and_changed_by_number() {
        let (_folder, store) = temporary();
        let left = store.write(|tx| {
            for (text, number) in
                [("likes\n tea ", 1), ("lives in Rome", 2), ("likes tea", 1), ("has a dog", 3)]
            {
                assert_eq!(tx.add_note(&ann(), text)?, Ok(number), "{text}");
            }
            assert_eq!(tx.replace_note(&ann(), 2, "", "lives in Oslo")?, Ok(()));
            assert_eq!(tx.remove_note(&ann(), 1, "")?, Ok("likes tea".to_owned()));
            for number in [0, 3, usize::MAX] {
                assert_eq!(tx.remove_note(&ann(), number, "")?, Err(NoteError::NoSuchNote));
            }
            assert_eq!(tx.add_note(&ann(), " \n\u{200b}")?, Err(NoteError::Empty));
            texts(tx, &ann())
        });
        assert_eq!(left.await.unwrap(), ["lives in Oslo", "has a dog"]);
    }

    #[tokio::test]
    async fn a_number_of_an_older_list_changes_no_other_note() {
        let (_folder, store) = temporary();
        let left = store.write(|tx| {
            for text in ["one", "two", "three", "three more"] {
                assert!(tx.add_note(&ann(), text)?.is_ok());
            }
            assert_eq!(tx.remove_note(&ann(), 1, "one")?, Ok("one".to_owned()));
            // Each number is off by one now, or beyond the end.
            assert_eq!(tx.remove_note(&ann(), 2, "two")?, Ok("two".to_owned()));
            assert_eq!(tx.remove_note(&ann(), 4, "three")?, Err(NoteError::Changed), "two notes begin so");
            assert_eq!(tx.replace_note(&ann(), 1, "one", "x")?, Err(NoteError::Changed));
            assert_eq!(tx.replace_note(&ann(), 9, "one", "x")?, Err(NoteError::NoSuchNote));
            assert_eq!(tx.replace_note(&ann(), 4, "three more", "four")?, Ok(()));
            texts(tx, &ann())
        });
        assert_eq!(left.await.unwrap(), ["three", "four"]);
    }

    #[tokio::test]
    async fn notes_are_few_and_short() {
        let (_folder, store) = temporary();
        store
            .write(|tx| {
                assert_eq!(tx.add_note(&ann(), &"ü".repeat(NOTE_CHARS + 1))?, Err(NoteError::TooLong));
                for n in 0..NOTES_PER_SCOPE {
                    assert_eq!(tx.add_note(&ann(), &format!("note {n}"))?, Ok(n + 1));
                }
                assert_eq!(tx.add_note(&ann(), "one more")?, Err(NoteError::Full));
                let room = NoteScope::Room { account: "a".into(), room: "!r".into() };
                for n in 0..8 {
                    assert_eq!(tx.add_note(&room, &format!("{n}{}", "x".repeat(NOTE_CHARS - 1)))?, Ok(n + 1));
                }
                assert_eq!(tx.add_note(&room, &"y".repeat(200))?, Err(NoteError::Full), "too many bytes");
                let grown = "ü".repeat(NOTE_CHARS);
                assert_eq!(tx.replace_note(&room, 1, "", &grown)?, Err(NoteError::Full));
                assert_eq!(tx.replace_note(&room, 1, "", "short")?, Ok(()));
                assert_eq!(tx.add_note(&room, &"y".repeat(200))?, Ok(9));
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn no_two_scopes_share_notes() {
        let app = |app: &str, key: &str| NoteScope::AppKey { app: app.to_owned(), key: key.to_owned() };
        let person = |account: &str, person: &str| NoteScope::Person {
            account: account.into(),
            person: person.to_owned(),
        };
        let scopes = [
            person("a", "@ann"),
            person("a", "@bob"),
            person("b", "@ann"),
            NoteScope::Room { account: "a".into(), room: "@ann".into() },
            app("a", "@ann"),
            app("forge", "key"),
            app("other", "key"),
            app("forge", "key2"),
            app("", "forge\",\"key"),
            app("forge\",\"key", ""),
        ];
        let (_folder, store) = temporary();
        store
            .write(move |tx| {
                for (n, scope) in scopes.iter().enumerate() {
                    assert_eq!(tx.add_note(scope, &format!("of {n}"))?, Ok(1), "{scope:?}");
                }
                for (n, scope) in scopes.iter().enumerate() {
                    assert_eq!(texts(tx, scope)?, [format!("of {n}")], "{scope:?}");
                }
                Ok(())
            })
            .await
            .unwrap();
    }
}
