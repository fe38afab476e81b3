//! Parses the JSON of a room event.
//!
//! Pure, and forgiving: anybody who may write to a room chooses every byte of an event. A field of the wrong shape
//! counts as missing; an event never fails a sync.

use matrix_sdk::deserialized_responses::{TimelineEvent, TimelineEventKind};
use matrix_sdk::ruma::events::room::message::MessageType;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedRoomId, OwnedUserId, UserId};
use serde::Deserialize;
use serde_json::Value;

/// Bytes of the longest reaction that is passed on. Emoji are shorter; the field takes any text.
const LONGEST_MARK: usize = 64;

/// An event, as far as we understand it.
#[derive(Debug)]
pub(super) struct MatrixEvent {
    pub id: OwnedEventId,
    pub sender: OwnedUserId,
    /// Its age by the homeserver's clock, in milliseconds. Not by ours, which may be wrong, and never used for
    /// ordering.
    pub age: Option<u64>,
    pub what: MatrixEventKind,
}

/// The kind of an event, with its content.
#[derive(Debug)]
pub(super) enum MatrixEventKind {
    /// A message.
    Said(MessageContent),
    /// An edit of an earlier message.
    Edited { of: OwnedEventId, said: MessageContent },
    /// A deletion (redaction) of an earlier event.
    Deleted { of: OwnedEventId },
    /// A reaction.
    Reacted { to: OwnedEventId, mark: String },
    /// A membership change.
    Member { who: OwnedUserId, change: MemberChange },
    /// The room was upgraded and continues as another one.
    Upgraded { to: OwnedRoomId },
    /// An encrypted event: its content appears only after decryption. Its relations are in plaintext.
    Sealed { session: Option<String>, edit: bool, thread: Option<OwnedEventId> },
    /// An event that does not concern us.
    Nothing,
}

/// Change of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberChange {
    /// Joined the room.
    Came,
    /// Left the room, or was removed.
    Went,
    /// Neither: a new name, an invitation.
    Other,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub(super) struct MessageContent {
    pub message: MessageType,
    /// The users it mentions; `None` if the client does not send mentions, which is different from mentioning nobody.
    pub mentions: Option<Vec<OwnedUserId>>,
    /// The formatted body, as HTML.
    pub html: Option<String>,
    /// The first event of its thread.
    pub thread: Option<OwnedEventId>,
    /// The event it replies to.
    pub reply_to: Option<OwnedEventId>,
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    event_id: String,
    sender: String,
    #[serde(default)]
    state_key: Option<String>,
    #[serde(default)]
    content: Value,
    /// The target of a redaction, in rooms of older versions.
    #[serde(default)]
    redacts: Value,
    #[serde(default)]
    unsigned: Value,
}

/// Reads an event; `None` if the JSON is none.
pub(super) fn read(json: &str) -> Option<MatrixEvent> {
    let wire: RawEvent = serde_json::from_str(json).ok()?;
    let id = EventId::parse(&wire.event_id).ok()?;
    let sender = UserId::parse(&wire.sender).ok()?;
    let age = wire.unsigned.get("age").and_then(Value::as_u64);
    Some(MatrixEvent { id, sender, age, what: wire.what().unwrap_or(MatrixEventKind::Nothing) })
}

/// Reads an event that may have been decrypted. The sender chooses the type inside the ciphertext, and no homeserver
/// has checked it: so only messages, edits and reactions count there, and every other type is ignored.
pub(super) fn of(event: &TimelineEvent) -> Option<MatrixEvent> {
    let mut happening = read(event.raw().json().get())?;
    if matches!(event.kind, TimelineEventKind::Decrypted(_)) {
        happening.what = match happening.what {
            what @ (MatrixEventKind::Said(_)
            | MatrixEventKind::Edited { .. }
            | MatrixEventKind::Reacted { .. }) => what,
            MatrixEventKind::Deleted { .. }
            | MatrixEventKind::Member { .. }
            | MatrixEventKind::Upgraded { .. }
            | MatrixEventKind::Sealed { .. }
            | MatrixEventKind::Nothing => MatrixEventKind::Nothing,
        };
    }
    Some(happening)
}

