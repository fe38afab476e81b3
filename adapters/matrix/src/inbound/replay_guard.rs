//! Accepts each encrypted message once, so that a homeserver cannot replay an old one.
//!
//! A person who controls the homeserver can send an old message again as a new event, in its author's name: it
//! decrypts as before, and the SDK accepts it. Only the message index in its Megolm session tells a replay from a
//! person who repeats their words: nobody can change the index without the key. But the SDK keeps no index for a
//! message that a sync brought. So we look at each message that counts once more, as it was sent: `wake` has most of
//! them, the others are fetched. We remember the accepted indexes in one note for each session. If the homeserver does
//! not return the message, it is treated like one that cannot be decrypted: better to ask the person to send it again
//! than to obey it twice.
//!
//! The homeserver may show us another message than it showed the SDK, in the poll as on a request. It must be of the
//! same session and say the same; then its author has written both, and we obey as many of them as were written.
//!
//! A message to others does not count, unless it is a command. The reference to the answered message is in plaintext,
//! so the homeserver can make a message look meant for us: once, as it could have done when the message first came.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{TimelineEvent, TimelineEventKind};
use matrix_sdk::encryption::vodozemac::megolm::MegolmMessage;
use matrix_sdk::ruma::events::AnyTimelineEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{EventId, OwnedEventId};
use serde_json::Value;
use talaria_platform::{PlatformError, RoomEvent, RoomEventKind};

use super::event_lookup::{EventLookup, FetchResult};
use super::wake::SentCopies;
use super::{SyncReader, store_failed};

/// Indexes that are remembered of one session. Clients begin a new session after a hundred messages, unless a room is
/// set otherwise; and it is more than can wait in `undecrypted`, so that a message that is decrypted late is not
/// taken for a replay.
const MOST: usize = 2_000;

/// Accepted messages of the sessions in a batch, by the key of the session's note. Each note is read once and written
/// once.
pub(super) struct ReplayGuard<'a> {
    sessions: BTreeMap<String, MegolmSession>,
    /// Messages of the batch as they were sent, as far as they are known.
    sent: &'a SentCopies,
}

impl<'a> ReplayGuard<'a> {
    pub fn with(sent: &'a SentCopies) -> Self {
        Self { sessions: BTreeMap::new(), sent }
    }

    /// The changed notes, to be stored together with the events of the batch.
    pub fn into_notes(self) -> Vec<(String, String)> {
        let changed = self.sessions.into_iter().filter(|(_, session)| session.changed);
        // Cannot fail: there are only numbers and texts.
        changed
            .map(|(key, session)| (key, serde_json::to_string(&session.events).unwrap_or_default()))
            .collect()
    }
}

/// Accepted messages of one session.
#[derive(Default)]
struct MegolmSession {
    /// Event ids of the newest `MOST` messages, by their index.
    events: BTreeMap<u32, OwnedEventId>,
    /// Whether it differs from the stored note.
    changed: bool,
}

impl MegolmSession {
    fn read(note: Option<&str>) -> Self {
        let events = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
        Self { events, changed: false }
    }

    fn has(&self, id: &EventId) -> bool {
        self.events.values().any(|known| known == id)
    }

    /// Records the message with this index. If the session is full, an index below all remembered ones may have been
    /// accepted and forgotten.
    fn hear(&mut self, number: u32, id: &EventId) -> ReplayVerdict {
        let is_full = self.events.len() >= MOST;
        let oldest = self.events.first_key_value().map(|(oldest, _)| *oldest);
        match self.events.get(&number) {
            Some(known) if known == id => return ReplayVerdict::First,
            Some(_) => return ReplayVerdict::Again,
            None if is_full && oldest.is_some_and(|oldest| number < oldest) => return ReplayVerdict::Again,
            None => {}
        }
        self.events.insert(number, id.to_owned());
        if is_full {
            self.events.pop_first();
        }
        self.changed = true;
        ReplayVerdict::First
    }
}

/// Result of comparing a message with earlier ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplayVerdict {
    /// New, or known under this same id: then the core drops it.
    First,
    /// A replay: an earlier message under another id.
    Again,
    /// Deleted before we could look.
    Deleted,
    /// Unknown: the homeserver does not show the message.
    Unknown,
}

/// The homeserver's copy of a message that it sent us before.
#[derive(Debug, PartialEq, Eq)]
enum ServerCopy {
    /// Encrypted, with this index.
    Sealed(u32),
    /// Deleted.
    Deleted,
    /// Missing, or not the message that was sent.
    Otherwise,
}

