//! Writes to rooms: one request for each call, encrypted if the room is or ever was encrypted.
//!
//! `content` makes the JSON of a message and `html` renders its Markdown, `render_cache` remembers the beginning of
//! answers that grow, `files` and `uploads` upload files, `delete` deletes messages, `recipients` says whose devices
//! can read. This module neither retries nor waits for a rate limit: the core does that. The [`SendKey`] of a message
//! is its transaction id: for the same device, the homeserver answers a repeated key with the message that is there.

mod content;
mod delete;
mod files;
mod html;
mod image_size;
mod recipients;
mod render_cache;
mod uploads;

use std::time::Duration;

use matrix_sdk::config::RequestConfig;
use matrix_sdk::room::Receipts;
use matrix_sdk::ruma::api::error::ErrorKind as Code;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedRoomId, TransactionId};
use matrix_sdk::{Room, RoomState};
use serde_json::value::RawValue;
use talaria_platform::{
    MessageBody, MessageId, Place, PlatformError, PlatformErrorKind, RoomId, SendKey, Signal,
};
use tokio::time::timeout;
use tracing::{debug, error};

use crate::account::MatrixAccount;
use crate::encrypted_rooms::SendMode;
use crate::error::{from_write, rejected};

pub(crate) use delete::delete;
pub(crate) use recipients::{decryption, recipients};
pub(crate) use render_cache::RenderCache;
pub(crate) use uploads::PendingUploads;

/// Time limit for one message, with everything that has to happen before it: requesting and sending keys. A little
/// less than the core waits, so that the log names the late request.
const WRITE: Duration = Duration::from_secs(28);

/// Time limit for a signal; later nobody wants it.
const SIGNAL: Duration = Duration::from_secs(10);

/// Bytes of the longest reaction: an emoji with everything that may be joined to it.
const LONGEST_MARK: usize = 32;

/// Posts a message.
pub(crate) async fn send(
    account: &MatrixAccount,
    place: &Place,
    key: &SendKey,
    body: &MessageBody,
) -> Result<MessageId, PlatformError> {
    let room = joined(account, &place.room)?;
    within(WRITE, async {
        let speech = account.rooms.may_speak(&room, account.settings.e2ee, body.kind).await?;
        let body = legible(body);
        let html = html::render(&body.markdown);
        let content = match body.files.as_slice() {
            [] => content::message(place, &body, html),
            [file] => {
                let upload = || files::upload(account.client.clone(), file.clone(), speech);
                let about = account.uploads.content(key, speech, upload).await?;
                content::file(place, &body, html, &about)
            }
            // The core sends one message for each file.
            _ => {
                return Err(PlatformError::new(
                    PlatformErrorKind::Rejected,
                    "more than one file in a message",
                ));
            }
        };
        let sent = post(&room, "m.room.message", key, content.map_err(rejected)?, speech).await?;
        if let Ok(id) = event_id(&sent) {
            let thread = place.thread.as_ref().and_then(|root| EventId::parse(root.as_str()).ok());
            account.written.wrote(room.room_id(), &id, thread.as_deref());
        }
        if !body.files.is_empty() {
            account.uploads.forget(key, speech);
        }
        Ok(sent)
    })
    .await
}

/// Replaces the text of a message.
pub(crate) async fn edit(
    account: &MatrixAccount,
    place: &Place,
    message: &MessageId,
    key: &SendKey,
    body: &MessageBody,
) -> Result<(), PlatformError> {
    let room = joined(account, &place.room)?;
    event_id(message)?;
    within(WRITE, async {
        let speech = account.rooms.may_speak(&room, account.settings.e2ee, body.kind).await?;
        let body = legible(body);
        let html = account.drafts.render(message, &body.markdown, body.done);
        let content = content::edit(message, &body, html).map_err(rejected)?;
        post(&room, "m.room.message", key, content, speech).await.map(drop)
    })
    .await
}

/// Shows something for a moment. A failure is not repeated; the next signal comes soon.
pub(crate) async fn signal(account: &MatrixAccount, place: &Place, signal: Signal) {
    let Ok(room) = joined(account, &place.room) else { return };
    let shown = within(SIGNAL, async {
        match signal {
            Signal::Typing(typing) => room.typing_notice(typing).await.map_err(from_write),
            Signal::Read(event) => {
                let event = OwnedEventId::try_from(event.as_str()).map_err(rejected)?;
                let receipts = Receipts::new().public_read_receipt(event.clone()).fully_read_marker(event);
                room.send_multiple_receipts(receipts).await.map_err(from_write)
            }
        }
    });
    if let Err(error) = shown.await {
        debug!(room = %place.room, kind = ?error.kind(), "a signal was not shown");
    }
}

/// Puts a reaction on a message. Matrix never encrypts reactions, so only a short emoji passes and no text of a room.
pub(crate) async fn react(
    account: &MatrixAccount,
    place: &Place,
    to: &MessageId,
    mark: &str,
) -> Result<(), PlatformError> {
    let room = joined(account, &place.room)?;
    event_id(to)?;
    if !is_mark(mark) {
        return Err(PlatformError::new(PlatformErrorKind::Rejected, "a mark must be a sign, not text"));
    }
    let sent = within(SIGNAL, async {
        let reaction = room.send_raw("m.reaction", content::reaction(to, mark));
        match reaction.with_request_config(once(SIGNAL)).await {
            // An earlier attempt arrived, but its response did not.
            Err(error) if matches!(error.client_api_error_kind(), Some(Code::DuplicateAnnotation)) => Ok(()),
            sent => sent.map(drop).map_err(from_write),
        }
    });
    sent.await
}

