//! Says our part of a verification in the clear, to somebody who cannot read us yet.
//!
//! With `trust: verified` only people whom the operator has verified get our keys. Whoever wants to be verified in a
//! room has none: the SDK encrypts our part like everything else there, and they cannot read it; and most clients verify
//! other people nowhere but in rooms. So each event of ours in such a verification is sent once more, as it is, when it
//! comes back to us.
//!
//! None of it is secret: between devices the same goes in the clear, as Matrix has it, Element's web client says all of
//! its part in the clear in rooms too, and what keeps both sides safe from whoever is in between are the pictures that
//! they compare. Nobody's words can be among it: only these types, only what this device encrypted, each once, and
//! only in answer to a request that the operator has gone on with.

use std::time::Duration;

use matrix_sdk::Room;
use matrix_sdk::config::RequestConfig;
use matrix_sdk::deserialized_responses::EncryptionInfo;
use matrix_sdk::event_handler::{EventHandlerHandle, RawEvent};
use matrix_sdk::ruma::api::client::message::send_message_event::v3::Request;
use matrix_sdk::ruma::events::AnySyncMessageLikeEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{OwnedEventId, OwnedTransactionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::login::Opened;

/// How long sending one may take: the next sync waits for it.
const SENDING: Duration = Duration::from_secs(10);

/// What one side of a verification says after the request.
const PARTS: [&str; 7] = [
    "m.key.verification.ready",
    "m.key.verification.start",
    "m.key.verification.accept",
    "m.key.verification.key",
    "m.key.verification.mac",
    "m.key.verification.done",
    "m.key.verification.cancel",
];

/// Repeats our part of those verifications that have to be heard, until the handler is taken away.
pub(super) fn listen(opened: &Opened) -> EventHandlerHandle {
    let (requests, own, device) = (opened.requests.clone(), opened.own.clone(), opened.device.clone());
    opened.client.add_event_handler(
        move |_: AnySyncMessageLikeEvent, raw: RawEvent, sealed: Option<EncryptionInfo>, room: Room| {
            // What was said aloud comes back in the clear, and ends here.
            let ours = sealed.is_some_and(|info| {
                info.sender == own && info.sender_device.as_deref().is_some_and(|by| by == device)
            });
            let part = if ours { part(raw.get()) } else { None };
            let part = part.filter(|part| requests.says_aloud(&part.flow, part.kind));
            async move {
                if let Some(part) = part {
                    say(&room, part).await;
                }
            }
        },
    )
}

/// One event of a verification.
struct Part {
    id: OwnedEventId,
    kind: &'static str,
    /// The request that it belongs to.
    flow: OwnedEventId,
    content: Box<RawValue>,
}

/// What an event has to do with a verification; `None` if nothing.
fn part(json: &str) -> Option<Part> {
    #[derive(Deserialize)]
    struct Wire {
        #[serde(rename = "type")]
        kind: String,
        event_id: OwnedEventId,
        content: Box<RawValue>,
    }
    #[derive(Deserialize)]
    struct Content {
        #[serde(rename = "m.relates_to")]
        relates_to: Reference,
    }
    #[derive(Deserialize)]
    struct Reference {
        event_id: OwnedEventId,
    }
    let wire: Wire = serde_json::from_str(json).ok()?;
    let kind = PARTS.into_iter().find(|kind| *kind == wire.kind)?;
    let Content { relates_to } = serde_json::from_str(wire.content.get()).ok()?;
    Some(Part { id: wire.event_id, kind, flow: relates_to.event_id, content: wire.content })
}

/// Sends it as it is, past the SDK's encryption. If that fails the other side waits in vain, and both begin again.
async fn say(room: &Room, part: Part) {
    // Told twice, it is sent once.
    let transaction = OwnedTransactionId::from(format!("aloud {}", part.id));
    let content = Raw::from_json(part.content);
    let request = Request::new_raw(room.room_id().to_owned(), transaction, part.kind.into(), content);
    let once = RequestConfig::new().disable_retry().timeout(SENDING);
    match room.client().send(request).with_request_config(once).await {
        Ok(_) => tracing::debug!(kind = part.kind, "our part of a verification was said in the clear"),
        Err(error) => tracing::warn!(kind = part.kind, %error, "our part of a verification was not sent"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, content: Value) -> String {
        json!({"type": kind, "event_id": "$2", "sender": "@bot:example.org", "content": content}).to_string()
    }

    #[test]
    fn only_the_parts_of_a_verification_are_ever_said_aloud() {
        let related = json!({"key": "abc", "m.relates_to": {"rel_type": "m.reference", "event_id": "$1"}});
        for kind in PARTS {
            let part = part(&event(kind, related.clone())).expect(kind);
            assert_eq!((part.kind, part.id.as_str(), part.flow.as_str()), (kind, "$2", "$1"));
            assert_eq!(serde_json::from_str::<Value>(part.content.get()).unwrap(), related);
        }
        for kind in ["m.room.message", "m.key.verification.request", "m.room.encrypted", "m.reaction", "x"] {
            assert!(part(&event(kind, related.clone())).is_none(), "{kind}");
        }
        assert!(part(&event("m.key.verification.key", json!({"key": "abc"}))).is_none());
        assert!(part("junk").is_none());
    }
}
