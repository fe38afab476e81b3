//! Deletes messages, with every edit of them.
//!
//! On Matrix an edit is an event of its own that carries the whole text, and it stays readable after the message is
//! redacted. People should not see earlier texts come back while the edits go one by one, so the message goes first;
//! and Synapse does not list the edits of a redacted message (`tests/live/deleting.rs` checks that). So the first
//! call lists everything and stores the list durably; then each call redacts one event. An edit that was under way
//! meanwhile is found by reading the room from the position where the list was made.

use matrix_sdk::ruma::api::Direction;
use matrix_sdk::ruma::api::client::message::get_message_events;
use matrix_sdk::ruma::api::client::redact::redact_event;
use matrix_sdk::ruma::api::client::relations::get_relating_events_with_rel_type;
use matrix_sdk::ruma::events::relation::RelationType;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedUserId, UserId, uint};
use matrix_sdk::{HttpError, Room};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_platform::{
    DeletionProgress, InboxError, MessageId, Place, PlatformError, PlatformErrorKind, SendKey,
};
use tracing::warn;

use super::{WRITE, event_id, joined, once, within};
use crate::account::MatrixAccount;
use crate::error::from_http;

/// Pages of edits that are read at most. A page has a hundred edits, and an answer is edited at most two hundred
/// times; a homeserver whose list never ends must not keep us reading.
const PAGES: usize = 20;

/// Events that are left to redact, stored between two calls.
#[derive(Default, Deserialize, Serialize)]
struct RemainingRedactions {
    /// Taken from the end: the message, then the newest edit, which has the most text.
    events: Vec<OwnedEventId>,
    /// The room's newest position before the edits were listed. Later edits are looked for once, when `events` is
    /// empty.
    since: Option<String>,
}

/// Redacts the next event of a message: first the message, then its edits. Gives no reason: everybody could read it.
pub(crate) async fn delete(
    account: &MatrixAccount,
    place: &Place,
    message: &MessageId,
    key: &SendKey,
) -> Result<DeletionProgress, PlatformError> {
    let room = joined(account, &place.room)?;
    let message = event_id(message)?;
    within(WRITE, async {
        let note = format!("deleting.{message}");
        let mut remaining = match account.inbox.note(&note).await.map_err(not_now)? {
            Some(kept) => serde_json::from_str::<RemainingRedactions>(&kept).unwrap_or_default(),
            None => RemainingRedactions::default(),
        };
        if remaining.events.is_empty() {
            remaining = match remaining.since {
                Some(since) => late_edits(account, &room, &message, since).await?,
                None => everything(account, &room, &message).await?,
            };
            keep(account, &note, &remaining).await?;
        }
        let Some(event) = remaining.events.pop() else { return Ok(DeletionProgress::Complete) };
        match redact(account, &room, &event, key).await {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), PlatformErrorKind::Retry { .. } | PlatformErrorKind::Fatal) =>
            {
                return Err(error);
            }
            // A refusal does not mean that the room is gone: the message is still there.
            Err(error) if event == message => {
                keep(account, &note, &RemainingRedactions::default()).await?;
                return Err(error);
            }
            Err(error) => {
                warn!(room = %place.room, kind = ?error.kind(), "an edit of a deleted message is still there")
            }
        }
        keep(account, &note, &remaining).await?;
        Ok(if remaining.is_nothing() { DeletionProgress::Complete } else { DeletionProgress::More })
    })
    .await
}

impl RemainingRedactions {
    fn is_nothing(&self) -> bool {
        self.events.is_empty() && self.since.is_none()
    }
}

/// A message and all edits of it that are there now.
async fn everything(
    account: &MatrixAccount,
    room: &Room,
    message: &EventId,
) -> Result<RemainingRedactions, PlatformError> {
    // The position first: then every edit is in the list, or after the position, or both.
    let mut request = get_message_events::v3::Request::backward(room.room_id().to_owned());
    request.limit = uint!(1);
    let newest = known(account.client.send(request).with_request_config(once(WRITE)).await)?;
    let mut events = edits(account, room, message).await?;
    events.reverse();
    events.push(message.to_owned());
    Ok(RemainingRedactions { events, since: newest.map(|newest| newest.start) })
}

