//! What must not be forgotten about rooms: which of them were ever encrypted.
//!
//! A homeserver says whether a room is encrypted, and a homeserver may lie or lose state. So whatever was encrypted
//! once is noted durably, and from then on nothing is written there in the clear, whatever is said later.

use std::collections::HashMap;
use std::sync::Arc;

use matrix_sdk::ruma::{OwnedRoomId, RoomId};
use matrix_sdk::{EncryptionState, Room};
use parking_lot::Mutex;
use talaria_platform::{BodyKind, Inbox, InboxError, PlatformError, PlatformErrorKind};
use tracing::{error, info};

use crate::error::from_sdk;
use crate::settings::EncryptionPolicy;

/// The memory of an account's rooms; kept in the inbox's notes.
pub(crate) struct EncryptedRooms {
    inbox: Arc<dyn Inbox>,
    /// What the notes say, as far as it was asked: nobody else writes them.
    known: Mutex<HashMap<OwnedRoomId, bool>>,
}

/// How something may be said in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SendMode {
    /// Encrypted; the room is noted.
    Encrypted,
    /// In the clear; the room never was encrypted.
    Plain,
}

/// Why nothing may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendRefusal {
    #[error("whether the room is encrypted is not known yet")]
    Unknown,
    #[error("the room was encrypted before; refusing plaintext")]
    Downgraded,
    #[error("the room is not encrypted, and `e2ee: required` serves only encrypted rooms")]
    Required,
}

impl EncryptedRooms {
    pub fn new(inbox: Arc<dyn Inbox>) -> Self {
        Self { inbox, known: Mutex::default() }
    }

    /// Notes that a room is encrypted. Cheap when that is known, so it may be called for every event.
    pub async fn saw_encrypted(&self, room: &RoomId) -> Result<(), InboxError> {
        if self.was_encrypted(room).await? {
            return Ok(());
        }
        self.inbox.set_note(&note(room), "1").await?;
        self.remember(room, true);
        info!(%room, "room is encrypted from now on");
        Ok(())
    }

    /// Whether a room was ever seen encrypted.
    pub async fn was_encrypted(&self, room: &RoomId) -> Result<bool, InboxError> {
        let known = self.known.lock().get(room).copied();
        match known {
            Some(known) => Ok(known),
            None => {
                let noted = self.inbox.note(&note(room)).await?.is_some();
                self.remember(room, noted);
                Ok(noted)
            }
        }
    }

    /// How this kind of message may be said in a room. Asks the homeserver when its encryption is not known.
    ///
    /// The SDK looks once more before it sends, and what it knows to be encrypted stays so: it takes no state event
    /// without an algorithm, and redactions leave it alone. Only a room that was forgotten begins anew, which is
    /// what the note is for.
    pub async fn may_speak(
        &self,
        room: &Room,
        e2ee: EncryptionPolicy,
        kind: BodyKind,
    ) -> Result<SendMode, PlatformError> {
        let state = room.latest_encryption_state().await.map_err(from_sdk)?;
        let id = room.room_id();
        let noted = self.was_encrypted(id).await.map_err(not_now)?;
        match decide(noted, state, e2ee, kind) {
            Ok(speech) => {
                if speech == SendMode::Encrypted {
                    self.saw_encrypted(id).await.map_err(not_now)?;
                }
                Ok(speech)
            }
            Err(silence) => {
                match silence {
                    SendRefusal::Downgraded => error!(
                        room = %id,
                        "the room was encrypted before; refusing plaintext. Make a new room if this was intended"
                    ),
                    SendRefusal::Unknown | SendRefusal::Required => {}
                }
                Err(PlatformError::new(silence.kind(), silence))
            }
        }
    }

    fn remember(&self, room: &RoomId, encrypted: bool) {
        let mut known = self.known.lock();
        // Never back to "not": a reader that was slower than a writer must not undo it.
        *known.entry(room.to_owned()).or_insert(encrypted) |= encrypted;
    }
}

