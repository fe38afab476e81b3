//! Cuts the part of a room's timeline that is too old for us. Pure.

use matrix_sdk::deserialized_responses::TimelineEvent;
use matrix_sdk::ruma::UserId;

use super::gap::{is_arrival, is_message_to};
use super::wire::{self, MatrixEvent, MatrixEventKind};

/// Messages older than this are not answered when we come back: nobody waits for an answer any more.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Whether our own join is among these events.
pub(super) fn has_arrival(own: &UserId, events: &[TimelineEvent]) -> bool {
    events.iter().any(|event| wire::of(event).is_some_and(|event| is_arrival(own, &event)))
}

/// Removes everything before our join, and the join itself; returns its id, if there is one. If we joined more than
/// once, the last join counts.
pub(super) fn cut_before_arrival(own: &UserId, events: &mut Vec<TimelineEvent>) -> Option<String> {
    let arrival =
        events.iter().rposition(|event| wire::of(event).is_some_and(|event| is_arrival(own, &event)))?;
    events.drain(..=arrival).next_back()?.event_id().map(|id| id.to_string())
}

/// Removes messages that are older than a day by the homeserver's clock, and returns how many of them were from
/// others. Membership changes and deletions stay: they remain true however old they are.
pub(super) fn cut_old(own: &UserId, events: &mut Vec<TimelineEvent>) -> u64 {
    let mut old = 0;
    events.retain(|event| {
        let Some(event) = wire::of(event) else { return false };
        let is_old = is_old(&event);
        if is_old && is_message_to(own, &event) {
            old += 1;
        }
        !is_old
    });
    old
}

fn is_old(event: &MatrixEvent) -> bool {
    match event.what {
        MatrixEventKind::Said(_)
        | MatrixEventKind::Edited { .. }
        | MatrixEventKind::Reacted { .. }
        | MatrixEventKind::Sealed { .. } => event.age.is_some_and(|age| age > DAY_MS),
        MatrixEventKind::Deleted { .. }
        | MatrixEventKind::Member { .. }
        | MatrixEventKind::Upgraded { .. }
        | MatrixEventKind::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::serde::Raw;
    use matrix_sdk::ruma::user_id;
    use serde_json::{Value, json};

    use super::*;

    const DAY: u64 = DAY_MS;

    fn timeline(events: &[Value]) -> Vec<TimelineEvent> {
        let raw = |event: &Value| Raw::from_json_string(event.to_string()).expect("JSON");
        events.iter().map(|event| TimelineEvent::from_plaintext(raw(event))).collect()
    }

    fn ids(events: &[TimelineEvent]) -> Vec<String> {
        events.iter().filter_map(TimelineEvent::event_id).map(|id| id.to_string()).collect()
    }

    fn own() -> &'static UserId {
        user_id!("@bot:example.org")
    }

    fn said(id: &str, sender: &str, age: Value) -> Value {
        json!({"type": "m.room.message", "event_id": id, "sender": sender, "unsigned": {"age": age},
            "content": {"msgtype": "m.text", "body": "hi"}})
    }

    fn member(id: &str, who: &str, membership: &str, before: &str) -> Value {
        json!({"type": "m.room.member", "event_id": id, "sender": "@ann:example.org", "state_key": who,
            "content": {"membership": membership},
            "unsigned": {"age": 9 * DAY, "prev_content": {"membership": before}}})
    }

    #[test]
    fn what_was_said_before_we_came_is_not_for_us() {
        let mut events = timeline(&[
            said("$1", "@ann:example.org", json!(1)),
            member("$2", "@bot:example.org", "join", "invite"),
            said("$3", "@ann:example.org", json!(1)),
            member("$4", "@bot:example.org", "leave", "join"),
            member("$5", "@bot:example.org", "join", "invite"),
            member("$6", "@bot:example.org", "join", "join"),
            member("$7", "@bob:example.org", "join", "leave"),
            said("$8", "@ann:example.org", json!(1)),
        ]);
        assert!(has_arrival(own(), &events));
        assert_eq!(cut_before_arrival(own(), &mut events).as_deref(), Some("$5"));
        assert_eq!(ids(&events), ["$6", "$7", "$8"]);

        assert!(!has_arrival(own(), &events));
        assert_eq!(cut_before_arrival(own(), &mut events), None);
        assert_eq!(ids(&events), ["$6", "$7", "$8"]);
    }

    #[test]
    fn only_messages_grow_old_and_only_by_the_homeservers_clock() {
        let mut events = timeline(&[
            said("$old", "@ann:example.org", json!(DAY + 1)),
            said("$own", "@bot:example.org", json!(DAY + 1)),
            member("$left", "@ann:example.org", "leave", "join"),
            json!({"type": "m.room.redaction", "event_id": "$gone", "sender": "@ann:example.org",
                "content": {"redacts": "$1"}, "unsigned": {"age": 9 * DAY}}),
            said("$edge", "@ann:example.org", json!(DAY)),
            said("$future", "@ann:example.org", json!(-5)),
            said("$unknown", "@ann:example.org", json!("old")),
        ]);
        assert_eq!(cut_old(own(), &mut events), 1);
        assert_eq!(ids(&events), ["$left", "$gone", "$edge", "$future", "$unknown"]);
    }
}
