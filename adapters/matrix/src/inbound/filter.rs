//! Sync filters: the events that we ask a homeserver for.

use matrix_sdk::ruma::UInt;
use matrix_sdk::ruma::api::client::filter::{
    Filter, FilterDefinition, LazyLoadOptions, RoomEventFilter, RoomFilter,
};

/// Events of one room in one response; `gap` reads the others page by page.
const TIMELINE: u32 = 50;

/// Filter for messages in rooms: no presence, typing or receipts, and only those members who speak.
pub(super) fn ours() -> FilterDefinition {
    with_timeline(TIMELINE)
}

/// Filter for the first sync of a device, of which nothing is answered.
pub(super) fn first() -> FilterDefinition {
    with_timeline(1)
}

fn with_timeline(limit: u32) -> FilterDefinition {
    let members = LazyLoadOptions::Enabled { include_redundant_members: false };
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
    use serde_json::json;

    #[test]
    fn the_filter_is_what_the_specification_calls_it() {
        let filter = serde_json::to_value(super::ours()).expect("JSON");

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
}
