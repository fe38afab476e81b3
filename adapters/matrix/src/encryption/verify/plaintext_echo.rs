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
use talaria_platform::PlatformErrorKind;
use tokio::sync::mpsc;

use super::requests::VerificationRequests;
use crate::error::kind_of;
use crate::login::OpenedAccount;

/// How long one try of sending may take.
const SENDING: Duration = Duration::from_secs(10);

/// The pause before the next try, where the homeserver names none.
const AGAIN: Duration = Duration::from_secs(2);

/// Parts that may wait to be said: all of ours in several verifications. One person looks at them, one after the other.
pub(super) const WAITING: usize = 32;

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

/// Puts our part of those verifications that have to be heard into the `line`, until the handler is taken away. The
/// sync does no more than that: a homeserver that wants us slower must not stop it.
pub(super) fn listen(
    opened: &OpenedAccount,
    line: mpsc::Sender<(Room, VerificationPart)>,
) -> EventHandlerHandle {
    let (requests, own, device) = (opened.requests.clone(), opened.own.clone(), opened.device.clone());
    opened.client.add_event_handler(
        move |_: AnySyncMessageLikeEvent, raw: RawEvent, sealed: Option<EncryptionInfo>, room: Room| {
            // What was said aloud comes back in the clear, and ends here.
            let ours = sealed.is_some_and(|info| {
                info.sender == own && info.sender_device.as_deref().is_some_and(|by| by == device)
            });
            let part = if ours { part(raw.get()) } else { None };
            if let Some(part) = part.filter(|part| requests.says_aloud(&part.flow, part.kind))
                && let Err(error) = line.try_send((room, part))
            {
                tracing::warn!(%error, "our part of a verification was not sent");
            }
            std::future::ready(())
        },
    )
}

/// Says what comes in, in its order. Never ends.
pub(super) async fn say_all(
    requests: &VerificationRequests,
    mut line: mpsc::Receiver<(Room, VerificationPart)>,
) {
    while let Some((room, part)) = line.recv().await {
        say(requests, &room, part).await;
    }
    // Nobody has to be answered like this.
    std::future::pending().await
}

/// One event of a verification.
pub(super) struct VerificationPart {
    id: OwnedEventId,
    kind: &'static str,
    /// The request that it belongs to.
    flow: OwnedEventId,
    content: Box<RawValue>,
}

/// What an event has to do with a verification; `None` if nothing.
fn part(json: &str) -> Option<VerificationPart> {
    #[derive(Deserialize)]
    struct EchoEvent {
        #[serde(rename = "type")]
        kind: String,
        event_id: OwnedEventId,
        content: Box<RawValue>,
    }
    #[derive(Deserialize)]
    struct EchoContent {
        #[serde(rename = "m.relates_to")]
        relates_to: EchoReference,
    }
    #[derive(Deserialize)]
    struct EchoReference {
        event_id: OwnedEventId,
    }
    let wire: EchoEvent = serde_json::from_str(json).ok()?;
    let kind = PARTS.into_iter().find(|kind| *kind == wire.kind)?;
    let EchoContent { relates_to } = serde_json::from_str(wire.content.get()).ok()?;
    Some(VerificationPart { id: wire.event_id, kind, flow: relates_to.event_id, content: wire.content })
}

/// Sends it as it is, past the SDK's encryption, and again for as long as that helps and the verification goes on.
async fn say(requests: &VerificationRequests, room: &Room, part: VerificationPart) {
    // Whatever became of an earlier try, it is in the room once.
    let transaction = OwnedTransactionId::from(format!("aloud {}", part.id));
    let content = Raw::from_json(part.content);
    let request = Request::new_raw(room.room_id().to_owned(), transaction, part.kind.into(), content);
    let once = RequestConfig::new().disable_retry().timeout(SENDING);
    loop {
        let error = match room.client().send(request.clone()).with_request_config(once).await {
            Ok(_) => {
                tracing::debug!(kind = part.kind, "our part of a verification was said in the clear");
                return;
            }
            Err(error) => error,
        };
        match kind_of(&error) {
            PlatformErrorKind::Retry { after } if requests.is_aloud(&part.flow) => {
                tracing::debug!(kind = part.kind, %error, "our part of a verification is sent again");
                tokio::time::sleep(after.unwrap_or(AGAIN)).await;
            }
            // The other side waits in vain, and both begin again.
            PlatformErrorKind::Retry { .. }
            | PlatformErrorKind::Gone
            | PlatformErrorKind::Rejected
            | PlatformErrorKind::Unsupported
            | PlatformErrorKind::Fatal => {
                tracing::warn!(kind = part.kind, %error, "our part of a verification was not sent");
                return;
            }
        }
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
