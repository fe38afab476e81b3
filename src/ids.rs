//! Ids of sessions, turns, agents and asks, and the keys derived from them.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, EventId, RoomId, SendKey};

use crate::util::{UtcTime, hash, random_hex};

/// Id of a session: `YYYYMMDD_HHMMSS_<8 hex>` in UTC; with `.<n>` after the nth change of its history after the fact.
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

/// Prefix of the id of a turn that an app asked for.
pub const RUN: &str = "run_";

/// Account of all turns asked for over HTTP; its rooms are the apps. No platform can have this name.
pub const HTTP: &str = "@http";

/// Id of a turn: 16 hex digits derived from the event that started it, so that the same event is the same turn. The id
/// of an app's turn is `run_` and 32 random hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(pub String);

impl TurnId {
    /// Id of the turn that `event` starts; `attempt` counts its `/retry`s.
    pub fn new(account: &AccountId, room: &RoomId, event: &EventId, attempt: u32) -> Self {
        Self(idempotency_key(account, room, event, attempt)[..16].to_owned())
    }

    /// A new id for a turn that an app asks for.
    pub fn random_run() -> Self {
        Self(format!("{RUN}{}", random_hex(16)))
    }

    /// The first six digits: enough for people to find the turn in the log.
    pub fn short(&self) -> &str {
        let digits = self.0.strip_prefix(RUN).unwrap_or(&self.0);
        digits.get(..6).unwrap_or(digits)
    }

    /// The send key of one message of this turn; `what` is its part, `0` the answer's first message.
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
    /// This text as a name; `None` if it has another length or other characters.
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

    /// The agent that answers while none is configured: it explains how to configure one.
    pub fn guide() -> Self {
        Self("guide".to_owned())
    }

    /// The name as it stands in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of an ask: 128 random bits, never shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskId(pub String);

impl AskId {
    /// A new random id.
    pub fn random() -> Self {
        Self(random_hex(16))
    }

    /// The send key of the message that shows the ask.
    pub fn send_key(&self) -> SendKey {
        SendKey::new(format!("a.{}", self.0))
    }

    /// The send key of the line that reports how the ask ended, for an end that no person's message caused.
    pub fn end_key(&self) -> SendKey {
        SendKey::new(format!("a.{}.end", self.0))
    }
}

/// The `Idempotency-Key` of a turn: equal for every resend, different for each `/retry`.
pub fn idempotency_key(account: &AccountId, room: &RoomId, event: &EventId, attempt: u32) -> String {
    hash([account.as_str(), room.as_str(), event.as_str(), &attempt.to_string()])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn session_ids_carry_the_utc_time_they_began() {
        let id = SessionId::new(UNIX_EPOCH + Duration::from_secs(1_709_210_096)).0;
        assert!(id.starts_with("20240229_123456_"), "{id}");
        let random = &id["20240229_123456_".len()..];
        assert!(random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    }

    proptest! {
        #[test]
        fn a_retry_is_another_turn_with_another_key(event in ".{0,20}", attempt in 0_u32..1000) {
            let (account, room, event) = ("a".into(), "r".into(), EventId::new(event));
            let key = idempotency_key(&account, &room, &event, attempt);
            prop_assert_eq!(&key, &idempotency_key(&account, &room, &event, attempt));
            prop_assert_ne!(&key, &idempotency_key(&account, &room, &event, attempt + 1));
        }
    }
}
