//! Who is in a room when we come, and who was when we went.

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

/// People of one room that the core is told of at most. It keeps only those it knows, but every event costs it a row.
const MOST: usize = 10_000;

/// Everybody who is there, after we came in. `arrival` tells one time from the next.
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
            // The homeserver does not say, however often it is asked. Whoever left and came back while we were out is not
            // obeyed until they do so again.
            PlatformErrorKind::Retry { .. } => {
                tracing::warn!(room = %room.room_id(), %error, "the members of a room are not told");
                Ok(Vec::new())
            }
            // We are out again already.
            PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported => {
                tracing::debug!(room = %room.room_id(), %error, "the members of a room are not told");
                Ok(Vec::new())
            }
        },
    }
}

/// Everybody whom we know to have been there, when we are out: nothing they asked for can be shown to them, and
/// whether they stay we shall not hear.
pub(super) async fn all_left(
    room: &Room,
    about: &RoomContext,
    own: &UserId,
    update: &RoomUpdate,
) -> Vec<RoomEvent> {
    let told = update.events.iter().rev().filter_map(wire::of);
    let state = update.state.iter().filter_map(|json| wire::read(json));
    let departure = told.chain(state).find_map(|event| departure_of(own, event));
    // An invitation that we declined ends in the same list.
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
