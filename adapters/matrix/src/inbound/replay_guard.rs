//! What was encrypted once is heard once.
//!
//! Whoever has the homeserver can send an old message once more as a new event, in its author's name: it decrypts as
//! before, and the SDK does not mind. What tells a repetition from somebody who says the same again is the message's
//! number in its Megolm session, which nobody can change without the key; but of what a sync brought, the SDK keeps no
//! number. So a message that counts is asked for once more as it was sent, and the numbers that were heard are
//! remembered, in one note for each session. If the homeserver does not show it, it is taken for one that cannot be
//! read: better asked for again than done twice.
//!
//! What was said to others does not count, unless it is a command. What a message answers is in the clear, so whoever
//! has the homeserver can make it look meant for us: once, as they could have done when it first came.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{TimelineEvent, TimelineEventKind};
use matrix_sdk::encryption::vodozemac::megolm::MegolmMessage;
use matrix_sdk::ruma::{EventId, OwnedEventId};
use serde_json::Value;
use talaria_platform::{PlatformError, RoomEvent, RoomEventKind};

use super::event_lookup::{EventLookup, FetchResult};
use super::{SyncReader, store_failed};

/// Numbers that are remembered of one session. Clients begin a new one after a hundred messages, unless a room wants
/// otherwise; and it is more than can wait in `undecrypted`, so that what is decrypted late is not taken for old.
const MOST: usize = 2_000;

/// What was heard of the sessions that a batch speaks in, by the key of the note. Each is read once and written once.
#[derive(Default)]
pub(super) struct ReplayGuard(BTreeMap<String, MegolmSession>);

impl ReplayGuard {
    /// What is to be kept together with the events of the batch.
    pub fn into_notes(self) -> Vec<(String, String)> {
        let changed = self.0.into_iter().filter(|(_, session)| session.changed);
        // Numbers and texts: there is nothing in it that could fail.
        changed
            .map(|(key, session)| (key, serde_json::to_string(&session.events).unwrap_or_default()))
            .collect()
    }
}

/// What was heard of one session.
#[derive(Default)]
struct MegolmSession {
    /// The newest `MOST`, by their number.
    events: BTreeMap<u32, OwnedEventId>,
    /// Whether there is more than the note says.
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

    /// Hears the event with this number. What is older than all that is remembered of a full session may have been
    /// heard and forgotten.
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

/// What a message is when it is compared with earlier ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplayVerdict {
    /// It was not heard before, or under the same id: that one the core knows.
    First,
    /// It is an earlier one once more.
    Again,
    /// It was taken back before we could see.
    Deleted,
    /// Nobody can say.
    Unknown,
}

/// How the homeserver shows a message that it sent us before.
#[derive(Debug, PartialEq, Eq)]
enum ServerCopy {
    /// Encrypted, with this number.
    Sealed(u32),
    /// Taken back.
    Deleted,
    /// Not at all, or not as it was sent.
    Otherwise,
}

impl SyncReader<'_> {
    /// Whether this was heard before under another id. What is to be remembered of it is in `replay_guard`. With an error
    /// nothing of the batch may be kept: it is read again.
    pub async fn times_heard(
        &self,
        room: &Room,
        event: &TimelineEvent,
        told: &RoomEvent,
        replay_guard: &mut ReplayGuard,
    ) -> Result<ReplayVerdict, PlatformError> {
        if !matches!(event.kind, TimelineEventKind::Decrypted(_)) || !counts(&told.kind) {
            return Ok(ReplayVerdict::First);
        }
        let (Some(session), Some(id)) = (session_of(event), event.event_id()) else {
            return Ok(ReplayVerdict::Unknown);
        };
        let session = match replay_guard.0.entry(format!("heard {} {session}", room.room_id())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unread) => {
                let note = self.account.inbox.note(unread.key()).await.map_err(store_failed)?;
                unread.insert(MegolmSession::read(note.as_deref()))
            }
        };
        if session.has(&id) {
            return Ok(ReplayVerdict::First);
        }
        let times = match shown(&self.lookup, room, &id, event).await? {
            ServerCopy::Sealed(number) => session.hear(number, &id),
            ServerCopy::Deleted => ReplayVerdict::Deleted,
            ServerCopy::Otherwise => ReplayVerdict::Unknown,
        };
        match times {
            ReplayVerdict::First => {}
            ReplayVerdict::Deleted => {
                tracing::debug!(room = %room.room_id(), event = %id, "a message was taken back before it was heard");
            }
            ReplayVerdict::Again | ReplayVerdict::Unknown => {
                tracing::warn!(room = %room.room_id(), event = %id, ?times, "a message that may be a repetition is not obeyed");
            }
        }
        Ok(times)
    }
}

/// Whether it must not happen twice. A command counts whoever it was for: as an answer to us it would be obeyed.
fn counts(kind: &RoomEventKind) -> bool {
    match kind {
        RoomEventKind::Message(message) => message.addressed || message.text.starts_with('/'),
        RoomEventKind::Edited { .. } => true,
        // A mark can be forged anyway, and does nothing but deny; nothing else comes encrypted.
        RoomEventKind::Deleted { .. }
        | RoomEventKind::Reacted { .. }
        | RoomEventKind::Left
        | RoomEventKind::Joined
        | RoomEventKind::Unreadable
        | RoomEventKind::Missed { .. } => false,
    }
}

/// How the homeserver shows an event that we decrypted. One request for each event of a response, of which there are
/// only so many: it needs no budget of its own, which some could use up for all.
async fn shown(
    lookup: &EventLookup,
    room: &Room,
    id: &EventId,
    event: &TimelineEvent,
) -> Result<ServerCopy, PlatformError> {
    let sent = match lookup.fetch(room, id).await? {
        FetchResult::Event(sent) => sent,
        // It was waited for long enough: another try would find the same, for ever, and nobody would be heard.
        // That gives nobody a new power: whoever can keep this from us could have kept the message itself.
        FetchResult::Nothing | FetchResult::Unknown => return Ok(ServerCopy::Otherwise),
    };
    let shown = read(sent.json().get());
    if let ServerCopy::Sealed(_) = shown {
        // It fails only with the store.
        let opened = room.decrypt_event(sent.cast_ref_unchecked(), None).await.map_err(store_failed)?;
        // Whoever shows it may have taken another message: this one must say the same.
        let is_same = session_of(&opened).is_some_and(|session| session_of(event) == Some(session))
            && words(opened.raw().json().get())
                .is_some_and(|said| words(event.raw().json().get()) == Some(said));
        if !is_same {
            return Ok(ServerCopy::Otherwise);
        }
    }
    Ok(shown)
}

/// The session of a message that was decrypted.
fn session_of(event: &TimelineEvent) -> Option<&str> {
    let TimelineEventKind::Decrypted(decrypted) = &event.kind else { return None };
    decrypted.encryption_info.session_id()
}

/// What somebody said. Without what it relates to: that is in the clear, for anybody to change.
fn words(json: &str) -> Option<(Value, Value)> {
    let mut event: Value = serde_json::from_str(json).ok()?;
    let mut content = event.get_mut("content")?.take();
    content.as_object_mut()?.remove("m.relates_to");
    Some((event.get_mut("type")?.take(), content))
}

/// An event as it was sent. The number is by its own word: a changed one does not decrypt.
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
        let same = ReplayGuard([("a".to_owned(), session)].into());
        assert!(same.into_notes().is_empty());

        let mut session = MegolmSession::read(Some(r#"{"3":"$1"}"#));
        session.hear(11, event_id!("$2"));
        session.hear(4, event_id!("$3"));
        let more = ReplayGuard([("a".to_owned(), session)].into());
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
