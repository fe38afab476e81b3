//! Looks up events on the homeserver while a response is read: the message that a reply answers, whether a thread is
//! ours.
//!
//! Lookups run one after the other, so their number, their time and the cache are bounded: a room full of replies
//! must not stop the reading of other rooms.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{
    TimelineEvent, TimelineEventKind, UnsignedDecryptionResult, UnsignedEventLocation,
};
use matrix_sdk::ruma::api::client::room::get_room_event::v3::Request;
use matrix_sdk::ruma::events::AnyTimelineEvent;
use matrix_sdk::ruma::events::room::history_visibility::HistoryVisibility;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedRoomId, OwnedUserId, UserId};
use parking_lot::Mutex;
use serde_json::Value;
use talaria_platform::{PlatformError, PlatformErrorKind, QuotedMessage};
use tokio::time::Instant;

use super::retry::{FAULTS, insist_on_room, once};
use super::room_update::unseal;
use super::text;
use super::time_budget::TimeBudget;
use super::wire::{self, MatrixEventKind};
use crate::error::{from_http, kind_of};
use crate::own_messages::{OwnMessages, RecentCache};

/// Characters of an earlier message that are quoted at most.
const QUOTE: usize = 2_000;
/// Lookups that are allowed for one response.
const ASKED: u32 = 600;
/// Time limit for all lookups of one response. After that nothing is looked up, and nothing is decided without the
/// answer.
const TIME: Duration = Duration::from_secs(60);
/// Failed lookups in one room while one response is read: the first is retried at length, the second hardly, and then
/// no more of that room are made. If the homeserver is silent for both, some of the time is left for the other rooms.
const STUMBLES: u32 = 2;
/// Time limit for one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two requests for the keys of one person.
const KEYS_AGAIN: Duration = Duration::from_secs(60);

/// Knowledge about earlier messages: caches, and the bounds for lookups.
pub(super) struct EventLookup {
    own: OwnedUserId,
    /// Our own messages and threads; `outbound` adds what it sends.
    ours: Arc<OwnMessages>,
    /// Threads that we did not take part in when we looked.
    others: Mutex<RecentCache<(OwnedRoomId, OwnedEventId)>>,
    /// Lookups that are left for this response.
    left: AtomicU32,
    /// Time that is left for lookups.
    time: TimeBudget,
    /// Failed lookups by room: a broken room uses up only its own retries.
    stumbles: Mutex<HashMap<OwnedRoomId, u32>>,
    /// People whose keys were requested lately, and when.
    asked: Mutex<HashMap<OwnedUserId, Instant>>,
}

/// Result of a lookup.
pub(super) enum FetchResult<T> {
    Event(T),
    /// The event does not exist, or we may not see it.
    Nothing,
    /// The homeserver gives no answer, however often we ask, so nothing may be decided.
    Unknown,
}

/// An earlier message that a person replied to.
#[derive(Debug)]
pub(super) struct EarlierMessage {
    /// Whether we wrote it; `None` if that is unknown.
    pub ours: Option<bool>,
    pub quote: Option<QuotedMessage>,
}