impl SyncReader<'_> {
    /// Whether this message was accepted before under another id. Records it in `replay_guard`. After an error
    /// nothing of the batch may be stored: it is read again.
    pub async fn times_heard(
        &self,
        room: &Room,
        event: &TimelineEvent,
        told: &RoomEvent,
        replay_guard: &mut ReplayGuard<'_>,
    ) -> Result<ReplayVerdict, PlatformError> {
        if !matches!(event.kind, TimelineEventKind::Decrypted(_)) || !counts(&told.kind) {
            return Ok(ReplayVerdict::First);
        }
        let (Some(session), Some(id)) = (session_of(event), event.event_id()) else {
            return Ok(ReplayVerdict::Unknown);
        };
        let session = match replay_guard.sessions.entry(format!("heard {} {session}", room.room_id())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unread) => {
                let note = self.account.inbox.note(unread.key()).await.map_err(store_failed)?;
                unread.insert(MegolmSession::read(note.as_deref()))
            }
        };
        if session.has(&id) {
            return Ok(ReplayVerdict::First);
        }
        let copy = replay_guard.sent.get(room.room_id(), &id);
        let times = match shown(&self.lookup, room, &id, event, copy).await? {
            ServerCopy::Sealed(number) => session.hear(number, &id),
            ServerCopy::Deleted => ReplayVerdict::Deleted,
            ServerCopy::Otherwise => ReplayVerdict::Unknown,
        };
        match times {
            ReplayVerdict::First => {}
            ReplayVerdict::Deleted => {
                tracing::debug!(room = %room.room_id(), event = %id, "a message was deleted before its check");
            }
            ReplayVerdict::Again | ReplayVerdict::Unknown => {
                tracing::warn!(room = %room.room_id(), event = %id, ?times, "a possible replay of a message is not obeyed");
            }
        }
        Ok(times)
    }
}

/// Whether the event must not be obeyed twice. A command counts even if it was for others: made a reply to us, it
/// would be obeyed.
fn counts(kind: &RoomEventKind) -> bool {
    match kind {
        RoomEventKind::Message(message) => message.addressed || message.text.starts_with('/'),
        RoomEventKind::Edited { .. } => true,
        // A reaction can be forged anyway, and can only deny; the other kinds do not come encrypted.
        RoomEventKind::Deleted { .. }
        | RoomEventKind::Reacted { .. }
        | RoomEventKind::Left
        | RoomEventKind::Joined
        | RoomEventKind::Unreadable
        | RoomEventKind::Missed { .. } => false,
    }
}

/// Looks at the homeserver's copy of an event that we decrypted, and fetches it if there is none. One request for each
/// event of a response, whose number is bounded: it needs no budget of its own, which some could use up for all.
async fn shown(
    lookup: &EventLookup,
    room: &Room,
    id: &EventId,
    event: &TimelineEvent,
    copy: Option<Raw<AnyTimelineEvent>>,
) -> Result<ServerCopy, PlatformError> {
    let fetched = match copy {
        Some(copy) => FetchResult::Event(copy),
        None => lookup.fetch(room, id).await?,
    };
    let sent = match fetched {
        FetchResult::Event(sent) => sent,
        // We waited long enough: another attempt would end in the same way, for ever, and nobody would be heard. This
        // gives a homeserver no new power: it could have withheld the message itself.
        FetchResult::Nothing | FetchResult::Unknown => return Ok(ServerCopy::Otherwise),
    };
    let shown = read(sent.json().get());
    if let ServerCopy::Sealed(_) = shown {
        // Fails only if the store does.
        let opened = room.decrypt_event(sent.cast_ref_unchecked(), None).await.map_err(store_failed)?;
        // The homeserver may return another message: session and content must be the same.
        let is_same = session_of(&opened).is_some_and(|session| session_of(event) == Some(session))
            && words(opened.raw().json().get())
                .is_some_and(|said| words(event.raw().json().get()) == Some(said));
        if !is_same {
            return Ok(ServerCopy::Otherwise);
        }
    }
    Ok(shown)
}

/// The session id of a decrypted message.
fn session_of(event: &TimelineEvent) -> Option<&str> {
    let TimelineEventKind::Decrypted(decrypted) = &event.kind else { return None };
    decrypted.encryption_info.session_id()
}

/// Type and content of an event. Without `m.relates_to`, which is in plaintext, so that anybody can change it.
fn words(json: &str) -> Option<(Value, Value)> {
    let mut event: Value = serde_json::from_str(json).ok()?;
    let mut content = event.get_mut("content")?.take();
    content.as_object_mut()?.remove("m.relates_to");
    Some((event.get_mut("type")?.take(), content))
}

