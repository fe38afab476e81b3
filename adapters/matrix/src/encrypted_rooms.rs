//! Remembers which rooms were ever encrypted, and refuses plaintext there.
//!
//! A homeserver says whether a room is encrypted, and a homeserver may lie or lose state. So the first sight of
//! encryption in a room is noted durably, and from then on we never write there in plaintext, even if the homeserver
//! denies it later.

use std::collections::HashMap;
use std::sync::Arc;

use matrix_sdk::ruma::{OwnedRoomId, RoomId};
use matrix_sdk::{EncryptionState, Room};
use parking_lot::Mutex;
use talaria_platform::{BodyKind, Inbox, InboxError, PlatformError, PlatformErrorKind};
use tracing::{error, info};

use crate::config::EncryptionPolicy;
use crate::error::from_sdk;

/// The rooms of an account that were ever encrypted; kept in the inbox's notes.
pub(crate) struct EncryptedRooms {
    inbox: Arc<dyn Inbox>,
    /// Cache of the notes read so far. Nobody else writes them.
    known: Mutex<HashMap<OwnedRoomId, bool>>,
}

/// Form in which a message may be sent to a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SendMode {
    /// Encrypted; the room is noted as encrypted.
    Encrypted,
    /// In plaintext; the room was never encrypted.
    Plain,
}

/// Why a message may not be sent to a room.
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

    /// Notes that a room is encrypted. Cheap if it is noted already, so it may be called for every event.
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

    /// Decides how a message of this kind may be sent to a room. Asks the homeserver if the room's encryption is
    /// unknown.
    ///
    /// The SDK checks once more before it sends, and a room that it knows to be encrypted stays so: it ignores a
    /// state event without an algorithm, and redactions change nothing. Only a room that the SDK forgot starts anew;
    /// the note is for that case.
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
        // Never back to `false`: a slow reader must not undo the work of a writer.
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

/// The rule. A room that once was encrypted gets only encrypted messages; a room whose state is unknown gets nothing;
/// and where encryption is required, a plaintext room gets only the gateway's own notices.
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
