//! Pairing: a stranger in a direct chat asks to be let in, and the operator approves.
//!
//! The stranger gets a code, which only the operator can use: it identifies the person to let in. The code itself is
//! stored nowhere. The store has a salted hash of it, and the message that carries it is sent once, from memory; if
//! that fails the request is void, and the stranger can ask again after `PATIENCE`.

use std::sync::Arc;

use talaria_platform::{AccountId, BodyKind, MessageBody, Place, RoomId, SendKey, UserId};

use super::accept::{EventContext, stop_turns_of};
use crate::delivery::DeliveryAccount;
use crate::i18n::TextKey;
use crate::notice::Notice;
use crate::post_commit::{PairingCodeMessage, PostCommit};
use crate::reply;
use crate::rules::Rules;
use crate::store::{
    HashedCode, OperatorAction, Pairing, Result, Store, StrangerCounts, StrangerExpiry, Tx, unix_now,
};
use crate::util::{hash, random_hex};
use crate::util::{one_line, random_bytes};

/// Characters of codes: digits and capitals that nobody confuses, aloud or on paper.
const ALPHABET: &[u8; 30] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Length of a code: more than 10^11 possible codes, against five tries an hour.
const LENGTH: usize = 8;

/// Seconds for which a code is valid.
pub const VALID: i64 = 3600;

/// Seconds in which one person gets one code.
const PATIENCE: i64 = 600;

/// Most requests of an account that wait for the operator. More would only be noise, and a place to store things.
const WAITING: usize = 3;

/// Most requests of an account that came to nothing within [`PATIENCE`]. They do not count as waiting, but strangers
/// whose chats accept no message must not make us send for ever.
const TURNED_AWAY: usize = 100;

/// Wrong codes in a row after which every code is refused for [`LOCKED`] seconds.
const TRIES: i64 = 5;

/// Seconds of a lock-out.
const LOCKED: i64 = 3600;

/// Setting that holds the number of wrong codes and the time of the last one.
const WRONG: &str = "pairing.wrong";

/// Most characters of a display name that the operator is shown.
const NAME: usize = 60;

/// Result of a code that the operator typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairingApproval {
    /// The person may now talk to us, in direct chats.
    Paired(Pairing),
    /// No code looks like that, so it is a typing error and does not count as a try.
    NoCode,
    /// Nobody has that code.
    Wrong {
        /// Wrong codes left before a lock-out.
        left: i64,
    },
    /// Too many codes were wrong.
    Locked {
        /// End of the lock-out, in seconds since 1970.
        until: i64,
    },
    /// Pairing is off for the account, so approving would have no effect.
    Off(Pairing),
}

/// Gives the stranger a code, within the bounds above; beyond them, answers nothing.
pub(super) fn ask(one: &EventContext<'_>) -> Result<Option<PostCommit>> {
    let (tx, account, event, now) = (one.tx, one.account(), one.event, unix_now());
    let person = &event.author.id;
    forget_lapsed(tx, now)?;
    if tx.pairing_of(account, person)?.is_some_and(|at| (0..PATIENCE).contains(&(now - at)))
        || !is_room(tx.other_strangers(account, person)?)
    {
        return Ok(None);
    }
    let Some(code) = new_code() else {
        tracing::error!("the operating system gives no random numbers, so a stranger got no code");
        return Ok(None);
    };
    let hashed = HashedCode::of(&code, random_hex(16));
    let name = event.author.name.as_deref().map(|name| one_line(name, NAME));
    tx.ask_pairing(account, person, name.as_deref(), &event.place.room, &hashed, now)?;
    let minutes = usize::try_from(VALID / 60).unwrap_or_default();
    Ok(Some(PostCommit::GiveCode(Box::new(PairingCodeMessage {
        person: person.clone(),
        place: event.place.clone(),
        reply_to: event.id.clone(),
        words: TextKey::PairingCode.with("code", shown(&code)).with("minutes", minutes),
        code: hashed,
    }))))
}

/// Whether to follow a stranger's invitation into a direct chat: each stranger may bring us into one, and only while
/// there is room for the request that they are to make there.
pub(super) fn may_bring_us(tx: &Tx<'_>, account: &AccountId, person: &UserId, room: &RoomId) -> Result<bool> {
    let now = unix_now();
    forget_lapsed(tx, now)?;
    if let Some(before) = tx.room_of_stranger(account, person)? {
        return Ok(before == *room);
    }
    let may = is_room(tx.other_strangers(account, person)?);
    if may {
        tx.expect_pairing(account, person, room, now)?;
    }
    Ok(may)
}

fn is_room(others: StrangerCounts) -> bool {
    others.waiting < WAITING && others.turned_away < TURNED_AWAY
}

