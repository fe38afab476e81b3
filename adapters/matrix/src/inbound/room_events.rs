//! Turns the update of one room into events for the core.

use std::collections::HashSet;
use std::sync::Arc;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::TimelineEvent;
use matrix_sdk::ruma::OwnedRoomId;
use matrix_sdk::ruma::events::direct::DirectEventContent;
use talaria_platform::{EventBatch, EventId, PlatformError, RoomEvent, RoomEventKind};

use super::cutoff::{cut_before_arrival, cut_old, has_arrival};
use super::replay_guard::{ReplayGuard, ReplayVerdict};
use super::room_update::RoomUpdate;
use super::translate::{RoomContext, TranslatedEvent, moved, unreadable};
use super::wake::SentCopies;
use super::wire::{self, MatrixEventKind, MemberChange};
use super::{SyncReader, gap, members, store_failed};
use crate::error::from_sdk;

/// The point where a response continues.
#[derive(Clone, Copy)]
pub(super) struct TimelineStart<'a> {
    /// The position of the request; without one there is no gap that could be filled.
    pub since: Option<&'a str>,
    /// Whether we were away before, so that old messages may come.
    pub away: bool,
}

impl SyncReader<'_> {
    /// Reads the updates of all rooms, in the order of the response.
    pub async fn news(
        &self,
        updates: Vec<RoomUpdate>,
        from: TimelineStart<'_>,
        sent: &SentCopies,
    ) -> Result<EventBatch, PlatformError> {
        self.lookup.renew();
        let direct = if updates.is_empty() { Arc::default() } else { self.known_direct_rooms().await? };
        let (mut news, mut replay_guard) = (EventBatch::default(), ReplayGuard::with(sent));
        for update in updates {
            let Some(room) = self.account.client.get_room(&update.room) else { continue };
            let about = self.about(&room, &direct).await.map_err(store_failed)?;
            if update.joined {
                self.joined(&room, &about, update, from, &mut news, &mut replay_guard).await?;
            } else {
                news.events.extend(members::all_left(&room, &about, &self.account.own, &update).await);
            }
        }
        news.notes = replay_guard.into_notes();
        Ok(news)
    }

    async fn joined(
        &self,
        room: &Room,
        about: &RoomContext,
        update: RoomUpdate,
        from: TimelineStart<'_>,
        news: &mut EventBatch,
        replay_guard: &mut ReplayGuard<'_>,
    ) -> Result<(), PlatformError> {
        let own = &self.account.own;
        let RoomUpdate { limited, before, mut events, state, .. } = update;
        let (mut missed, mut open) = (0, false);
        if limited
            && !has_arrival(own, &events)
            && let (Some(before), Some(since)) = (&before, from.since)
        {
            let gap = gap::fill(room, own, before, since).await?;
            (missed, open) = (gap.missed, gap.open);
            events.splice(..0, gap.events);
        }
        // We have just come: report the members. We missed nothing, because we were not in the room.
        if let Some(arrival) = cut_before_arrival(own, &mut events) {
            (missed, open) = (0, false);
            news.events.extend(members::all_here(&self.account.client, room, about, &arrival).await?);
        }
        let old = if from.away || limited { cut_old(own, &mut events) } else { 0 };
        if missed + old > 0 {
            let first = events.first().and_then(TimelineEvent::event_id).map(|id| id.to_string());
            let mark = before.or(first).or(from.since.map(str::to_owned)).unwrap_or_default();
            news.events.push(self.missed(room, about, &mark, missed + old));
        }
        for event in &events {
            match self.translate(room, about, event).await? {
                TranslatedEvent::Tell(told) => {
                    let Some(event) = self.once(room, about, event, told, replay_guard).await? else {
                        continue;
                    };
                    // A deleted message need not be decrypted any more, and must not be answered.
                    if let RoomEventKind::Deleted { of } = &event.kind {
                        news.parked.extend(self.parked.take_out(room, of));
                    }
                    news.events.push(event);
                }
                TranslatedEvent::Park(happening) => match self.parked.take_in(room, &happening, event) {
                    Some(row) => news.parked.push(row),
                    None => news.events.extend(unreadable(room, about, &happening)),
                },
                TranslatedEvent::Drop => {}
            }
        }
        // Only the state shows who left in a gap that stays open.
        if open {
            news.events.extend(state.iter().filter_map(|json| gone(room, about, json)));
        }
        Ok(())
    }

    /// The event for the core, unless it is a replay; see `replay_guard`.
    pub async fn once(
        &self,
        room: &Room,
        about: &RoomContext,
        event: &TimelineEvent,
        told: RoomEvent,
        replay_guard: &mut ReplayGuard<'_>,
    ) -> Result<Option<RoomEvent>, PlatformError> {
        match self.times_heard(room, event, &told, replay_guard).await? {
            ReplayVerdict::First => Ok(Some(told)),
            ReplayVerdict::Again | ReplayVerdict::Deleted => Ok(None),
            // A message to others needs no answer. An edit does: its author believes that we have read it.
            ReplayVerdict::Unknown if matches!(&told.kind, RoomEventKind::Message(message) if !message.addressed) => {
                Ok(None)
            }
            ReplayVerdict::Unknown => {
                let Some(sender) = event.sender() else { return Ok(None) };
                let asked = moved(room, about, told.id, &sender, RoomEventKind::Unreadable);
                Ok(Some(RoomEvent { place: told.place, ..asked }))
            }
        }
    }

    /// Reports that messages of a room can no longer be read. The id is made from the position, so that the core
    /// recognises a repetition.
    pub fn missed(&self, room: &Room, about: &RoomContext, mark: &str, count: u64) -> RoomEvent {
        let id = EventId::new(format!("missed {mark}"));
        moved(room, about, id, &self.account.own, RoomEventKind::Missed { count })
    }

    /// The rooms that our own account marks as direct chats.
    pub async fn direct_rooms(&self) -> Result<DirectRooms, PlatformError> {
        let content = self.account.client.account().account_data::<DirectEventContent>().await;
        let content = content.map_err(from_sdk)?.and_then(|raw| raw.deserialize().ok()).unwrap_or_default();
        Ok(DirectRooms(content.0.into_values().flatten().collect()))
    }
}

/// The rooms that our own account marks as direct chats.
#[derive(Default)]
pub(super) struct DirectRooms(HashSet<OwnedRoomId>);

impl DirectRooms {
    /// Whether a room is a direct chat now: marked as one, and still with two members. A third person did not see it
    /// begin.
    pub fn has(&self, room: &Room) -> bool {
        self.0.contains(room.room_id()) && room.active_members_count() <= 2
    }
}

/// Reports a person who left the room, from a state event.
fn gone(room: &Room, about: &RoomContext, json: &str) -> Option<RoomEvent> {
    let event = wire::read(json)?;
    match event.what {
        MatrixEventKind::Member { who, change: MemberChange::Went } => {
            Some(moved(room, about, EventId::new(event.id.as_str()), &who, RoomEventKind::Left))
        }
        _ => None,
    }
}
