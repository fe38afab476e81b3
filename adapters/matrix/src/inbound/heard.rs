//! What was encrypted once is heard once.
//!
//! Whoever has the homeserver can send an old message once more as a new event, in its author's name: it decrypts as
//! before, and the SDK does not mind. What tells a repetition from somebody who says the same again is the message's
//! number in its Megolm session, which nobody can change without the key; but of what a sync brought, the SDK keeps no
//! number. So what was said is remembered by its words, and only when the same words come again in the same session
//! are the events asked for as they were sent, and their numbers compared. Where that is not possible the message is
//! taken for one that cannot be read: better asked for again than done twice.

use std::collections::BTreeMap;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{TimelineEvent, TimelineEventKind};
use matrix_sdk::encryption::vodozemac::megolm::MegolmMessage;
use matrix_sdk::ruma::{EventId, OwnedEventId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use talaria_platform::{Event, EventKind, InboxError};

use super::Reader;
use super::update::unseal;

/// How often the same may be said in one session. Clients begin a new one after a hundred messages.
const SAME: usize = 1_000;

/// The events that said the same, each with its number where that was ever asked for.
type Heard = BTreeMap<OwnedEventId, Option<u32>>;

/// What a message is when it is compared with earlier ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// It was not heard before.
    First,
    /// It is an earlier one once more.
    Again,
    /// Nobody can say.
    Unknown,
}

impl Reader<'_> {
    /// Whether this was heard before under another id. What is to be remembered of it goes into `notes`, which are
    /// kept together with the event.
    pub async fn times_heard(
        &self,
        room: &Room,
        event: &TimelineEvent,
        told: &Event,
        notes: &mut Vec<(String, String)>,
    ) -> Result<Times, InboxError> {
        let counts = match &told.kind {
            EventKind::Message(message) => message.addressed,
            EventKind::Edited { .. } => true,
            // Nothing else is both encrypted and obeyed.
            EventKind::Deleted { .. }
            | EventKind::Reacted { .. }
            | EventKind::Left
            | EventKind::Joined
            | EventKind::Unreadable
            | EventKind::Missed { .. } => false,
        };
        let (Some(key), Some(id)) = (key(room, event).filter(|_| counts), event.event_id()) else {
            return Ok(Times::First);
        };
        let noted = notes.iter().rfind(|(noted, _)| *noted == key).map(|(_, value)| value.clone());
        let noted = match noted {
            Some(noted) => Some(noted),
            None => self.account.inbox.note(&key).await?,
        };
        let mut heard: Heard = noted.and_then(|noted| serde_json::from_str(&noted).ok()).unwrap_or_default();
        // The same event is read again: the core knows it.
        if heard.contains_key(&id) {
            return Ok(Times::First);
        }
        let mut number = None;
        if !heard.is_empty() {
            for (earlier, number) in &mut heard {
                if number.is_none() {
                    *number = self.number(room, earlier, &key).await;
                }
            }
            number = self.number(room, &id, &key).await;
        }
        let times = compare(&heard, number);
        if times == Times::First {
            heard.insert(id, number);
        } else {
            tracing::warn!(room = %room.room_id(), event = %id, ?times, "a message that may be a repetition is not obeyed");
        }
        notes.push((key, serde_json::to_string(&heard).unwrap_or_default()));
        Ok(times)
    }

    /// The number of a message in its session, if the homeserver shows it as it was sent.
    async fn number(&self, room: &Room, id: &EventId, same: &str) -> Option<u32> {
        let sent = self.lookup.fetch(room, id).await?;
        let number = number_in(sent.json().get())?;
        // Whoever shows it may have taken another message: this one must say the same.
        let event = unseal(room, sent.cast()).await;
        (key(room, &event)? == same).then_some(number)
    }
}

/// Whether a message with this number is one of those.
fn compare(heard: &Heard, number: Option<u32>) -> Times {
    match number {
        _ if heard.is_empty() => Times::First,
        Some(_) if heard.values().any(|earlier| *earlier == number) => Times::Again,
        Some(_) if heard.len() < SAME && heard.values().all(Option::is_some) => Times::First,
        Some(_) | None => Times::Unknown,
    }
}

/// What somebody said in a session, as a name; `None` if it did not come encrypted. Without what it relates to: that is
/// in the clear, for anybody to change.
fn key(room: &Room, event: &TimelineEvent) -> Option<String> {
    let TimelineEventKind::Decrypted(decrypted) = &event.kind else { return None };
    let session = decrypted.encryption_info.session_id()?;
    let words = words(event.raw().json().get())?;
    let mut hash = Sha256::new();
    for part in [room.room_id().as_str(), session, &words] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Some(format!("heard {:x}", hash.finalize()))
}

fn words(json: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(json).ok()?;
    let mut content = event.get_mut("content")?.take();
    content.as_object_mut()?.remove("m.relates_to");
    Some(format!("{} {content}", event.get("type")?))
}

/// The number that an encrypted event has, by its own word: a changed one does not decrypt.
fn number_in(json: &str) -> Option<u32> {
    let event: Value = serde_json::from_str(json).ok()?;
    let sealed = event.get("content")?.get("ciphertext")?.as_str()?;
    Some(MegolmMessage::from_base64(sealed).ok()?.message_index())
}

#[cfg(test)]
mod tests {
    use matrix_sdk::encryption::vodozemac::megolm::{GroupSession, SessionConfig};
    use matrix_sdk::ruma::event_id;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_number_is_the_same_message_and_without_numbers_nobody_knows() {
        let heard = |numbers: &[Option<u32>]| -> Heard {
            let id = |at: usize| EventId::parse(format!("${at}")).unwrap();
            numbers.iter().enumerate().map(|(at, number)| (id(at), *number)).collect()
        };
        assert_eq!(compare(&heard(&[]), None), Times::First);
        assert_eq!(compare(&heard(&[Some(1), Some(2)]), Some(3)), Times::First);
        assert_eq!(compare(&heard(&[Some(1), Some(2)]), Some(2)), Times::Again);
        assert_eq!(compare(&heard(&[None, Some(2)]), Some(2)), Times::Again);
        assert_eq!(compare(&heard(&[None, Some(2)]), Some(3)), Times::Unknown);
        assert_eq!(compare(&heard(&[Some(1)]), None), Times::Unknown);
        assert_eq!(compare(&heard(&vec![Some(1); SAME]), Some(3)), Times::Unknown);
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
        assert_eq!(words(r#"{"type": "m.room.message", "content": []}"#), None);
        assert_eq!(words("junk"), None);
    }

    #[test]
    fn a_message_says_its_number() {
        let mut session = GroupSession::new(SessionConfig::version_1());
        let event = |sealed: &str| json!({"content": {"ciphertext": sealed}}).to_string();
        assert_eq!(number_in(&event(&session.encrypt("one").to_base64())), Some(0));
        assert_eq!(number_in(&event(&session.encrypt("one").to_base64())), Some(1));
        assert_eq!(number_in(&event("AAAA")), None);
        assert_eq!(number_in(r#"{"content": {"ciphertext": {"key": 1}}}"#), None);
        let kept: Heard = serde_json::from_str(r#"{"$1": null, "$2": 7}"#).unwrap();
        assert_eq!(kept.get(event_id!("$2")), Some(&Some(7)));
    }
}
