//! Ids of sessions and turns, and the key that finds the session of what is said in a place.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use talaria_platform::{AccountId, EventId, Place, RoomId, SendKey, UserId};

use crate::rules::SessionRules;
use crate::token;

/// What an agent remembers: `YYYYMMDD_HHMMSS_<8 hex>` in UTC, perhaps with `.<n>` for the nth time
/// that its history was changed after the fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub String);

impl SessionId {
    /// A new id for a session that begins now.
    pub fn new(now: SystemTime) -> Self {
        let utc = UtcTime::from(now);
        let random = random_hex(4);
        Self(format!(
            "{:04}{:02}{:02}_{:02}{:02}{:02}_{random}",
            utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
        ))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the id of a turn begins with that a program asked for.
pub const RUN: &str = "run_";

/// The account of what programs ask over HTTP; its rooms are the apps. No platform can have this name.
pub const HTTP: &str = "@http";

/// A turn: 16 hex digits derived from what started it, so that the same event is the same turn. One that a program
/// asked for is `run_` and 32 random ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(pub String);

impl TurnId {
    /// The turn that `event` starts; `attempt` counts its `/retry`s.
    pub fn new(account: &AccountId, room: &RoomId, event: &EventId, attempt: u32) -> Self {
        Self(idempotency_key(account, room, event, attempt)[..16].to_owned())
    }

    /// A turn that a program asks for.
    pub fn random_run() -> Self {
        Self(format!("{RUN}{}", random_hex(16)))
    }

    /// The first six digits: enough for people to find the turn in the log.
    pub fn short(&self) -> &str {
        let digits = self.0.strip_prefix(RUN).unwrap_or(&self.0);
        digits.get(..6).unwrap_or(digits)
    }

    /// The send key of what this turn shows as `what`: `0` is the answer's first message.
    pub fn send_key(&self, what: impl fmt::Display) -> SendKey {
        SendKey::new(format!("t.{}.{what}", self.0))
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a configured agent, such as `proxy` or `local`: 1 to 64 letters, digits, `.`, `_` and `-`. It stands in
/// the configuration, on record and in `model` over HTTP, so it must not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct AgentName(String);

impl AgentName {
    /// This text as a name, if it can be one.
    pub fn new(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        ((1..=64).contains(&text.len()) && text.bytes().all(fits)).then(|| Self(text.to_owned()))
    }

    /// The agent behind `GATEWAY_PROXY_URL` and `gateway.proxy_url`.
    pub fn proxy() -> Self {
        Self("proxy".to_owned())
    }

    /// The agent behind `OPENAI_BASE_URL` and `agent.base_url`.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// The agent that answers while nobody configured one: it tells how.
    pub fn guide() -> Self {
        Self("guide".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An ask: 128 random bits, never shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskId(pub String);

impl AskId {
    /// A new one.
    pub fn random() -> Self {
        Self(random_hex(16))
    }

    /// The send key of the message that asks.
    pub fn send_key(&self) -> SendKey {
        SendKey::new(format!("a.{}", self.0))
    }

    /// The send key of the line that says how it came out, where no person's message led to it.
    pub fn end_key(&self) -> SendKey {
        SendKey::new(format!("a.{}.end", self.0))
    }
}

/// The `Idempotency-Key` of a turn: the same for every repeat, another one for each `/retry`.
pub fn idempotency_key(account: &AccountId, room: &RoomId, event: &EventId, attempt: u32) -> String {
    hash([account.as_str(), room.as_str(), event.as_str(), &attempt.to_string()])
}

/// What finds the session of something said in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// A hash of all that tells one session from another.
    pub digest: String,
    /// The account it belongs to.
    pub account: AccountId,
    /// The room it belongs to.
    pub room: RoomId,
}

impl SessionKey {
    /// The key of what `person` says in a place. Every part is length-prefixed, so that no two places share
    /// a key. In a direct chat there is one person, so no setting can tell people apart there. A direct chat
    /// that others come into is another place from then on: what was said in it is not for them.
    pub fn new(
        account: &AccountId,
        place: &Place,
        direct: bool,
        person: &UserId,
        rules: SessionRules,
    ) -> Self {
        let mut parts = vec![account.as_str(), place.room.as_str()];
        if !direct {
            parts.push("shared");
        }
        if let (true, Some(thread)) = (rules.threads, &place.thread) {
            parts.extend(["thread", thread.as_str()]);
        }
        if rules.people && !direct {
            parts.extend(["person", person.as_str()]);
        }
        Self { digest: hash(parts), account: account.clone(), room: place.room.clone() }
    }
}

/// SHA-256 over length-prefixed parts, in hex.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize())
}

/// `bytes` random bytes as hex, for ids: what must be secret is made by [`token::random_hex`] itself.
pub fn random_hex(bytes: usize) -> String {
    let random = token::random_hex(bytes);
    debug_assert!(random.is_ok(), "it cannot fail for so few");
    random.unwrap_or_else(|_| "0".repeat(2 * bytes))
}

/// Random characters for people to type: no vowels, so that they spell no words (and none of ours), and
/// nothing that looks like something else.
pub fn random_code(length: usize) -> String {
    let mut code = String::new();
    while code.len() < length {
        let random = random_hex(1);
        let number = usize::from_str_radix(&random, 16).unwrap_or(usize::MAX);
        // Numbers beyond the last whole alphabet are thrown again: every character is as likely.
        if number < usize::from(u8::MAX) / CODE_ALPHABET.len() * CODE_ALPHABET.len() {
            code.extend(CODE_ALPHABET.get(number % CODE_ALPHABET.len()).map(|byte| char::from(*byte)));
        }
    }
    code
}

/// What codes are made of.
pub const CODE_ALPHABET: &[u8] = b"2346789BCDFGHJKMNPQRTVWXZ";

/// Another one in each process: for keys of what is never repeated by the next one. A process id would not
/// do, because in a container it is the same each time.
pub fn this_process() -> &'static str {
    static NONCE: LazyLock<String> = LazyLock::new(|| random_hex(4));
    &NONCE
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A moment in UTC, split into what people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct UtcTime {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl From<SystemTime> for UtcTime {
    /// The civil calendar by counting 400-year eras from 1 March 0000; a clock before 1970 is 1970.
    fn from(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let days = (seconds / 86_400) as i64 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let second_of_day = seconds % 86_400;
        Self {
            year,
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            hour: (second_of_day / 3_600) as u32,
            minute: (second_of_day / 60 % 60) as u32,
            second: (second_of_day % 60) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use talaria_platform::ThreadId;

    use super::*;

    type Parts = (String, String, bool, Option<String>, String);

    fn parts() -> impl Strategy<Value = Parts> {
        // Few letters, so that equal parts are common.
        ("[ab]{0,2}", "[ab]{0,2}", any::<bool>(), prop::option::of("[ab]{0,2}"), "[ab]{0,2}")
    }

    #[test]
    fn session_ids_carry_the_utc_time_they_began() {
        let id = SessionId::new(UNIX_EPOCH + Duration::from_secs(1_709_210_096)).0;
        assert!(id.starts_with("20240229_123456_"), "{id}");
        let random = &id["20240229_123456_".len()..];
        assert!(random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    }

    #[test]
    fn civil_dates_are_right_around_leap_days_and_centuries() {
        for (seconds, date) in [
            (0, (1970, 1, 1)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (4_107_542_400, (2100, 3, 1)),
            (1_735_689_599, (2024, 12, 31)),
        ] {
            let utc = UtcTime::from(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!((utc.year, utc.month, utc.day), date);
        }
    }

    proptest! {
        /// Different accounts, rooms, threads and people never share a session, whatever the ids contain;
        /// threads and people only where a setting tells them apart. Nor do a direct chat and the room that it
        /// becomes.
        #[test]
        fn session_keys_are_injective(one in parts(), two in parts(), threads: bool, people: bool) {
            let rules = SessionRules { threads, people, ..SessionRules::default() };
            let key = |(account, room, direct, thread, person): &Parts| {
                let place = Place { room: RoomId::new(room.clone()), thread: thread.clone().map(ThreadId::new) };
                let person = UserId::new(person.clone());
                SessionKey::new(&AccountId::new(account.clone()), &place, *direct, &person, rules).digest
            };
            let same = one.0 == two.0 && one.1 == two.1 && one.2 == two.2
                && (!threads || one.3 == two.3)
                && (!people || one.2 || one.4 == two.4);
            prop_assert_eq!(key(&one) == key(&two), same);
        }

        #[test]
        fn a_retry_is_another_turn_with_another_key(event in ".{0,20}", attempt in 0_u32..1000) {
            let (account, room, event) = ("a".into(), "r".into(), EventId::new(event));
            let key = idempotency_key(&account, &room, &event, attempt);
            prop_assert_eq!(&key, &idempotency_key(&account, &room, &event, attempt));
            prop_assert_ne!(&key, &idempotency_key(&account, &room, &event, attempt + 1));
        }
    }
}
