//! The update of one room in a sync, whether the SDK processed it or we read it raw.

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::TimelineEvent;
use matrix_sdk::ruma::OwnedRoomId;
use matrix_sdk::ruma::api::client::sync::sync_events::v3 as raw;
use matrix_sdk::ruma::events::AnySyncTimelineEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::sync::{RoomUpdates, State};

/// The update of one room.
pub(super) struct RoomUpdate {
    pub room: OwnedRoomId,
    /// Whether we are in the room; otherwise we left, or were removed.
    pub joined: bool,
    /// Whether the homeserver left out events before the first one.
    pub limited: bool,
    /// Token for reading backwards from the first event.
    pub before: Option<String>,
    /// Oldest first.
    pub events: Vec<TimelineEvent>,
    /// State changes of the room, as JSON.
    pub state: Vec<String>,
}

/// The rooms of a response that the SDK has processed and decrypted.
pub(super) fn processed(rooms: RoomUpdates) -> Vec<RoomUpdate> {
    let joined = rooms.joined.into_iter().map(|(room, update)| (room, true, update.timeline, update.state));
    let left = rooms.left.into_iter().map(|(room, update)| (room, false, update.timeline, update.state));
    joined
        .chain(left)
        .map(|(room, joined, timeline, state)| {
            let (State::Before(state) | State::After(state)) = state;
            let state = state.into_iter().map(|event| event.json().get().to_owned()).collect();
            let (limited, before, events) = (timeline.limited, timeline.prev_batch, timeline.events);
            RoomUpdate { room, joined, limited, before, events, state }
        })
        .collect()
}

/// The rooms of a raw response, decrypted here. `find` returns the rooms that we know.
pub(super) async fn unread(
    rooms: raw::Rooms,
    find: impl Fn(&OwnedRoomId) -> Option<Room>,
) -> Vec<RoomUpdate> {
    let joined = rooms.join.into_iter().map(|(room, update)| (room, true, update.timeline, update.state));
    let left = rooms.leave.into_iter().map(|(room, update)| (room, false, update.timeline, update.state));
    let mut updates = Vec::new();
    for (id, joined, timeline, state) in joined.chain(left) {
        let Some(room) = find(&id) else { continue };
        let mut events = Vec::with_capacity(timeline.events.len());
        for event in timeline.events {
            events.push(unseal(&room, event).await);
        }
        let (limited, before) = (timeline.limited, timeline.prev_batch);
        let state = match state {
            raw::State::Before(state) | raw::State::After(state) => state.events,
            _ => Vec::new(),
        };
        let state = state.into_iter().map(|event| event.json().get().to_owned()).collect();
        updates.push(RoomUpdate { room: id, joined, limited, before, events, state });
    }
    updates
}

/// Decrypts an event if it is encrypted and can be; otherwise returns it as it is.
pub(super) async fn unseal(room: &Room, event: Raw<AnySyncTimelineEvent>) -> TimelineEvent {
    let kind: Option<String> = event.get_field("type").ok().flatten();
    if kind.as_deref() == Some("m.room.encrypted")
        && let Ok(event) = room.decrypt_event(event.cast_ref_unchecked(), None).await
    {
        return event;
    }
    TimelineEvent::from_plaintext(event)
}
