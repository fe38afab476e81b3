//! Sync filters: the events that we ask a homeserver for.

use matrix_sdk::ruma::api::client::filter::{
    Filter, FilterDefinition, LazyLoadOptions, RoomEventFilter, RoomFilter,
};
use matrix_sdk::ruma::{UInt, UserId};

/// Events of one room in one response; `gap` reads the others page by page.
const TIMELINE: u32 = 50;

/// Whose membership the homeserver sends beside what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentMembers {
    /// Those who speak, if it has not just sent them. Synapse forgets that when they speak in another room, and each
    /// time it sends somebody, the SDK asks for their keys again.
    Speakers,
    /// Nobody; of a new room, everybody.
    Nobody,
}

/// Filter for messages in rooms: no presence, typing or receipts.
pub(super) fn ours(members: SentMembers) -> FilterDefinition {
    with_timeline(TIMELINE, members)
}

/// Filter for the first sync of a device, of which nothing is answered.
pub(super) fn first() -> FilterDefinition {
    with_timeline(1, SentMembers::Speakers)
}

/// Filter for events of others, of which only the messages are read (see `wake`). No members and no state: the
/// homeserver sends each member once to a device, and that must be in a response that the SDK reads.
pub(super) fn of_others(own: &UserId) -> FilterDefinition {
    let mut timeline = RoomEventFilter::empty();
    timeline.limit = Some(UInt::from(TIMELINE));
    timeline.not_senders = vec![own.to_owned()];
    let mut account_data = RoomEventFilter::empty();
    // Where we have read to: we set it ourselves.
    account_data.not_types = vec!["m.fully_read".to_owned()];
    let mut room = RoomFilter::empty();
    room.timeline = timeline;
    room.state = RoomEventFilter::ignore_all();
    room.ephemeral = RoomEventFilter::ignore_all();
    room.account_data = account_data;
    let mut filter = FilterDefinition::empty();
    filter.room = room;
    filter.presence = Filter::ignore_all();
    filter
}

fn with_timeline(limit: u32, members: SentMembers) -> FilterDefinition {
    let members = match members {
        SentMembers::Speakers => LazyLoadOptions::Enabled { include_redundant_members: false },
        SentMembers::Nobody => LazyLoadOptions::Disabled,
    };
    let mut timeline = RoomEventFilter::empty();
    timeline.limit = Some(UInt::from(limit));
    timeline.lazy_load_options = members;
    let mut state = RoomEventFilter::empty();
    state.lazy_load_options = members;
    let mut room = RoomFilter::empty();
    room.timeline = timeline;
    room.state = state;
    room.ephemeral = RoomEventFilter::ignore_all();
    let mut filter = FilterDefinition::empty();
    filter.room = room;
    filter.presence = Filter::ignore_all();
    filter
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::json;

    #[test]
    fn the_filter_is_what_the_specification_calls_it() {
        let filter = serde_json::to_value(super::ours(super::SentMembers::Speakers)).expect("JSON");

        assert_eq!(
            filter,
            json!({
                "presence": {"types": []},
                "room": {
                    "ephemeral": {"types": []},
                    "state": {"lazy_load_members": true},
                    "timeline": {"lazy_load_members": true, "limit": 50},
                },
            })
        );
    }

    #[test]
    fn what_others_do_is_asked_for_without_what_a_response_for_the_sdk_must_bring() {
        let filter = serde_json::to_value(super::of_others(user_id!("@bot:example.org"))).expect("JSON");

        assert_eq!(
            filter,
            json!({
                "presence": {"types": []},
                "room": {
                    "account_data": {"not_types": ["m.fully_read"]},
                    "ephemeral": {"types": []},
                    "state": {"types": []},
                    "timeline": {"limit": 50, "not_senders": ["@bot:example.org"]},
                },
            })
        );
    }
}