/// Deletes requests that have expired.
pub fn forget_lapsed(tx: &Tx<'_>, now: i64) -> Result<()> {
    tx.forget_lapsed_pairings(StrangerExpiry { asked: now - VALID, void: now - PATIENCE, now })
}

/// Sends a code, once. It is only in memory, so nobody has it if that fails.
pub(super) async fn deliver(
    account: Arc<DeliveryAccount>,
    store: Store,
    rules: Arc<Rules>,
    code_message: PairingCodeMessage,
) {
    let words = rules.words.say(&code_message.words);
    for part in reply::split(&words, account.about().max_text) {
        let body = MessageBody {
            reply_to: Some(code_message.reply_to.clone()),
            ..MessageBody::new(BodyKind::Notice, part)
        };
        let key = SendKey::new(format!("c.{}", random_hex(16)));
        if account.tell(&code_message.place, &key, &body).await.is_ok() {
            continue;
        }
        let (id, person, code) = (account.id().clone(), code_message.person, code_message.code);
        if let Err(error) = store.write(move |tx| tx.withdraw_pairing(&id, &person, &code)).await {
            tracing::warn!(%error, "a code did not arrive, and its request stays until it lapses");
        }
        return;
    }
}

/// The operator typed a code: lets in the person who got it. `max_text` returns the longest message of an account.
pub fn approve(
    tx: &Tx<'_>,
    rules: &Rules,
    typed: &str,
    max_text: impl Fn(&AccountId) -> usize,
) -> Result<PairingApproval> {
    let now = unix_now();
    let Some(code) = read_code(typed) else { return Ok(PairingApproval::NoCode) };
    let wrong = wrong_tries(tx, now)?;
    if let CodeTries::Locked { until } = wrong {
        audit(tx, None, "pair", false, "locked")?;
        return Ok(PairingApproval::Locked { until });
    }
    forget_lapsed(tx, now)?;
    let mut found = None;
    // Compares with every request, also after a match, so that the time reveals nothing.
    for (pairing, kept) in tx.waiting_pairings()? {
        if kept.is_of(&code) {
            found = Some(pairing);
        }
    }
    let Some(pairing) = found else {
        let count = wrong.count() + 1;
        tx.set_setting(WRONG, &format!("{count} {now}"))?;
        audit(tx, None, "pair", false, "wrong code")?;
        return Ok(match TRIES - count {
            left @ 1.. => PairingApproval::Wrong { left },
            _ => PairingApproval::Locked { until: now + LOCKED },
        });
    };
    let account = AccountId::new(pairing.account.clone());
    if !rules.account(&account).access.pairs() {
        return Ok(PairingApproval::Off(pairing));
    }
    tx.forget_setting(WRONG)?;
    tx.pair(&pairing, now)?;
    audit(tx, Some(&pairing), "pair", true, "operator")?;
    let key = SendKey::new(format!("p.{}", random_hex(16)));
    let place = Place::room(pairing.room.clone());
    let notice =
        Notice { key, account: &account, place: &place, reply_to: None, max_text: max_text(&account) };
    notice.tell(tx, &rules.words, &TextKey::Paired.into())?;
    Ok(PairingApproval::Paired(pairing))
}

/// The operator revokes a pairing, or refuses a request: on one account, or on all (`None`). Stops the person's turns
/// that have not ended.
pub fn revoke(tx: &Tx<'_>, account: Option<&str>, person: &str) -> Result<(Vec<Pairing>, Vec<PostCommit>)> {
    let gone = tx.unpair(account, person)?;
    let mut after = Vec::new();
    for pairing in &gone {
        audit(tx, Some(pairing), "unpair", true, "operator")?;
        // A person with a pending request has no turns yet, unless a list names them too.
        if !pairing.pending {
            let (account, person) = (AccountId::from(pairing.account.as_str()), UserId::from(person));
            after.extend(stop_turns_of(tx, &account, None, &person)?);
        }
    }
    Ok((gone, after))
}

/// End of the lock-out after too many wrong codes, if there is one.
pub fn locked_until(tx: &Tx<'_>) -> Result<Option<i64>> {
    Ok(match wrong_tries(tx, unix_now())? {
        CodeTries::Locked { until } => Some(until),
        CodeTries::Wrong(_) => None,
    })
}

enum CodeTries {
    Wrong(i64),
    Locked { until: i64 },
}

impl CodeTries {
    fn count(&self) -> i64 {
        match self {
            Self::Wrong(count) => *count,
            Self::Locked { .. } => TRIES,
        }
    }
}