/// Reads the homeserver's copy. The index is the one it claims: with a changed index it does not decrypt.
fn read(json: &str) -> ServerCopy {
    let Ok(event) = serde_json::from_str::<Value>(json) else { return ServerCopy::Otherwise };
    match event.get("content").and_then(|content| content.get("ciphertext")) {
        Some(sealed) => sealed
            .as_str()
            .and_then(|sealed| MegolmMessage::from_base64(sealed).ok())
            .map_or(ServerCopy::Otherwise, |message| ServerCopy::Sealed(message.message_index())),
        None if event.get("unsigned").is_some_and(|unsigned| unsigned.get("redacted_because").is_some()) => {
            ServerCopy::Deleted
        }
        None => ServerCopy::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::encryption::vodozemac::megolm::{GroupSession, SessionConfig};
    use matrix_sdk::ruma::event_id;
    use serde_json::json;
    use talaria_platform::IncomingMessage;

    use super::*;

    fn said(text: &str, addressed: bool) -> RoomEventKind {
        let text = text.to_owned();
        RoomEventKind::Message(IncomingMessage {
            text,
            addressed,
            reply_to: None,
            quote: None,
            media: Vec::new(),
        })
    }

    #[test]
    fn the_same_number_is_the_same_message_and_the_same_event_is_known() {
        let mut session = MegolmSession::default();
        assert_eq!(session.hear(1, event_id!("$1")), ReplayVerdict::First);
        assert_eq!(session.hear(0, event_id!("$2")), ReplayVerdict::First);
        assert_eq!(session.hear(1, event_id!("$3")), ReplayVerdict::Again);
        assert_eq!(session.hear(1, event_id!("$1")), ReplayVerdict::First);
        assert!(session.has(event_id!("$2")) && !session.has(event_id!("$3")));
    }

    #[test]
    fn a_command_to_others_cannot_be_repeated_as_an_answer_to_us() {
        assert!(counts(&said("/approve", false)) && counts(&said("/approve", true)));
        assert!(counts(&said("open the door", true)) && !counts(&said("open the door", false)));

        let mut session = MegolmSession::default();
        assert_eq!(session.hear(7, event_id!("$to_another_bot")), ReplayVerdict::First);
        assert_eq!(session.hear(7, event_id!("$as_an_answer_to_our_ask")), ReplayVerdict::Again);
    }

    #[test]
    fn what_was_heard_is_kept_once_for_each_session_and_only_if_there_is_more() {
        let mut session = MegolmSession::read(Some(r#"{"3":"$1"}"#));
        session.hear(3, event_id!("$1"));
        session.hear(3, event_id!("$2"));
        let sent = SentCopies::default();
        let same = ReplayGuard { sessions: [("a".to_owned(), session)].into(), sent: &sent };
        assert!(same.into_notes().is_empty());

        let mut session = MegolmSession::read(Some(r#"{"3":"$1"}"#));
        session.hear(11, event_id!("$2"));
        session.hear(4, event_id!("$3"));
        let more = ReplayGuard { sessions: [("a".to_owned(), session)].into(), sent: &sent };
        assert_eq!(more.into_notes(), [("a".to_owned(), r#"{"3":"$1","4":"$3","11":"$2"}"#.to_owned())]);
    }

    #[test]
    fn of_a_long_session_what_was_forgotten_is_refused() {
        let most = u32::try_from(MOST).unwrap();
        let id = |number: u32| EventId::parse(format!("${number}")).unwrap();
        let mut session = MegolmSession::default();
        for number in 0..=most {
            assert_eq!(session.hear(number, &id(number)), ReplayVerdict::First);
        }
        assert_eq!(session.events.len(), MOST);
        assert_eq!(session.hear(0, event_id!("$again")), ReplayVerdict::Again);
        assert_eq!(session.hear(1, event_id!("$again")), ReplayVerdict::Again);
        assert_eq!(session.hear(most + 1, event_id!("$new")), ReplayVerdict::First);
        assert_eq!(session.events.len(), MOST);
    }

    #[test]
    fn what_a_message_relates_to_is_not_what_it_says() {
        let said = |relates: Value| {
            json!({"type": "m.room.message", "event_id": "$1", "unsigned": {"age": 1},
                "content": {"body": "hi", "m.relates_to": relates}})
            .to_string()
        };
        let plain = r#"{"type": "m.room.message", "event_id": "$2", "content": {"body": "hi"}}"#;
        assert_eq!(words(&said(json!({"event_id": "$3"}))), words(plain));
        assert_ne!(words(r#"{"type": "m.room.message", "content": {"body": "ho"}}"#), words(plain));
        assert_ne!(words(r#"{"type": "m.sticker", "content": {"body": "hi"}}"#), words(plain));
        assert_eq!(words(r#"{"type": "m.room.message", "content": []}"#), None);
        assert_eq!(words("junk"), None);
    }

    #[test]
    fn a_message_says_its_number_unless_it_was_taken_back() {
        let mut session = GroupSession::new(SessionConfig::version_1());
        let event = |sealed: &str| json!({"content": {"ciphertext": sealed}}).to_string();
        assert_eq!(read(&event(&session.encrypt("one").to_base64())), ServerCopy::Sealed(0));
        assert_eq!(read(&event(&session.encrypt("one").to_base64())), ServerCopy::Sealed(1));
        assert_eq!(read(&event("AAAA")), ServerCopy::Otherwise);
        assert_eq!(read(r#"{"content": {"ciphertext": {"key": 1}}}"#), ServerCopy::Otherwise);
        assert_eq!(read(r#"{"content": {}}"#), ServerCopy::Otherwise);
        assert_eq!(read(r#"{"content": {}, "unsigned": {"redacted_because": {}}}"#), ServerCopy::Deleted);
        assert_eq!(read("junk"), ServerCopy::Otherwise);
    }
}
