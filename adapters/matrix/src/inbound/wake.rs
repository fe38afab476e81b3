//! Waits until others have done something, and only then lets the SDK sync.
//!
//! Each of our own messages, edits and read marks ends a sync, and the SDK spends milliseconds and several writes on
//! every response. So the long poll is a request of our own, with a filter that leaves out our own events; when it
//! ends, the SDK syncs from the same position as before, without waiting, and gets everything at once. Nothing is
//! lost: the poll is only the bell. Its response also has the messages of others as they were sent, which
//! `replay_guard` needs.
//!
//! Some of our own events must be heard at once, and then the SDK waits itself: see [`SyncReader::may_wait`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use matrix_sdk::ruma::api::client::sync::sync_events::v3;
use matrix_sdk::ruma::events::{AnySyncTimelineEvent, AnyTimelineEvent};
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedRoomId, RoomId};
use matrix_sdk::{EncryptionState, RoomState};

use super::SyncReader;
use super::filter::SentMembers;
use super::sync::{self, SyncFailure};

/// What the SDK's next sync may do.
pub(super) enum SyncTurn {
    /// Wait for events.
    Wait,
    /// Fetch what is there. These messages of others are among it.
    Fetch(SentCopies, SentMembers),
}

/// Encrypted messages as the homeserver sent them, by room and id.
#[derive(Default)]
pub(super) struct SentCopies(HashMap<(OwnedRoomId, OwnedEventId), Option<Raw<AnySyncTimelineEvent>>>);

impl SentCopies {
    fn of(response: v3::Response) -> Self {
        let mut copies = Self::default();
        for (room, update) in response.rooms.join {
            for event in update.timeline.events {
                copies.add(&room, event);
            }
        }
        copies
    }

    fn add(&mut self, room: &RoomId, event: Raw<AnySyncTimelineEvent>) {
        let kind: Option<String> = event.get_field("type").ok().flatten();
        let (Some("m.room.encrypted"), Ok(Some(id))) = (kind.as_deref(), event.get_field("event_id")) else {
            return;
        };
        match self.0.entry((room.to_owned(), id)) {
            // Two events with one id: neither proves anything.
            Entry::Occupied(mut known) => drop(known.insert(None)),
            Entry::Vacant(unknown) => drop(unknown.insert(Some(event))),
        }
    }

    /// The message with this id.
    pub fn get(&self, room: &RoomId, id: &EventId) -> Option<Raw<AnyTimelineEvent>> {
        let copy = self.0.get(&(room.to_owned(), id.to_owned()))?.clone()?;
        Some(copy.cast_unchecked())
    }
}

impl SyncReader<'_> {
    /// Waits until others have done something since `since`, or for as long as one poll takes.
    pub async fn wait_for_others(&self, since: &str) -> Result<SyncTurn, SyncFailure> {
        if !self.may_wait() {
            return Ok(SyncTurn::Wait);
        }
        loop {
            let response = tokio::select! {
                response = sync::of_others(&self.account.client, since, &self.account.own) => response?,
                () = self.entered.notified() => return Ok(SyncTurn::Fetch(SentCopies::default(), SentMembers::Speakers)),
            };
            // The same position: nobody has done anything, and neither have we.
            if response.next_batch != since {
                let members = self.unknown_members(&response);
                return Ok(SyncTurn::Fetch(SentCopies::of(response), members));
            }
            if !self.may_wait() {
                return Ok(SyncTurn::Wait);
            }
        }
    }

    /// Whose membership the SDK needs with this response. It fetches all members of a room before it first writes
    /// there, and from then on hears of every change.
    fn unknown_members(&self, response: &v3::Response) -> SentMembers {
        let is_known = |room: &OwnedRoomId| {
            let room = self.account.client.get_room(room);
            room.is_some_and(|room| room.state() == RoomState::Joined && room.are_members_synced())
        };
        match response.rooms.join.keys().all(is_known) {
            true => SentMembers::Nobody,
            false => SentMembers::Speakers,
        }
    }

    /// Whether our own events may come late, with the next ones of others. Not while a room is unencrypted: another
    /// device of ours may encrypt it, and then no plaintext may follow. And not during a verification: our part of it
    /// is repeated in plaintext when it comes back to us (see `encryption::verify::plaintext_echo`).
    fn may_wait(&self) -> bool {
        let rooms = self.account.client.joined_rooms();
        let is_verifying = !self.account.opened.requests.are_none();
        may_wait(is_verifying, rooms.iter().map(|room| room.encryption_state()))
    }
}

/// Whether our own events may come late, in joined rooms of this encryption: see [`SyncReader::may_wait`]. A room whose
/// state the SDK has not seen yet may be unencrypted.
fn may_wait(is_verifying: bool, mut rooms: impl Iterator<Item = EncryptionState>) -> bool {
    !is_verifying && rooms.all(|room| room.is_encrypted())
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::{event_id, room_id};
    use serde_json::{Value, json};

    use super::*;

    fn copies(events: &[Value]) -> SentCopies {
        let mut copies = SentCopies::default();
        for event in events {
            copies.add(room_id!("!room"), Raw::from_json_string(event.to_string()).unwrap());
        }
        copies
    }

    #[test]
    fn our_own_events_come_late_only_while_every_room_is_encrypted_and_nobody_verifies_us() {
        use EncryptionState::{Encrypted, NotEncrypted, Unknown};
        assert!(may_wait(false, [Encrypted, Encrypted].into_iter()));
        assert!(may_wait(false, [].into_iter()));
        assert!(!may_wait(false, [Encrypted, NotEncrypted].into_iter()));
        assert!(!may_wait(false, [Unknown, Encrypted].into_iter()));
        assert!(!may_wait(true, [Encrypted].into_iter()));
    }

    #[test]
    fn a_message_is_found_by_its_room_and_id() {
        let sealed =
            json!({ "type": "m.room.encrypted", "event_id": "$1", "content": { "ciphertext": "c" } });
        let found = copies(&[sealed.clone(), json!({ "type": "m.room.message", "event_id": "$2" })]);

        let copy = found.get(room_id!("!room"), event_id!("$1")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(copy.json().get()).unwrap(), sealed);
        assert!(found.get(room_id!("!room"), event_id!("$2")).is_none());
        assert!(found.get(room_id!("!another"), event_id!("$1")).is_none());
    }

    #[test]
    fn two_messages_with_one_id_prove_nothing() {
        let sealed = |text| json!({ "type": "m.room.encrypted", "event_id": "$1", "content": text });
        for number in 2..4 {
            let same = copies(&vec![sealed("a"); number]);
            assert!(same.get(room_id!("!room"), event_id!("$1")).is_none());
        }
    }
}
