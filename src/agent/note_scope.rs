//! The owner of an agent's notes. Notes of one owner are never shown to another.

use talaria_platform::{AccountId, RoomId};

/// The owner of notes.
///
/// A person's notes are read only in their direct chat; a shared room has notes of its own, which everybody there may
/// see. Over HTTP the session key of a request owns the notes of its app.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoteScope {
    /// A person, in their direct chat with an account of ours.
    Person {
        /// The account.
        account: AccountId,
        /// The immutable id of the person.
        person: String,
    },
    /// A room that several people share.
    Room {
        /// The account.
        account: AccountId,
        /// The room.
        room: RoomId,
    },
    /// A session key of an app.
    AppKey {
        /// The name of the app; empty for the owner.
        app: String,
        /// The key.
        key: String,
    },
}

impl NoteScope {
    /// The name in the store. Distinct scopes have distinct names, because JSON marks where each part ends.
    pub fn stored_name(&self) -> String {
        let parts = match self {
            Self::Person { account, person } => ["person", account.as_str(), person],
            Self::Room { account, room } => ["room", account.as_str(), room.as_str()],
            Self::AppKey { app, key } => ["app", app, key],
        };
        serde_json::json!(parts).to_string()
    }
}
