//! Display names of members, and which rooms are direct chats: facts that nearly every message needs and that change
//! seldom.
//!
//! The SDK reads both from its database each time, a member from several tables. They are kept until a response says
//! that they changed. What was read from before a change until after it is not kept.

use std::collections::HashMap;
use std::sync::Arc;

use matrix_sdk::Room;
use matrix_sdk::ruma::events::AnyGlobalAccountDataEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{OwnedRoomId, OwnedUserId, RoomId, UserId};
use parking_lot::Mutex;
use talaria_platform::PlatformError;

use super::SyncReader;
use super::event_lookup::shown_name;
use super::room_events::DirectRooms;
use super::room_update::RoomUpdate;

/// Names that are kept, over all rooms. Each takes about two hundred bytes.
const NAMES: usize = 2_000;

/// What is known since the last response that changed it.
#[derive(Default)]
pub(super) struct KnownFacts(Mutex<FactState>);

#[derive(Default)]
struct FactState {
    /// Number of responses that changed something.
    changes: u64,
    names: MemberNames,
    direct: Option<Arc<DirectRooms>>,
}

/// Names by room and person. `None`: they have no name there.
#[derive(Default)]
struct MemberNames {
    rooms: HashMap<OwnedRoomId, HashMap<OwnedUserId, Option<String>>>,
    count: usize,
}

/// Permission to keep what is read from now on, unless a change comes in between.
#[derive(Clone, Copy)]
struct FactTicket(u64);

impl MemberNames {
    #[expect(clippy::option_option, reason = "not kept, kept as absent, kept")]
    fn get(&self, room: &RoomId, user: &UserId) -> Option<Option<String>> {
        self.rooms.get(room)?.get(user).cloned()
    }

    fn keep(&mut self, room: &RoomId, user: &UserId, name: Option<String>) {
        if self.count >= NAMES && self.get(room, user).is_none() {
            *self = Self::default();
        }
        let people = self.rooms.entry(room.to_owned()).or_default();
        if people.insert(user.to_owned(), name).is_none() {
            self.count += 1;
        }
    }

    fn forget(&mut self, room: &RoomId) {
        if let Some(people) = self.rooms.remove(room) {
            self.count -= people.len();
        }
    }
}

impl KnownFacts {
    /// Forgets what a response may have changed. Called for each response that the SDK has processed, before anything of
    /// it is read.
    pub fn forget_changed(&self, updates: &[RoomUpdate], account: &[Raw<AnyGlobalAccountDataEvent>]) {
        let mut state = self.0.lock();
        for update in updates.iter().filter(|update| has_members(update)) {
            state.names.forget(&update.room);
            state.changes += 1;
        }
        if account.iter().any(is_direct) {
            state.direct = None;
            state.changes += 1;
        }
    }

    /// Forgets everything: the SDK has processed a response that nobody looks at.
    pub fn forget_all(&self) {
        let mut state = self.0.lock();
        *state = FactState { changes: state.changes + 1, ..FactState::default() };
    }

    /// Taken before each read whose result is to be kept.
    fn ticket(&self) -> FactTicket {
        FactTicket(self.0.lock().changes)
    }

    fn keep(&self, FactTicket(changes): FactTicket, change: impl FnOnce(&mut FactState)) {
        let mut state = self.0.lock();
        if state.changes == changes {
            change(&mut state);
        }
    }
}

/// Whether a response may change who is in a room, and under which name. After a gap, the SDK may have heard of more than
/// the response shows.
fn has_members(update: &RoomUpdate) -> bool {
    const MEMBER: &str = "m.room.member";
    let is_member = |json: &str| json.contains(MEMBER);
    !update.joined
        || update.limited
        || update.state.iter().any(|json| is_member(json))
        || update.events.iter().any(|event| is_member(event.raw().json().get()))
}

/// Whether the account's data may say anew which rooms are direct chats. An event without a readable type may be any.
fn is_direct(event: &Raw<AnyGlobalAccountDataEvent>) -> bool {
    let kind: Option<String> = event.get_field("type").ok().flatten();
    kind.is_none_or(|kind| kind == "m.direct")
}

