//! Reports the members of a room when we join, and when we leave.

use matrix_sdk::ruma::UserId;
use matrix_sdk::ruma::api::client::membership::joined_members::v3::Request;
use matrix_sdk::{Client, Room, RoomMemberships};
use talaria_platform::{EventId, PlatformError, PlatformErrorKind, RoomEvent, RoomEventKind};

use super::retry::{FAULTS, insist_on_room, once};
use super::room_update::RoomUpdate;
use super::time_budget::TimeBudget;
use super::translate::{RoomContext, moved};
use super::wire::{self, MatrixEvent, MatrixEventKind, MemberChange};
use crate::error::{from_http, kind_of};

/// Members of one room that are reported to the core at most. It keeps only those it knows, but every event costs it
/// a row.
const MOST: usize = 10_000;

/// Reports everybody in the room as joined, after we came in. `arrival` is the id of our join, which makes the event
/// ids different for each time.
pub(super) async fn all_here(
    client: &Client,
    room: &Room,
    about: &RoomContext,
    arrival: &str,
) -> Result<Vec<RoomEvent>, PlatformError> {
    let ask =
        || async { client.send(Request::new(room.room_id().to_owned())).with_request_config(once()).await };
    match insist_on_room(client, "the members of a room", FAULTS, &TimeBudget::endless(), ask).await {
        Ok(response) => Ok(response
            .joined
            .into_keys()
            .filter(|user| user != room.own_user_id())
            .take(MOST)
            .map(|user| {
                let id = EventId::new(format!("here {arrival} {user}"));
                moved(room, about, id, &user, RoomEventKind::Joined)
            })
            .collect()),
        Err(error) => match kind_of(&error) {
            PlatformErrorKind::Fatal => Err(from_http(error)),
            // The homeserver does not say, however often we ask. A person who left and came back while we were out is
            // not obeyed until they do so again.
            PlatformErrorKind::Retry { .. } => {
                tracing::warn!(room = %room.room_id(), %error, "the members of a room cannot be read");
                Ok(Vec::new())
            }
            // We have left the room again already.
            PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported => {
                tracing::debug!(room = %room.room_id(), %error, "the members of a room cannot be read");
                Ok(Vec::new())
            }
        },
    }
}

/// Reports everybody whom we know to have been there as gone, when we have left: we can show them no answer, and we
/// shall not hear whether they stay.
pub(super) async fn all_left(
    room: &Room,
    about: &RoomContext,
    own: &UserId,
    update: &RoomUpdate,
) -> Vec<RoomEvent> {
    let told = update.events.iter().rev().filter_map(wire::of);
    let state = update.state.iter().filter_map(|json| wire::read(json));
    let departure = told.chain(state).find_map(|event| departure_of(own, event));
    // A declined invitation ends in this list too.
    let Some(departure) = departure else { return Vec::new() };
    let members = room.members_no_sync(RoomMemberships::JOIN).await.unwrap_or_default();
    members
        .iter()
        .map(|member| member.user_id())
        .filter(|user| *user != own)
        .take(MOST)
        .map(|user| {
            let id = EventId::new(format!("gone {departure} {user}"));
            moved(room, about, id, user, RoomEventKind::Left)
        })
        .collect()
}

/// The id of an event that took us out of a room.
fn departure_of(own: &UserId, event: MatrixEvent) -> Option<String> {
    match event.what {
        MatrixEventKind::Member { who, change: MemberChange::Went } if who == own => {
            Some(event.id.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_leaving_a_room_that_we_were_in_counts() {
        let event = |before: &str, who: &str| {
            json!({"type": "m.room.member", "event_id": "$1", "sender": "@ann:example.org", "state_key": who,
                "content": {"membership": "leave"}, "unsigned": {"prev_content": {"membership": before}}})
            .to_string()
        };
        let departure_of = |own, json: &str| departure_of(own, wire::read(json).expect("an event"));
        let own = user_id!("@bot:example.org");

        assert_eq!(departure_of(own, &event("join", "@bot:example.org")).as_deref(), Some("$1"));
        assert_eq!(departure_of(own, &event("invite", "@bot:example.org")), None);
        assert_eq!(departure_of(own, &event("join", "@ann:example.org")), None);
    }
}