/// Counts the wrong codes in a row. They are forgotten an hour after the last one.
fn wrong_tries(tx: &Tx<'_>, now: i64) -> Result<CodeTries> {
    let kept = tx.setting(WRONG)?.unwrap_or_default();
    let kept = kept.split_once(' ').and_then(|(count, at)| Some((count.parse().ok()?, at.parse().ok()?)));
    let (count, at): (i64, i64) = kept.unwrap_or_default();
    Ok(match (0..LOCKED).contains(&(now - at)) {
        true if count >= TRIES => CodeTries::Locked { until: at + LOCKED },
        true => CodeTries::Wrong(count),
        false => CodeTries::Wrong(0),
    })
}

fn audit(tx: &Tx<'_>, whom: Option<&Pairing>, action: &str, allowed: bool, rule: &str) -> Result<()> {
    let room = whom.map(|pairing| RoomId::new(pairing.room.clone()));
    tx.audit_operator(&OperatorAction {
        account: whom.map_or("", |pairing| &pairing.account),
        actor: whom.map_or("", |pairing| &pairing.person),
        room: room.as_ref(),
        action,
        allowed,
        rule,
    })
}

impl HashedCode {
    fn of(code: &str, salt: String) -> Self {
        let digest = hash(["pairing", &salt, code]);
        Self { salt, digest }
    }

    /// Whether this is the hash of `code`. Takes the same time wherever the two differ.
    fn is_of(&self, code: &str) -> bool {
        let other = Self::of(code, self.salt.clone());
        let (kept, typed) = (self.digest.as_bytes(), other.digest.as_bytes());
        let differing = kept.iter().zip(typed).fold(0, |differing, (a, b)| differing | (a ^ b));
        differing == 0 && kept.len() == typed.len()
    }
}

/// A code from the operating system's randomness; `None` if that fails.
fn new_code() -> Option<String> {
    let mut code = String::with_capacity(LENGTH);
    // More than enough: each byte is usable with a chance of 240 in 256.
    let mut bytes = [0_u8; 64];
    random_bytes(&mut bytes).ok()?;
    // Bytes from 240 on would make some characters more likely than others.
    let fair = bytes.iter().filter(|byte| usize::from(**byte) < 8 * ALPHABET.len());
    for byte in fair.take(LENGTH) {
        code.push(char::from(*ALPHABET.get(usize::from(*byte) % ALPHABET.len())?));
    }
    (code.len() == LENGTH).then_some(code)
}

/// The code in two halves, as people copy it.
fn shown(code: &str) -> String {
    let (first, second) = code.split_at(LENGTH / 2);
    format!("{first}-{second}")
}

/// Parses a code as people type it: in any case, with spaces and dashes anywhere. `None` if no code looks like that.
fn read_code(typed: &str) -> Option<String> {
    let code: String = typed
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '-' | '‐' | '‑' | '–' | '—' | '_'))
        .map(|c| c.to_ascii_uppercase())
        .collect();
    let whole = code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte));
    whole.then_some(code)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_of_the_alphabet_and_differ() {
        let codes: HashSet<String> = (0..1000).map(|_| new_code().unwrap()).collect();
        assert_eq!(codes.len(), 1000);
        let used: HashSet<u8> = codes.iter().flat_map(|code| code.bytes()).collect();
        assert_eq!(used, ALPHABET.iter().copied().collect(), "every character, and no other");
        assert!(codes.iter().all(|code| code.len() == LENGTH));
    }

    #[test]
    fn nobody_takes_one_character_for_another() {
        for ambiguous in "0O1IL U".bytes().filter(|byte| *byte != b' ') {
            assert!(!ALPHABET.contains(&ambiguous), "{}", char::from(ambiguous));
        }
        assert_eq!(ALPHABET.iter().collect::<HashSet<_>>().len(), ALPHABET.len());
    }

    #[test]
    fn a_code_is_read_as_people_type_it() {
        for typed in ["ABCD-2345", "abcd2345", " ab cd - 23 45\n", "ABCD–2345", "A-B-C-D-2-3-4-5"] {
            assert_eq!(read_code(typed).as_deref(), Some("ABCD2345"), "{typed:?}");
        }
        for typed in ["", "ABCD234", "ABCD23456", "ABCD234O", "ÄBCD2345", "--------", "ABCD 234!"] {
            assert_eq!(read_code(typed), None, "{typed:?}");
        }
    }

    #[test]
    fn what_is_kept_recognises_the_code_and_no_other() {
        let kept = HashedCode::of("ABCD2345", random_hex(16));
        assert!(kept.is_of("ABCD2345"));
        for other in ["ABCD2346", "BBCD2345", ""] {
            assert!(!kept.is_of(other), "{other}");
        }
        assert!(!kept.digest.contains("ABCD2345"));
        let same = HashedCode::of("ABCD2345", random_hex(16));
        assert_ne!(same.digest, kept.digest, "the salt is another each time");
        let broken = HashedCode { digest: String::new(), ..kept };
        assert!(!broken.is_of("ABCD2345"), "a damaged row fits nothing");
    }
}
