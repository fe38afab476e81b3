//! Notices for listed people whose event cannot be trusted: once, in plain words, with the next step.
//!
//! A notice tells a stranger nothing, and none is repeated: a person who sends the same a hundred times has read it, or
//! cannot.

use talaria_platform::AuthorTrust;

use super::accept::EventContext;
use super::refusal_log::RefusedPerson;
use crate::access::{AccessAction, PlaceKind};
use crate::i18n::TextKey;
use crate::store::{Result, unix_now};
use crate::util::hash;
use crate::util::one_line;

/// Seconds without another notice about an unreadable message or an untrusted device: a broken client sends more than
/// one message.
const SAID_EACH: i64 = 600;

/// Reaction on a message from an untrusted device.
const UNTRUSTED: &str = "🔒";

/// Notice about a device that its owner has not signed, or that nobody has verified. Once for each device; the operator
/// hears of it too, because such a device may not be able to read our notice.
pub(super) fn untrusted(context: &EventContext<'_>) -> Result<RefusedPerson> {
    let author = &context.event.author;
    let device = author.device.as_deref();
    let about = [context.account().as_str(), author.id.as_str(), device.unwrap_or_default()];
    let phrase = match device {
        // The owner has signed the device; only the operator's verification is missing.
        _ if author.trust >= AuthorTrust::CrossSigned => TextKey::NotVerified.into(),
        Some(device) => TextKey::UntrustedDevice.with("device", one_line(device, 40)),
        None => TextKey::UntrustedSender.into(),
    };
    context.notice_once("trust", &about, &context.event.id, &phrase)?;
    Ok(RefusedPerson::untrusted(&author.id, device, PlaceKind::from(context.event.room.direct)))
}

/// Puts a reaction on the message of an untrusted device. Such a device gets no keys to our messages, so the notice of
/// [`untrusted`] reaches the person's other devices only; a reaction is never encrypted and reaches this one too. It
/// says only that the message was not read. Once in a while for each device: a hostile device must not make us spend
/// the account's rate.
pub(super) fn mark_untrusted(context: &EventContext<'_>) -> Result<()> {
    let (tx, event, now) = (context.tx, context.event, unix_now());
    let device = event.author.device.as_deref().unwrap_or_default();
    let key = format!("untrusted.{}", hash([context.account().as_str(), event.author.id.as_str(), device]));
    if is_recent(tx.setting(&key)?, now) {
        return Ok(());
    }
    tx.set_setting(&key, &now.to_string())?;
    context.mark(UNTRUSTED)
}

/// Whether the stored time `kept` is less than [`SAID_EACH`] seconds ago.
fn is_recent(kept: Option<String>, now: i64) -> bool {
    let at = kept.and_then(|at| at.parse::<i64>().ok());
    at.is_some_and(|at| (0..SAID_EACH).contains(&now.saturating_sub(at)))
}

/// Notice that a room lacks the encryption that it needs. Once for each room.
pub(super) fn plain(context: &EventContext<'_>) -> Result<()> {
    let about = [context.account().as_str(), context.event.place.room.as_str()];
    context.notice_once("plain", &about, &context.event.id, &TextKey::RoomNotEncrypted.into())
}

/// Keys contradict their author: the room gets no notice. If a list names the author, the operator hears of it: the
/// author may have to be warned.
pub(super) fn violated(context: &EventContext<'_>) -> Option<RefusedPerson> {
    let event = context.event;
    let named = context.rules.access_in(&event.place.room).may_admit(&event.author.id);
    named.then(|| RefusedPerson::contradicted(&event.author.id, PlaceKind::from(event.room.direct)))
}

/// Asks for a message again that could not be decrypted. Nothing about its author is proven, so nothing else happens,
/// and only people whom a list admits are asked.
pub(super) fn unreadable(context: &EventContext<'_>) -> Result<()> {
    let (tx, account, event) = (context.tx, context.account(), context.event);
    let room = &event.place.room;
    let actor = tx.known_actor(account, room, &event.author.id)?;
    let policy = context.rules.access_in(room);
    if event.author.bot
        || !policy.authorize(actor, PlaceKind::from(event.room.direct), AccessAction::Message).allowed
    {
        return Ok(());
    }
    let (key, now) = (format!("unreadable.{}", hash([account.as_str(), room.as_str()])), unix_now());
    if is_recent(tx.setting(&key)?, now) {
        return Ok(());
    }
    tx.set_setting(&key, &now.to_string())?;
    context.notice(&TextKey::Unreadable.into())
}
