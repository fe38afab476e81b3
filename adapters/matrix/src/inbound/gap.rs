//! Reads the events that a sync left out, back to our own position.
//!
//! A homeserver sends only the newest events of a room and says that there are more. We ask for those page by page,
//! backwards, and stop at our own position: beyond it we would answer a room's whole history.

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::TimelineEvent;
use matrix_sdk::ruma::api::client::message::get_message_events::v3::Request;
use matrix_sdk::ruma::events::AnyTimelineEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{UserId, uint};
use talaria_platform::{PlatformError, PlatformErrorKind};

use super::retry::{FAULTS, insist_on_room, once};
use super::room_update::unseal;
use super::time_budget::TimeBudget;
use super::wire::{self, MatrixEvent, MatrixEventKind, MemberChange};
use crate::error::{from_http, kind_of};

/// Events of one room that are read at most. After an absence that long nobody needs an answer to each.
const MOST: usize = 500;
/// Pages that are read at most: those beyond `MOST` only to count the missed messages.
const PAGES: usize = 25;

/// Contents of a gap.
#[derive(Default)]
pub(super) struct TimelineGap {
    /// The newest `MOST` events, oldest first.
    pub events: Vec<TimelineEvent>,
    /// Number of messages that were left out, at least.
    pub missed: u64,
    /// Whether the gap is not closed: changes of members in there are unknown.
    pub open: bool,
}

/// Reads from `from` back to `to`, or to our join.
pub(super) async fn fill(
    room: &Room,
    own: &UserId,
    from: &str,
    to: &str,
) -> Result<TimelineGap, PlatformError> {
    let mut found = GapEvents { newest: Vec::new(), missed: 0, arrived: false };
    let mut from = from.to_owned();
    let mut open = true;
    for _ in 0..PAGES {
        let mut request = Request::backward(room.room_id().to_owned()).from(from.clone());
        request.to = Some(to.to_owned());
        request.limit = uint!(100);
        let ask = || async { room.client().send(request.clone()).with_request_config(once()).await };
        let page = match insist_on_room(
            &room.client(),
            "a page of history",
            FAULTS,
            &TimeBudget::endless(),
            ask,
        )
        .await
        {
            Ok(page) => page,
            Err(error) if kind_of(&error) == PlatformErrorKind::Fatal => return Err(from_http(error)),
            Err(error) => {
                tracing::warn!(room = %room.room_id(), %error, "the events of a gap in a room cannot be read");
                // The homeserver said that there are more events, but not how many.
                found.missed = found.missed.max(1);
                break;
            }
        };
        for event in page.chunk {
            found.take(own, event);
        }
        match page.end {
            Some(end) if !found.arrived && end != from => from = end,
            Some(_) | None => {
                open = false;
                break;
            }
        }
    }
    let GapEvents { newest, mut missed, .. } = found;
    if open {
        missed = missed.max(1);
    }
    let mut events = Vec::with_capacity(newest.len());
    for event in newest.into_iter().rev() {
        events.push(unseal(room, event.cast()).await);
    }
    Ok(TimelineGap { events, missed, open })
}

/// Events found so far, reading backwards.
struct GapEvents {
    /// Newest first.
    newest: Vec<Raw<AnyTimelineEvent>>,
    missed: u64,
    /// Whether our own join was found: everything before it is not for us.
    arrived: bool,
}

impl GapEvents {
    fn take(&mut self, own: &UserId, event: Raw<AnyTimelineEvent>) {
        if self.arrived {
            return;
        }
        // As the homeserver sent it, not decrypted.
        let Some(happening) = wire::read(event.json().get()) else { return };
        self.arrived = is_arrival(own, &happening);
        if self.newest.len() < MOST || self.arrived {
            self.newest.push(event);
        } else if is_message_to(own, &happening) {
            self.missed += 1;
        }
    }
}

/// Whether an event is our own join.
pub(super) fn is_arrival(own: &UserId, event: &MatrixEvent) -> bool {
    matches!(&event.what, MatrixEventKind::Member { who, change: MemberChange::Came } if who == own)
}

/// Whether an event is a message of another person, as far as that is visible without decryption.
pub(super) fn is_message_to(own: &UserId, event: &MatrixEvent) -> bool {
    match &event.what {
        MatrixEventKind::Said(_) | MatrixEventKind::Sealed { edit: false, .. } => event.sender != own,
        MatrixEventKind::Edited { .. }
        | MatrixEventKind::Deleted { .. }
        | MatrixEventKind::Reacted { .. }
        | MatrixEventKind::Member { .. }
        | MatrixEventKind::Upgraded { .. }
        | MatrixEventKind::Sealed { edit: true, .. }
        | MatrixEventKind::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;
    use serde_json::{Value, json};

    use super::*;

    fn found(events: impl IntoIterator<Item = Value>) -> GapEvents {
        let mut found = GapEvents { newest: Vec::new(), missed: 0, arrived: false };
        for event in events {
            let event = Raw::from_json_string(event.to_string()).expect("JSON");
            found.take(user_id!("@bot:example.org"), event);
        }
        found
    }

    fn said(id: usize, sender: &str) -> Value {
        json!({"type": "m.room.encrypted", "event_id": format!("${id}"), "sender": sender, "content": {}})
    }

    fn joined(before: &str) -> Value {
        json!({"type": "m.room.member", "event_id": "$join", "sender": "@bot:example.org",
            "state_key": "@bot:example.org", "content": {"membership": "join"},
            "unsigned": {"prev_content": {"membership": before}}})
    }

    #[test]
    fn reading_back_ends_where_we_came_in() {
        let history = [said(3, "@ann:example.org"), joined("invite"), said(2, "@ann:example.org")];
        let found = found(history);

        assert!(found.arrived);
        assert_eq!(found.newest.len(), 2);
        assert_eq!(found.missed, 0);
    }

    #[test]
    fn a_new_name_of_ours_is_no_arrival() {
        let found = found([said(3, "@ann:example.org"), joined("join"), said(2, "@ann:example.org")]);

        assert!(!found.arrived);
        assert_eq!(found.newest.len(), 3);
    }

    #[test]
    fn beyond_the_bound_only_messages_of_others_are_counted() {
        let many = (0..MOST).map(|id| said(id, "@ann:example.org"));
        let beyond =
            [said(1001, "@ann:example.org"), said(1002, "@bot:example.org"), joined("join"), json!("junk")];
        let found = found(many.chain(beyond));

        assert_eq!(found.newest.len(), MOST);
        assert_eq!(found.missed, 1);
    }
}
