//! Logs for the operator who was refused and how to let them in: it may be the operator.
//!
//! Each person is named once. A flood must fill neither the log nor the memory, and must not keep others from being
//! named for ever: at most `EACH_HOUR` names an hour, and beyond `KNOWN` names the oldest is forgotten.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use talaria_platform::{AccountId, UserId};
use tokio::time::Instant;

use crate::access::PlaceKind;
use crate::rules::AccountRules;

/// Most people that the log names in an hour. Nobody would read more lines.
const EACH_HOUR: usize = 100;

/// Most names remembered as already logged.
const KNOWN: usize = 1000;

/// The window of [`EACH_HOUR`].
const HOUR: Duration = Duration::from_secs(3600);

/// A person who was refused, for the operator.
pub(super) struct RefusedPerson {
    id: String,
    place: &'static str,
    did: &'static str,
    why: RefusalReason,
    /// Advice on how to let them in.
    hint: String,
}

/// Why a person was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RefusalReason {
    /// No list names them.
    NotListed,
    /// No list names them, and they got a pairing code.
    GivenCode,
    /// A list names them, but their device is not trusted.
    Untrusted(Option<String>),
    /// The keys contradict the author.
    Contradicted,
}

impl RefusedPerson {
    /// A person on no list who did something.
    pub fn new(
        account: &AccountId,
        rules: &AccountRules,
        id: &UserId,
        place: PlaceKind,
        did: &'static str,
    ) -> Self {
        let id = id.as_str().to_owned();
        let hint = format!("to let them in, add {id:?} to {}", list(account, rules));
        Self { id, place: in_words(place), did, why: RefusalReason::NotListed, hint }
    }

    /// A person on a list who wrote from an untrusted device.
    pub fn untrusted(id: &UserId, device: Option<&str>, place: PlaceKind) -> Self {
        let hint = "they verify this session with another one of theirs, or enter their recovery key there; or set \
                    `trust: any` for this platform";
        let (id, why) = (id.as_str().to_owned(), RefusalReason::Untrusted(device.map(str::to_owned)));
        Self { id, place: in_words(place), did: "wrote", why, hint: hint.to_owned() }
    }

    /// Somebody who wrote in the name of a listed person, with other keys.
    pub fn contradicted(id: &UserId, place: PlaceKind) -> Self {
        let hint =
            "ask them, in another way, whether they have reset their encryption; if so, verify them again";
        let id = id.as_str().to_owned();
        Self {
            id,
            place: in_words(place),
            did: "wrote",
            why: RefusalReason::Contradicted,
            hint: hint.to_owned(),
        }
    }

    /// Adds that the person got a pairing code.
    pub fn given_a_code(self, account: &AccountId, rules: &AccountRules) -> Self {
        let hint = format!(
            "talaria pairing approve CODE lets them in, with the code they were shown; so does adding {:?} to {}",
            self.id,
            list(account, rules)
        );
        Self { why: RefusalReason::GivenCode, hint, ..self }
    }

    /// Key of a log entry: each key is logged once.
    fn key(&self) -> String {
        match &self.why {
            RefusalReason::NotListed | RefusalReason::GivenCode => self.id.clone(),
            RefusalReason::Untrusted(device) => format!("{}\n{device:?}", self.id),
            RefusalReason::Contradicted => format!("{}\n!", self.id),
        }
    }
}

/// The configuration key that lists people. Where the environment variable is set, it replaces the file's list.
fn list(account: &AccountId, rules: &AccountRules) -> String {
    let variable = match rules.people_variable {
        Some(variable) => format!(" (or {variable} where that is set)"),
        None => String::new(),
    };
    format!("platforms.{account}.access.people{variable}")
}

fn in_words(place: PlaceKind) -> &'static str {
    match place {
        PlaceKind::Direct => "a direct chat",
        PlaceKind::Room => "a room",
    }
}

/// The refusals of one account that the log has named.
#[derive(Default)]
pub(super) struct RefusalLog {
    known: HashSet<String>,
    /// The keys in `known`, oldest first.
    order: VecDeque<String>,
    /// Start of the current hour, and the number of names logged in it.
    hour: Option<(Instant, usize)>,
}

impl RefusalLog {
    /// Logs a refusal, if it is new.
    pub fn name(&mut self, stranger: &RefusedPerson) {
        if self.is_new(&stranger.key(), Instant::now()) {
            let RefusedPerson { id, place, did, hint, why } = stranger;
            match why {
                RefusalReason::GivenCode => {
                    tracing::warn!(id, place, did, hint, "somebody is on no list and was given a code");
                }
                RefusalReason::NotListed => {
                    tracing::warn!(id, place, did, hint, "somebody is on no list; nothing was answered");
                }
                RefusalReason::Untrusted(device) => {
                    tracing::warn!(
                        id,
                        device,
                        place,
                        did,
                        hint,
                        "a device is not trusted, so it is not heard"
                    );
                }
                RefusalReason::Contradicted => {
                    tracing::warn!(
                        id,
                        place,
                        did,
                        hint,
                        "the keys are not this person's; nothing was answered"
                    );
                }
            }
        }
    }

    /// Whether to log this key now. Remembers it if so.
    fn is_new(&mut self, id: &str, now: Instant) -> bool {
        if self.known.contains(id) {
            return false;
        }
        let (began, named) = match self.hour {
            Some((began, named)) if now < began + HOUR => (began, named),
            Some(_) | None => (now, 0),
        };
        if named >= EACH_HOUR {
            return false;
        }
        self.hour = Some((began, named + 1));
        if self.order.len() >= KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(id.to_owned());
        self.order.push_back(id.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_once_and_somebody_new_in_every_hour_of_a_flood() {
        let (mut strangers, start) = (RefusalLog::default(), Instant::now());
        assert!(strangers.is_new("@ann", start));
        assert!(!strangers.is_new("@ann", start + 3 * HOUR));
        for hour in 1..30 {
            let named = (0..5000).filter(|n| strangers.is_new(&format!("@{hour}.{n}"), start + hour * HOUR));
            assert_eq!(named.count(), EACH_HOUR);
            assert!(strangers.known.len() <= KNOWN && strangers.known.len() == strangers.order.len());
        }
        assert!(strangers.is_new("@bob", start + 30 * HOUR));
    }
}