impl SyncReader<'_> {
    /// The display name of a person in a room.
    pub async fn name_of(&self, room: &Room, user: &UserId) -> Option<String> {
        // Until then the SDK may hear of a member from a request for them, and not with a response.
        if !room.are_members_synced() {
            return shown_name(room, user).await;
        }
        let known = self.facts.0.lock().names.get(room.room_id(), user);
        if let Some(name) = known {
            return name;
        }
        let ticket = self.facts.ticket();
        let name = shown_name(room, user).await;
        self.facts.keep(ticket, |state| state.names.keep(room.room_id(), user, name.clone()));
        name
    }

    /// The rooms that our own account marks as direct chats.
    pub async fn known_direct_rooms(&self) -> Result<Arc<DirectRooms>, PlatformError> {
        let known = self.facts.0.lock().direct.clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let ticket = self.facts.ticket();
        let read = Arc::new(self.direct_rooms().await?);
        self.facts.keep(ticket, |state| state.direct = Some(read.clone()));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::deserialized_responses::TimelineEvent;
    use matrix_sdk::ruma::{owned_room_id, room_id, user_id};
    use serde_json::{Value, json};

    use super::*;

    fn update(events: &[Value], state: &[Value]) -> RoomUpdate {
        let event =
            |event: &Value| TimelineEvent::from_plaintext(Raw::from_json_string(event.to_string()).unwrap());
        RoomUpdate {
            room: owned_room_id!("!room"),
            joined: true,
            limited: false,
            before: None,
            events: events.iter().map(event).collect(),
            state: state.iter().map(Value::to_string).collect(),
        }
    }

    #[test]
    fn a_name_is_kept_until_a_response_may_have_changed_it() {
        let member = json!({"type": "m.room.member", "state_key": "@ann", "content": {"displayname": "Ann"}});
        let message = json!({"type": "m.room.message", "event_id": "$1", "content": {"body": "hi"}});
        let (room, ann) = (room_id!("!room"), user_id!("@ann:example.org"));
        let changes = |update: RoomUpdate| {
            let facts = KnownFacts::default();
            let early = facts.ticket();
            facts.keep(early, |state| state.names.keep(room, ann, Some("Ann".into())));
            facts.forget_changed(&[update], &[]);
            let is_forgotten = facts.0.lock().names.get(room, ann).is_none();
            // Read before the change, and kept after it.
            facts.keep(early, |state| state.names.keep(room, ann, Some("Ann".into())));
            is_forgotten && facts.0.lock().names.get(room, ann).is_none()
        };

        assert!(!changes(update(&[], &[])));
        assert!(!changes(update(std::slice::from_ref(&message), &[])));
        assert!(changes(update(&[message.clone(), member.clone()], &[])));
        assert!(changes(update(std::slice::from_ref(&message), std::slice::from_ref(&member))));
        assert!(changes(RoomUpdate { limited: true, ..update(&[], &[]) }));
        assert!(changes(RoomUpdate { joined: false, ..update(&[], &[]) }));
        let elsewhere = RoomUpdate { room: owned_room_id!("!other"), ..update(&[member], &[]) };
        assert!(!changes(elsewhere));
    }

    #[test]
    fn the_kept_names_are_bounded() {
        let mut names = MemberNames::default();
        let user = |number: usize| UserId::parse(format!("@p{number}:example.org")).unwrap();
        for number in 0..=NAMES {
            names.keep(room_id!("!room"), &user(number), None);
            names.keep(room_id!("!room"), &user(number), Some("again".into()));
        }
        assert_eq!(names.count, 1);
        assert_eq!(names.get(room_id!("!room"), &user(NAMES)), Some(Some("again".into())));
        names.forget(room_id!("!room"));
        assert_eq!((names.count, names.rooms.len()), (0, 0));
    }

    #[test]
    fn direct_chats_are_read_again_when_the_account_may_say_so() {
        let forgets = |event: Value| {
            let facts = KnownFacts::default();
            facts.keep(facts.ticket(), |state| state.direct = Some(Arc::default()));
            facts.forget_changed(&[], &[Raw::from_json_string(event.to_string()).unwrap()]);
            let state = facts.0.lock();
            state.direct.is_none()
        };
        assert!(forgets(json!({"type": "m.direct", "content": {}})));
        assert!(forgets(json!({"content": {}})));
        assert!(!forgets(json!({"type": "m.push_rules", "content": {}})));
    }
}
