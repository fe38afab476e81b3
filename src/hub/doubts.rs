//! What is said when somebody is not heard although a list names them: once, in plain words, with what to do.
//!
//! Nothing that is said here tells a stranger anything, and none of it is said twice: who sends the same a hundred
//! times has read it, or cannot.

use talaria_platform::Trust;

use super::strangers::Stranger;
use super::taking::One;
use crate::access::{Action, Where};
use crate::reply::one_line;
use crate::session::hash;
use crate::store::{Result, unix_now};
use crate::words::Text;

/// Seconds for which nothing is said again about a message that cannot be read or a device that is not trusted:
/// whoever writes with a broken client writes more than once.
const SAID_EACH: i64 = 600;

/// The mark on a message from a device that is not trusted.
const UNTRUSTED: &str = "🔒";

/// A device that its owner has not signed, or that nobody has verified. Once for each device; the operator hears of
/// it too, because such a device may not be able to read what we say.
pub(super) fn untrusted(one: &One<'_>) -> Result<Stranger> {
    let author = &one.event.author;
    let device = author.device.as_deref();
    let about = [one.account().as_str(), author.id.as_str(), device.unwrap_or_default()];
    let phrase = match device {
        // Their own word for the device is there; what is missing is the operator's.
        _ if author.trust >= Trust::CrossSigned => Text::NotVerified.into(),
        Some(device) => Text::UntrustedDevice.with("device", one_line(device, 40)),
        None => Text::UntrustedSender.into(),
    };
    one.notice_once("trust", &about, &one.event.id, &phrase)?;
    Ok(Stranger::untrusted(&author.id, device, Where::from(one.event.room.direct)))
}

/// Marks the message of a device that is not trusted. Such a device gets no keys to what we write, so what
/// [`untrusted`] says reaches the person's other devices only; a mark is never encrypted and reaches this one too. It says
/// nothing but that the message was not read. Once in a while for each device: whoever holds one must not be able
/// to have us spend the account's rate.
pub(super) fn mark_untrusted(one: &One<'_>) -> Result<()> {
    let (tx, event, now) = (one.tx, one.event, unix_now());
    let device = event.author.device.as_deref().unwrap_or_default();
    let key = format!("untrusted.{}", hash([one.account().as_str(), event.author.id.as_str(), device]));
    if is_recent(tx.setting(&key)?, now) {
        return Ok(());
    }
    tx.set_setting(&key, &now.to_string())?;
    one.mark(UNTRUSTED)
}

/// Whether something was said less than [`SAID_EACH`] seconds ago, at a time that was kept.
fn is_recent(kept: Option<String>, now: i64) -> bool {
    let at = kept.and_then(|at| at.parse::<i64>().ok());
    at.is_some_and(|at| (0..SAID_EACH).contains(&now.saturating_sub(at)))
}

/// A room without encryption, where encryption is needed. Once for each room.
pub(super) fn plain(one: &One<'_>) -> Result<()> {
    let about = [one.account().as_str(), one.event.place.room.as_str()];
    one.notice_once("plain", &about, &one.event.id, &Text::RoomNotEncrypted.into())
}

/// Keys that contradict their author: nothing is said to whoever that is. The operator hears of it if a list names
/// the author, who may have to be warned.
pub(super) fn violated(one: &One<'_>) -> Option<Stranger> {
    let event = one.event;
    let named = one.rules.access_in(&event.place.room).may_admit(&event.author.id);
    named.then(|| Stranger::contradicted(&event.author.id, Where::from(event.room.direct)))
}

/// A message that could not be decrypted. Nothing is proven of its author, so nothing is done but to ask for it
/// again, and only those whom a list would hear.
pub(super) fn unreadable(one: &One<'_>) -> Result<()> {
    let (tx, account, event) = (one.tx, one.account(), one.event);
    let room = &event.place.room;
    let actor = tx.known_actor(account, room, &event.author.id)?;
    let policy = one.rules.access_in(room);
    if event.author.bot || !policy.authorize(actor, Where::from(event.room.direct), Action::Message).allowed {
        return Ok(());
    }
    let (key, now) = (format!("unreadable.{}", hash([account.as_str(), room.as_str()])), unix_now());
    if is_recent(tx.setting(&key)?, now) {
        return Ok(());
    }
    tx.set_setting(&key, &now.to_string())?;
    one.notice(&Text::Unreadable.into())
}