fn is_mark(mark: &str) -> bool {
    !mark.is_empty()
        && mark.len() <= LONGEST_MARK
        && !mark.chars().any(|c| c.is_alphanumeric() || c.is_control() || c.is_whitespace())
}

/// Sends content to a room, once.
///
/// The SDK encrypts it if it knows the room to be encrypted, and it never forgets that: see
/// [`EncryptedRooms::may_speak`], which has asked just before.
///
/// [`EncryptedRooms::may_speak`]: crate::encrypted_rooms::EncryptedRooms::may_speak
async fn post(
    room: &Room,
    kind: &'static str,
    key: &SendKey,
    content: String,
    speech: SendMode,
) -> Result<MessageId, PlatformError> {
    let content = Raw::from_json(RawValue::from_string(content).map_err(rejected)?);
    let transaction = <&TransactionId>::from(key.as_str());
    let sent = room.send_raw(kind, content).with_transaction_id(transaction).with_request_config(once(WRITE));
    let sent = sent.await.map_err(from_write)?;
    if speech == SendMode::Encrypted && sent.encryption_info.is_none() {
        // Cannot happen as things are; if it ever does, a person must know.
        error!(room = %room.room_id(), "a message to an encrypted room was not encrypted; stop the gateway and report this");
    }
    Ok(MessageId::new(sent.response.event_id.as_str()))
}

/// The room, if we are in it.
fn joined(account: &MatrixAccount, room: &RoomId) -> Result<Room, PlatformError> {
    let id = OwnedRoomId::try_from(room.as_str()).map_err(|_| PlatformErrorKind::Gone)?;
    match account.client.get_room(&id) {
        Some(room) => match room.state() {
            RoomState::Joined => Ok(room),
            RoomState::Left | RoomState::Banned => Err(PlatformErrorKind::Gone.into()),
            // We may be let in again, but by then the message is old.
            RoomState::Invited | RoomState::Knocked => Err(PlatformErrorKind::Gone.into()),
        },
        // Either the first sync is still to come, or we are in no such room.
        None if *account.synced.borrow() => Err(PlatformErrorKind::Gone.into()),
        None => Err(PlatformErrorKind::Retry { after: None }.into()),
    }
}

fn event_id(message: &MessageId) -> Result<OwnedEventId, PlatformError> {
    OwnedEventId::try_from(message.as_str()).map_err(rejected)
}

fn legible(body: &MessageBody) -> std::borrow::Cow<'_, MessageBody> {
    use std::borrow::Cow;
    match content::legible(&body.markdown) {
        Cow::Borrowed(_) => Cow::Borrowed(body),
        Cow::Owned(markdown) => Cow::Owned(MessageBody { markdown, ..body.clone() }),
    }
}

/// Configuration for one attempt with a timeout.
fn once(time: Duration) -> RequestConfig {
    RequestConfig::new().disable_retry().timeout(time)
}

async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, PlatformError>>,
) -> Result<T, PlatformError> {
    let late = |late| Err(PlatformError::new(PlatformErrorKind::Retry { after: None }, late));
    timeout(time, work).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use matrix_sdk::encryption::vodozemac::megolm::{GroupSession, SessionConfig};
    use serde_json::json;

    use super::content::{EVENT, fits, sealed};
    use super::*;

    #[test]
    fn a_mark_is_a_sign_and_never_text() {
        for sign in ["👀", "✅", "❌", "👩‍💻", "❤️"] {
            assert!(is_mark(sign), "{sign}");
        }
        for text in ["", "yes", "the password", "1", "👀 secret", &"👀".repeat(9)] {
            assert!(!is_mark(text), "{text}");
        }
    }

    #[test]
    fn what_fits_is_what_an_event_can_carry() {
        let mut session = GroupSession::new(SessionConfig::version_1());
        let room = format!("!{}", "r".repeat(254));
        let mut largest = 0;
        for length in (0..50_000).step_by(997) {
            let content = json!({ "body": "x".repeat(length) }).to_string();
            let payload = format!(r#"{{"type":"m.room.message","content":{content},"room_id":"{room}"}}"#);
            let ciphertext = session.encrypt(payload).to_base64();
            let counted = sealed(content.len());
            assert!((ciphertext.len()..ciphertext.len() + 60).contains(&counted), "{length}: {counted}");
            if fits(&content) {
                largest = event(&room, &ciphertext).len();
            }
        }
        assert!((62_000..=EVENT).contains(&largest), "{largest}");
    }

    /// An event as homeservers exchange it, with about as much metadata as there can be.
    fn event(room: &str, ciphertext: &str) -> String {
        let ids = |count: usize| (0..count).map(|id| format!("${id:043}")).collect::<Vec<_>>();
        json!({
            "auth_events": ids(12), "prev_events": ids(20), "depth": 1_000_000, "origin_server_ts": 1_700_000_000_000u64,
            "hashes": { "sha256": "h".repeat(43) }, "room_id": room, "sender": format!("@{}", "s".repeat(60)),
            "signatures": { "a.homeserver.example.org": { "ed25519:a_key_id": "s".repeat(86) } },
            "type": "m.room.encrypted",
            "unsigned": { "age_ts": 1_700_000_000_000u64 },
            "content": {
                "algorithm": "m.megolm.v1.aes-sha2", "ciphertext": ciphertext, "device_id": "DEVICEDEVICE",
                "sender_key": "k".repeat(43), "session_id": "s".repeat(43),
                "m.relates_to": {
                    "rel_type": "m.thread", "event_id": format!("${}", "t".repeat(43)), "is_falling_back": false,
                    "m.in_reply_to": { "event_id": format!("${}", "r".repeat(43)) },
                },
            },
        })
        .to_string()
    }
}