impl SendRefusal {
    fn kind(self) -> PlatformErrorKind {
        match self {
            Self::Unknown => PlatformErrorKind::Retry { after: None },
            Self::Downgraded | Self::Required => PlatformErrorKind::Rejected,
        }
    }
}

/// The rule. A room that once was encrypted gets nothing but encrypted messages; what is not known gets nothing;
/// and where encryption is required, only the gateway's own notice says so in a plain room.
fn decide(
    noted: bool,
    state: EncryptionState,
    e2ee: EncryptionPolicy,
    kind: BodyKind,
) -> Result<SendMode, SendRefusal> {
    if state.is_unknown() {
        return Err(SendRefusal::Unknown);
    }
    if state.is_encrypted() {
        return Ok(SendMode::Encrypted);
    }
    if noted {
        return Err(SendRefusal::Downgraded);
    }
    match (e2ee, kind) {
        (EncryptionPolicy::Optional, _) | (EncryptionPolicy::Required, BodyKind::Notice) => {
            Ok(SendMode::Plain)
        }
        (EncryptionPolicy::Required, BodyKind::Answer | BodyKind::Ask) => Err(SendRefusal::Required),
    }
}

fn note(room: &RoomId) -> String {
    format!("encrypted.{room}")
}

fn not_now(error: InboxError) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Retry { after: None }, error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use matrix_sdk::ruma::room_id;
    use talaria_platform::{BoxFuture, EventBatch, RoomInvite};

    use super::*;

    #[test]
    fn nothing_is_said_in_the_clear_where_it_was_encrypted_or_may_be() {
        use BodyKind::{Answer, Ask, Notice};
        use EncryptionPolicy::{Optional, Required};
        use EncryptionState::{Encrypted, NotEncrypted, Unknown};
        for kind in [Answer, Ask, Notice] {
            for e2ee in [Required, Optional] {
                for noted in [true, false] {
                    assert_eq!(decide(noted, Unknown, e2ee, kind), Err(SendRefusal::Unknown));
                    assert_eq!(decide(noted, Encrypted, e2ee, kind), Ok(SendMode::Encrypted));
                }
                assert_eq!(decide(true, NotEncrypted, e2ee, kind), Err(SendRefusal::Downgraded));
            }
            assert_eq!(decide(false, NotEncrypted, Optional, kind), Ok(SendMode::Plain));
        }
        assert_eq!(decide(false, NotEncrypted, Required, Notice), Ok(SendMode::Plain));
        assert_eq!(decide(false, NotEncrypted, Required, Answer), Err(SendRefusal::Required));
        assert_eq!(decide(false, NotEncrypted, Required, Ask), Err(SendRefusal::Required));
    }

    #[tokio::test]
    async fn what_was_encrypted_once_is_known_to_the_next_process() {
        let notes = Arc::new(Notes::default());
        let room = room_id!("!roomWithoutServer");
        let rooms = EncryptedRooms::new(notes.clone());
        assert!(!rooms.was_encrypted(room).await.unwrap());
        for _ in 0..3 {
            rooms.saw_encrypted(room).await.unwrap();
        }
        assert_eq!(notes.writes.load(Ordering::Relaxed), 1, "noted once");
        assert!(rooms.was_encrypted(room).await.unwrap());

        let next = EncryptedRooms::new(notes);
        assert!(next.was_encrypted(room).await.unwrap());
        assert!(!next.was_encrypted(room_id!("!another")).await.unwrap());
    }

    #[derive(Default)]
    struct Notes {
        kept: Mutex<HashMap<String, String>>,
        writes: AtomicUsize,
    }

    impl Inbox for Notes {
        fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>> {
            Box::pin(async { Ok(None) })
        }

        fn accept(&self, _: EventBatch) -> BoxFuture<'_, Result<(), InboxError>> {
            Box::pin(async { Ok(()) })
        }

        fn may_join(&self, _: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>> {
            Box::pin(async { Ok(false) })
        }

        fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>> {
            Box::pin(async { Ok(self.kept.lock().get(key).cloned()) })
        }

        fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.kept.lock().insert(key.to_owned(), value.to_owned());
            Box::pin(async { Ok(()) })
        }
    }
}
