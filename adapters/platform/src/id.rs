//! Ids, each its own type. All are opaque text made by an adapter, except where the type says otherwise.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text of an id as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id as text, for storage and for the adapter that made it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

id! {
    /// One account on one chat network: the name of its entry below `platforms` in the configuration. Made by the
    /// core; never changes in the life of an installation.
    AccountId
}
id! {
    /// A room, channel or direct chat.
    RoomId
}
id! {
    /// A thread inside a room.
    ThreadId
}
id! {
    /// A person or bot. Must be an id that the network never changes, never a display name.
    UserId
}
id! {
    /// An event in a room; unique within it. The core answers each id at most once.
    EventId
}
id! {
    /// A message of ours that a platform shows, as [`send`](crate::Platform::send) returned it.
    MessageId
}
id! {
    /// A file that a person attached; the core passes it to [`fetch`](crate::Platform::fetch).
    MediaId
}
id! {
    /// Key of one send, made by the core from the turn and part that is shown, so a repetition after a crash has the
    /// same key. At most 64 characters of `A–Z a–z 0–9 . _ -`. Sending one key twice must post once.
    SendKey
}

/// Where a conversation happens: a room, and the thread inside it if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The room, channel or direct chat.
    pub room: RoomId,
    /// The thread inside the room, or `None` for its main timeline.
    pub thread: Option<ThreadId>,
}

impl Place {
    /// The main timeline of a room.
    pub fn room(room: impl Into<String>) -> Self {
        Self { room: RoomId::new(room), thread: None }
    }
}