impl EventLookup {
    pub fn new(own: &UserId, ours: Arc<OwnMessages>) -> Self {
        Self {
            own: own.to_owned(),
            ours,
            others: Mutex::default(),
            left: AtomicU32::new(ASKED),
            time: TimeBudget::new(TIME),
            stumbles: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// Resets the bounds: another response is read, or undecrypted messages are tried again.
    pub fn renew(&self) {
        self.time.renew();
        self.left.store(ASKED, Ordering::Relaxed);
        self.stumbles.lock().clear();
    }

    /// Whether we take part in a thread, or began it; `None` if that is unknown.
    pub async fn is_our_thread(&self, room: &Room, root: &EventId) -> Result<Option<bool>, PlatformError> {
        let (id, key) = (room.room_id(), (room.room_id().to_owned(), root.to_owned()));
        if self.ours.has_thread(id, root) {
            return Ok(Some(true));
        }
        if self.others.lock().has(&key) {
            return Ok(Some(false));
        }
        let event = match self.ask(room, root).await? {
            FetchResult::Event(event) => event,
            FetchResult::Nothing => return Ok(Some(false)),
            FetchResult::Unknown => return Ok(None),
        };
        let ours = participates(&self.own, event.raw().json().get());
        if ours {
            self.ours.takes_part(id, root);
        } else {
            self.others.lock().insert(key);
        }
        Ok(Some(ours))
    }

    /// Looks up the message that a reply answers. In an encrypted room only an encrypted message is quoted: the
    /// homeserver can write anything in plaintext.
    pub async fn earlier(
        &self,
        room: &Room,
        id: &EventId,
        asker: &UserId,
        encrypted: bool,
    ) -> Result<EarlierMessage, PlatformError> {
        let known = self.ours.has(room.room_id(), id);
        let event = match self.ask(room, id).await? {
            FetchResult::Event(event) => event,
            FetchResult::Nothing => return Ok(EarlierMessage { ours: Some(known), quote: None }),
            FetchResult::Unknown => return Ok(EarlierMessage { ours: known.then_some(true), quote: None }),
        };
        let ours = known || event.sender().is_some_and(|sender| sender == self.own);
        if ours {
            self.ours.wrote(room.room_id(), id, None);
        }
        let unquoted = EarlierMessage { ours: Some(ours), quote: None };
        let Some((sender, words)) = reads_now(&event, encrypted) else { return Ok(unquoted) };
        // A person who came later may refer to an earlier message without being allowed to read it.
        let is_theirs = sender == self.own || sender == asker;
        let is_for_all = match room.history_visibility_or_default() {
            HistoryVisibility::Shared | HistoryVisibility::WorldReadable => true,
            // Invited, joined, and values that we do not know.
            _ => false,
        };
        if !is_theirs && !is_for_all {
            return Ok(unquoted);
        }
        let author = if sender == self.own { None } else { Some(called(room, &sender).await) };
        Ok(EarlierMessage {
            quote: Some(QuotedMessage { author, text: text::beginning(&words, QUOTE) }),
            ..unquoted
        })
    }

    /// Whether the keys of a person may be requested: not more than once per `KEYS_AGAIN`.
    pub fn may_ask_for_keys_of(&self, user: &UserId) -> bool {
        let mut asked = self.asked.lock();
        let now = Instant::now();
        asked.retain(|_, at| now - *at < KEYS_AGAIN);
        if asked.contains_key(user) || !self.may_ask() {
            return false;
        }
        asked.insert(user.to_owned(), now);
        true
    }

    /// Counts the time of a request that was made elsewhere.
    pub fn took(&self, time: Duration) {
        self.time.spend(time);
    }

    fn may_ask(&self) -> bool {
        if !self.time.has(Duration::ZERO) {
            return false;
        }
        let less = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    async fn ask(&self, room: &Room, id: &EventId) -> Result<FetchResult<TimelineEvent>, PlatformError> {
        if !self.may_ask() {
            tracing::debug!(room = %room.room_id(), "too many lookups for one response: an event is not looked up");
            return Ok(FetchResult::Unknown);
        }
        Ok(match self.fetch(room, id).await? {
            FetchResult::Event(event) => FetchResult::Event(unseal(room, event.cast()).await),
            FetchResult::Nothing => FetchResult::Nothing,
            FetchResult::Unknown => FetchResult::Unknown,
        })
    }

    /// Fetches an event as the homeserver has it. A homeserver that is away for a moment must not decide whether a
    /// message is for us; one that never returns this event, while it answers everything else, must not end the
    /// reading. An error means that the account cannot be used any more.
    pub async fn fetch(
        &self,
        room: &Room,
        id: &EventId,
    ) -> Result<FetchResult<Raw<AnyTimelineEvent>>, PlatformError> {
        let (client, request) = (room.client(), Request::new(room.room_id().to_owned(), id.to_owned()));
        let ask =
            || async { client.send(request.clone()).with_request_config(once().timeout(TIMEOUT)).await };
        let stumbles = self.stumbles_in(room);
        if stumbles >= STUMBLES || !self.time.has(Duration::ZERO) {
            tracing::debug!(room = %room.room_id(), event = %id, "an event is not looked up: too many lookups failed in this room");
            return Ok(FetchResult::Unknown);
        }
        let faults = if stumbles == 0 { FAULTS } else { 1 };
        let error = match insist_on_room(&client, "an event", faults, &self.time, ask).await {
            Ok(shown) => return Ok(FetchResult::Event(shown.event)),
            Err(error) => error,
        };
        match kind_of(&error) {
            PlatformErrorKind::Fatal => Err(from_http(error)),
            PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported => {
                tracing::debug!(room = %room.room_id(), event = %id, %error, "an event does not exist, or we may not see it");
                Ok(FetchResult::Nothing)
            }
            PlatformErrorKind::Retry { .. } => {
                self.stumbled_in(room);
                tracing::warn!(room = %room.room_id(), event = %id, %error, "the homeserver cannot return an event; reading goes on without it");
                Ok(FetchResult::Unknown)
            }
        }
    }

    fn stumbles_in(&self, room: &Room) -> u32 {
        let stumbles = self.stumbles.lock();
        stumbles.get(room.room_id()).copied().unwrap_or_default()
    }

    fn stumbled_in(&self, room: &Room) {
        let mut stumbles = self.stumbles.lock();
        *stumbles.entry(room.room_id().to_owned()).or_default() += 1;
    }
}

/// The author of an event and its current text.
fn reads_now(event: &TimelineEvent, encrypted: bool) -> Option<(OwnedUserId, String)> {
    // A replacement of an encrypted message counts only if it was encrypted as well.
    let replaced = match &event.kind {
        TimelineEventKind::Decrypted(decrypted) => decrypted
            .unsigned_encryption_info
            .as_ref()
            .and_then(|parts| parts.get(&UnsignedEventLocation::RelationsReplace))
            .is_some_and(|part| matches!(part, UnsignedDecryptionResult::Decrypted(_))),
        TimelineEventKind::PlainText { .. } if encrypted => return None,
        TimelineEventKind::PlainText { .. } => true,
        TimelineEventKind::UnableToDecrypt { .. } => return None,
    };
    words(event.raw().json().get(), replaced)
}

fn words(json: &str, replaced: bool) -> Option<(OwnedUserId, String)> {
    let happening = wire::read(json)?;
    let MatrixEventKind::Said(said) = happening.what else { return None };
    let newest = if replaced { replacement(json, &happening.sender) } else { None };
    let (message, is_reply) = match &newest {
        Some(newest) => (&newest.message, false),
        None => (&said.message, said.reply_to.is_some()),
    };
    // Notices are our own messages about turns: people may ask about them.
    let words = text::of(message, is_reply, happening.sender.localpart())
        .unwrap_or_else(|| message.body().to_owned());
    Some((happening.sender, words))
}

/// The newest replacement by the author, if the homeserver has bundled one with the event.
fn replacement(json: &str, author: &UserId) -> Option<wire::MessageContent> {
    let event: Value = serde_json::from_str(json).ok()?;
    let edit = event.get("unsigned")?.get("m.relations")?.get("m.replace")?;
    let edit = wire::read(&edit.to_string())?;
    match edit.what {
        MatrixEventKind::Edited { said, .. } if edit.sender == author => Some(said),
        _ => None,
    }
}

/// Whether the first event of a thread shows that we take part, or is ours.
fn participates(own: &UserId, json: &str) -> bool {
    let Ok(event) = serde_json::from_str::<Value>(json) else { return false };
    let thread = event.get("unsigned").and_then(|unsigned| unsigned.get("m.relations")?.get("m.thread"));
    let takes_part = thread.and_then(|thread| thread.get("current_user_participated")?.as_bool());
    takes_part == Some(true) || event.get("sender").and_then(Value::as_str) == Some(own.as_str())
}

/// The name of a person in a room, or the id if they have none.
async fn called(room: &Room, user: &UserId) -> String {
    shown_name(room, user).await.unwrap_or_else(|| user.to_string())
}

/// The display name of a person in a room.
pub(super) async fn shown_name(room: &Room, user: &UserId) -> Option<String> {
    let member = room.get_member_no_sync(user).await.ok().flatten()?;
    text::name(member.display_name()?)
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::json;

    use super::*;

    fn message(edit_by: &str) -> String {
        json!({"type": "m.room.message", "event_id": "$1", "sender": "@ann:example.org",
            "content": {"msgtype": "m.text", "body": "old"},
            "unsigned": {"m.relations": {"m.replace": {
                "type": "m.room.message", "event_id": "$2", "sender": edit_by,
                "content": {"msgtype": "m.text", "body": "* new", "m.new_content": {"msgtype": "m.text", "body": "new"},
                    "m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}}}}}})
        .to_string()
    }

    #[test]
    fn a_message_reads_as_its_author_last_edited_it() {
        let text = |json: &str, replaced| words(json, replaced).map(|(_, text)| text);

        assert_eq!(text(&message("@ann:example.org"), true).as_deref(), Some("new"));
        assert_eq!(text(&message("@ann:example.org"), false).as_deref(), Some("old"));
        assert_eq!(text(&message("@eve:example.org"), true).as_deref(), Some("old"));
        assert_eq!(text(r#"{"unsigned": 1}"#, true), None);
    }

    #[test]
    fn a_thread_is_ours_if_we_began_it_or_wrote_in_it() {
        let own = user_id!("@bot:example.org");
        let thread = |participated: Value| {
            json!({"sender": "@ann:example.org",
                "unsigned": {"m.relations": {"m.thread": {"current_user_participated": participated}}}})
            .to_string()
        };

        assert!(participates(own, &thread(json!(true))));
        assert!(!participates(own, &thread(json!(false))));
        assert!(!participates(own, &thread(json!("true"))));
        assert!(participates(own, r#"{"sender": "@bot:example.org"}"#));
        assert!(!participates(own, r#"{"sender": "@ann:example.org"}"#));
        assert!(!participates(own, "[]"));
    }
}