/// Edits of a redacted message that arrived after the others were listed. A homeserver that lists the edits of
/// redacted messages is asked for them too: it may count positions in another way.
async fn late_edits(
    account: &MatrixAccount,
    room: &Room,
    message: &EventId,
    since: String,
) -> Result<RemainingRedactions, PlatformError> {
    let mut events = edits(account, room, message).await?;
    let mut from = since;
    for _ in 0..PAGES {
        let mut request = get_message_events::v3::Request::new(room.room_id().to_owned(), Direction::Forward);
        (request.from, request.limit) = (Some(from.clone()), uint!(100));
        request.filter.senders = Some(vec![account.own.clone()]);
        let Some(page) = known(account.client.send(request).with_request_config(once(WRITE)).await)? else {
            break;
        };
        events.extend(
            page.chunk.iter().filter_map(|event| own_edit(event.json().get(), &account.own, message)),
        );
        match page.end {
            Some(end) if end != from => from = end,
            Some(_) | None => break,
        }
    }
    events.sort();
    events.dedup();
    Ok(RemainingRedactions { events, since: None })
}

/// A response of the homeserver; `None` if the thing does not exist, or not for us.
fn known<T>(answer: Result<T, HttpError>) -> Result<Option<T>, PlatformError> {
    match answer.map_err(from_http) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.kind(), PlatformErrorKind::Gone | PlatformErrorKind::Rejected) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn redact(
    account: &MatrixAccount,
    room: &Room,
    event: &EventId,
    key: &SendKey,
) -> Result<(), PlatformError> {
    // One transaction id for each event, the same after a crash.
    let transaction = format!("{key}.{event}");
    let request =
        redact_event::v3::Request::new(room.room_id().to_owned(), event.to_owned(), transaction.into());
    account.client.send(request).with_request_config(once(WRITE)).await.map(drop).map_err(from_http)
}

/// Lists our own edits of a message. Clients ignore `m.replace` events of other senders, so those are left out.
async fn edits(
    account: &MatrixAccount,
    room: &Room,
    message: &EventId,
) -> Result<Vec<OwnedEventId>, PlatformError> {
    let (mut found, mut from) = (Vec::new(), None);
    for _ in 0..PAGES {
        let mut request = get_relating_events_with_rel_type::v1::Request::new(
            room.room_id().to_owned(),
            message.to_owned(),
            RelationType::Replacement,
        );
        (request.from, request.limit) = (from, Some(uint!(100)));
        let Some(page) = known(account.client.send(request).with_request_config(once(WRITE)).await)? else {
            break;
        };
        found.extend(
            page.chunk.iter().filter_map(|event| own_edit(event.json().get(), &account.own, message)),
        );
        let Some(next) = page.next_batch else { break };
        from = Some(next);
    }
    Ok(found)
}

/// The fields of a listed edit, encrypted or not.
#[derive(Deserialize)]
struct ListedEdit {
    event_id: OwnedEventId,
    sender: OwnedUserId,
    #[serde(default)]
    content: Value,
}

/// The id of an event, if it is our edit of this message. A redacted edit does not count: it no longer names the
/// message.
fn own_edit(event: &str, own: &UserId, message: &EventId) -> Option<OwnedEventId> {
    let listed: ListedEdit = serde_json::from_str(event).ok()?;
    let relation = listed.content.get("m.relates_to")?;
    let is_edit = relation.get("rel_type")? == "m.replace" && relation.get("event_id")? == message.as_str();
    (listed.sender == own && is_edit).then_some(listed.event_id)
}

async fn keep(
    account: &MatrixAccount,
    note: &str,
    remaining: &RemainingRedactions,
) -> Result<(), PlatformError> {
    let value = match remaining.is_nothing() {
        true => String::new(),
        false => serde_json::to_string(remaining).unwrap_or_default(),
    };
    account.inbox.set_note(note, &value).await.map_err(not_now)
}

fn not_now(error: InboxError) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Retry { after: None }, error)
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::{event_id, user_id};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_our_own_edits_of_the_message_are_redacted() {
        let event = |sender: &str, content: Value| {
            json!({ "event_id": "$edit", "sender": sender, "type": "m.room.encrypted", "content": content })
                .to_string()
        };
        let edit_of = |message: &str| {
            let relation = json!({ "rel_type": "m.replace", "event_id": message });
            json!({ "ciphertext": "x", "m.relates_to": relation })
        };
        let (own, message) = (user_id!("@bot:example.org"), event_id!("$answer"));
        assert!(own_edit(&event("@bot:example.org", edit_of("$answer")), own, message).is_some());
        for other in [
            event("@eve:example.org", edit_of("$answer")),
            event("@bot:example.org", edit_of("$other")),
            event("@bot:example.org", json!({ "ciphertext": "x" })),
            event("@bot:example.org", json!({})),
            "{}".to_owned(),
        ] {
            assert_eq!(own_edit(&other, own, message), None, "{other}");
        }
    }
}
