//! Derives the key of a session from account, place and person.

use talaria_platform::{AccountId, Place, RoomId, UserId};

use super::SessionRules;
use crate::util::hash;

/// Key under which the store finds the session of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Hash of everything that distinguishes one session from another.
    pub digest: String,
    /// The session's account.
    pub account: AccountId,
    /// The session's room.
    pub room: RoomId,
}

impl SessionKey {
    /// The key for a prompt of `person` in `place`. `hash` length-prefixes every part, so no two places share a key. A
    /// direct chat has one person, so no setting separates people there. A direct chat that others join becomes another
    /// place: its earlier messages are not for them.
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

    proptest! {
        /// Different accounts, rooms, threads and people never share a session, for any content of the ids; threads and
        /// people only where a setting separates them. A direct chat and the room that it becomes share none either.
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
    }
}