impl RawEvent {
    fn what(&self) -> Option<MatrixEventKind> {
        let content = &self.content;
        match (self.kind.as_str(), self.state_key.as_deref()) {
            ("m.room.message", None) => message(content),
            ("m.room.encrypted", None) => Some(MatrixEventKind::Sealed {
                session: text(content, "session_id").map(str::to_owned),
                edit: relation(content, "m.replace").is_some(),
                thread: relation(content, "m.thread").and_then(event_id),
            }),
            ("m.room.redaction", None) => {
                // The room's version decides which of the two counts: where they differ, the sender plays a trick.
                let of = match (text(content, "redacts"), self.redacts.as_str()) {
                    (Some(new), Some(old)) => Some(new).filter(|new| *new == old),
                    (new, old) => new.or(old),
                };
                Some(MatrixEventKind::Deleted { of: EventId::parse(of?).ok()? })
            }
            ("m.reaction", None) => {
                let relates = relation(content, "m.annotation")?;
                let mark = text(relates, "key").filter(|mark| mark.len() <= LONGEST_MARK)?;
                Some(MatrixEventKind::Reacted { to: event_id(relates)?, mark: mark.to_owned() })
            }
            ("m.room.member", Some(who)) => {
                let before = self.unsigned.get("prev_content").and_then(|before| text(before, "membership"));
                let change = match text(content, "membership")? {
                    "join" if before == Some("join") => MemberChange::Other,
                    "join" => MemberChange::Came,
                    // An invitation that is declined or withdrawn changes no member.
                    "leave" | "ban" if matches!(before, None | Some("join")) => MemberChange::Went,
                    _ => MemberChange::Other,
                };
                Some(MatrixEventKind::Member { who: UserId::parse(who).ok()?, change })
            }
            ("m.room.tombstone", Some("")) => {
                Some(MatrixEventKind::Upgraded { to: text(content, "replacement_room")?.try_into().ok()? })
            }
            _ => None,
        }
    }
}

fn message(content: &Value) -> Option<MatrixEventKind> {
    match relation(content, "m.replace") {
        Some(relates) => {
            let said = said(content.get("m.new_content")?)?;
            Some(MatrixEventKind::Edited { of: event_id(relates)?, said })
        }
        None => Some(MatrixEventKind::Said(said(content)?)),
    }
}

fn said(content: &Value) -> Option<MessageContent> {
    let relates = content.get("m.relates_to");
    let thread = relation(content, "m.thread").and_then(event_id);
    // In a thread, clients add a reply to its latest message for clients without threads; no person chose it.
    let falls_back = thread.is_some()
        && relates.and_then(|relates| relates.get("is_falling_back")).and_then(Value::as_bool) == Some(true);
    let reply_to = relates.and_then(|relates| relates.get("m.in_reply_to")).and_then(event_id);
    Some(MessageContent {
        message: serde_json::from_value(content.clone()).ok()?,
        mentions: content.get("m.mentions").filter(|mentions| mentions.is_object()).map(mentioned),
        html: text(content, "formatted_body").map(str::to_owned),
        thread,
        reply_to: reply_to.filter(|_| !falls_back),
    })
}

fn mentioned(mentions: &Value) -> Vec<OwnedUserId> {
    let ids = mentions.get("user_ids").and_then(Value::as_array);
    ids.into_iter().flatten().filter_map(Value::as_str).filter_map(|id| UserId::parse(id).ok()).collect()
}

fn relation<'a>(content: &'a Value, kind: &str) -> Option<&'a Value> {
    content.get("m.relates_to").filter(|relates| text(relates, "rel_type") == Some(kind))
}

fn event_id(relates: &Value) -> Option<OwnedEventId> {
    EventId::parse(text(relates, "event_id")?).ok()
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
