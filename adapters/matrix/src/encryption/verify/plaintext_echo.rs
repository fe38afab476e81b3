//! Sends our part of a verification in plaintext, to a person who cannot decrypt our messages yet.
//!
//! With `trust: verified` only people whom the operator has verified get our room keys. A person who asks for
//! verification in a room has none: the SDK encrypts our part like any other message there, and they cannot read it;
//! and most clients verify other people only in rooms. So we send each of our events in such a verification once
//! more, unchanged, when the sync returns it to us.
//!
//! None of it is secret: between devices Matrix sends the same events in plaintext, and in rooms Element's web client
//! sends its whole part in plaintext too. The emoji that both sides compare protect them from a man in the middle. No
//! message of a person can leak this way: we repeat only these types, only events that this device encrypted, each
//! once, and only in answer to a request that the operator has accepted.

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

/// Time limit for one attempt to send.
const SENDING: Duration = Duration::from_secs(10);

/// The pause before the next attempt, if the homeserver names none.
const AGAIN: Duration = Duration::from_secs(2);

/// Events that may wait to be sent: all of ours in several verifications. The operator handles them one after the
/// other.
pub(super) const WAITING: usize = 32;

/// Event types that one side sends after the request.
const PARTS: [&str; 7] = [
    "m.key.verification.ready",
    "m.key.verification.start",
    "m.key.verification.accept",
    "m.key.verification.key",
    "m.key.verification.mac",
    "m.key.verification.done",
    "m.key.verification.cancel",
];

/// Queues our events of verifications that need plaintext in `line`, until the handler is removed. The sync does
/// nothing more: a homeserver that throttles us must not stop it.
pub(super) fn listen(
    opened: &OpenedAccount,
    line: mpsc::Sender<(Room, VerificationPart)>,
) -> EventHandlerHandle {
    let (requests, own, device) = (opened.requests.clone(), opened.own.clone(), opened.device.clone());
    opened.client.add_event_handler(
        move |_: AnySyncMessageLikeEvent, raw: RawEvent, sealed: Option<EncryptionInfo>, room: Room| {
            // Our plaintext copy comes back unencrypted, and stops here.
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

/// Sends queued events in order. Never ends.
pub(super) async fn say_all(
    requests: &VerificationRequests,
    mut line: mpsc::Receiver<(Room, VerificationPart)>,
) {
    while let Some((room, part)) = line.recv().await {
        say(requests, &room, part).await;
    }
    // The handler is gone: nobody needs plaintext.
    std::future::pending().await
}

/// One event of a verification.
pub(super) struct VerificationPart {
    id: OwnedEventId,
    kind: &'static str,
    /// Event id of the request that it belongs to.
    flow: OwnedEventId,
    content: Box<RawValue>,
}

/// Reads an event as part of a verification; `None` if it is not one.
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

/// Sends the event unchanged, past the SDK's encryption, and repeats that while it helps and the verification is
/// open.
async fn say(requests: &VerificationRequests, room: &Room, part: VerificationPart) {
    // The transaction id makes it appear once, whatever became of an earlier attempt.
    let transaction = OwnedTransactionId::from(format!("aloud {}", part.id));
    let content = Raw::from_json(part.content);
    let request = Request::new_raw(room.room_id().to_owned(), transaction, part.kind.into(), content);
    let once = RequestConfig::new().disable_retry().timeout(SENDING);
    loop {
        let error = match room.client().send(request.clone()).with_request_config(once).await {
            Ok(_) => {
                tracing::debug!(kind = part.kind, "our part of a verification was sent in plaintext");
                return;
            }
            Err(error) => error,
        };
        match kind_of(&error) {
            PlatformErrorKind::Retry { after } if requests.is_aloud(&part.flow) => {
                tracing::debug!(kind = part.kind, %error, "our part of a verification is sent again");
                tokio::time::sleep(after.unwrap_or(AGAIN)).await;
            }
            // The other side waits in vain, and both have to start over.
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
