//! What is said when somebody is not heard although a list names them: once, in plain words, with what to do.
//!
//! Nothing that is said here tells a stranger anything, and none of it is said twice: who sends the same a hundred
//! times has read it, or cannot.

use talaria_platform::AuthorTrust;

use super::accept::EventContext;
use super::refusal_log::RefusedPerson;
use crate::access::{AccessAction, PlaceKind};
use crate::i18n::TextKey;
use crate::store::{Result, unix_now};
use crate::util::hash;
use crate::util::one_line;

/// Seconds for which nothing is said again about a message that cannot be read or a device that is not trusted:
/// whoever writes with a broken client writes more than once.
const SAID_EACH: i64 = 600;

/// The mark on a message from a device that is not trusted.
const UNTRUSTED: &str = "🔒";

/// A device that its owner has not signed, or that nobody has verified. Once for each device; the operator hears of
/// it too, because such a device may not be able to read what we say.
pub(super) fn untrusted(context: &EventContext<'_>) -> Result<RefusedPerson> {
    let author = &context.event.author;
    let device = author.device.as_deref();
    let about = [context.account().as_str(), author.id.as_str(), device.unwrap_or_default()];
    let phrase = match device {
        // Their own word for the device is there; what is missing is the operator's.
        _ if author.trust >= AuthorTrust::CrossSigned => TextKey::NotVerified.into(),
        Some(device) => TextKey::UntrustedDevice.with("device", one_line(device, 40)),
        None => TextKey::UntrustedSender.into(),
    };
    context.notice_once("trust", &about, &context.event.id, &phrase)?;
    Ok(RefusedPerson::untrusted(&author.id, device, PlaceKind::from(context.event.room.direct)))
}

/// Marks the message of a device that is not trusted. Such a device gets no keys to what we write, so what
/// [`untrusted`] says reaches the person's other devices only; a mark is never encrypted and reaches this one too. It says
/// nothing but that the message was not read. Once in a while for each device: whoever holds one must not be able
/// to have us spend the account's rate.
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

/// Whether something was said less than [`SAID_EACH`] seconds ago, at a time that was kept.
fn is_recent(kept: Option<String>, now: i64) -> bool {
    let at = kept.and_then(|at| at.parse::<i64>().ok());
    at.is_some_and(|at| (0..SAID_EACH).contains(&now.saturating_sub(at)))
}

/// A room without encryption, where encryption is needed. Once for each room.
pub(super) fn plain(context: &EventContext<'_>) -> Result<()> {
    let about = [context.account().as_str(), context.event.place.room.as_str()];
    context.notice_once("plain", &about, &context.event.id, &TextKey::RoomNotEncrypted.into())
}

/// Keys that contradict their author: nothing is said to whoever that is. The operator hears of it if a list names
/// the author, who may have to be warned.
pub(super) fn violated(context: &EventContext<'_>) -> Option<RefusedPerson> {
    let event = context.event;
    let named = context.rules.access_in(&event.place.room).may_admit(&event.author.id);
    named.then(|| RefusedPerson::contradicted(&event.author.id, PlaceKind::from(event.room.direct)))
}

/// A message that could not be decrypted. Nothing is proven of its author, so nothing is done but to ask for it
/// again, and only those whom a list would hear.
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
