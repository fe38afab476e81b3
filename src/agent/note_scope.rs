//! The owner of notes: a person, a room, or a session key of an app.

use serde_json::json;
use talaria_platform::{AccountId, RoomId};

/// The owner of the notes that an agent of ours keeps. Set by the engine, never by a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoteScope {
    /// A person, in direct chats with them.
    Person {
        /// Account that the person talks to.
        account: AccountId,
        /// Immutable id of the person.
        person: String,
    },
    /// A shared room.
    Room {
        /// Account that is in the room.
        account: AccountId,
        /// The room.
        room: RoomId,
    },
    /// A session key of an app.
    AppKey {
        /// Name of the app; empty for the owner.
        app: String,
        /// The key that the app sent.
        key: String,
    },
}

impl NoteScope {
    /// The name in the store. No two scopes share one.
    pub fn stored_name(&self) -> String {
        let (kind, a, b) = match self {
            Self::Person { account, person } => ("person", account.as_str(), person.as_str()),
            Self::Room { account, room } => ("room", account.as_str(), room.as_str()),
            Self::AppKey { app, key } => ("app", app.as_str(), key.as_str()),
        };
        json!([kind, a, b]).to_string()
    }
}
