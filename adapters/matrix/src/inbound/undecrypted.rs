//! Keeps messages whose keys are missing, retries them, and finally reports them as unreadable.
//!
//! A key may come a moment after the message, minutes later from a client that was busy, or out of the backup. The
//! inbox stores the rows; this file keeps their contents in memory, so that a new key finds the messages that it
//! opens.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::TimelineEvent;
use matrix_sdk::ruma::events::AnySyncTimelineEvent;
use matrix_sdk::ruma::serde::Raw;
use matrix_sdk::ruma::{OwnedRoomId, OwnedUserId};
use matrix_sdk::{RoomState, encryption};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use talaria_platform::{Backoff, EventBatch, EventId, PlatformError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::replay_guard::ReplayGuard;
use super::room_update::unseal;
use super::translate::{TranslatedEvent, unreadable};
use super::wake::SentCopies;
use super::wire::{self, MatrixEvent, MatrixEventKind};
use super::{SyncReader, now_ms, store_failed};

/// Messages that may wait at once.
const MOST: usize = 1_000;
/// Messages of one person that may wait: nobody shall push the others out. After the loss of a store, all messages of
/// a gap may be from one person.
const MOST_OF_ONE: usize = 500;
/// Pauses between retries of all waiting messages.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(30));
/// Messages from an earlier process are retried at least so long: a clock that jumped must not end it at once.
const GRACE: Duration = Duration::from_secs(30);

/// A row as the inbox stores it.
#[derive(Serialize, Deserialize)]
struct UndecryptedRow {
    room: OwnedRoomId,
    event: Raw<AnySyncTimelineEvent>,
    /// When it was first seen, in milliseconds of wall time, because that survives a restart.
    seen: u64,
}

/// A message that waits for its key.
#[derive(Clone)]
struct UndecryptedMessage {
    room: OwnedRoomId,
    event: Raw<AnySyncTimelineEvent>,
    sender: OwnedUserId,
    /// Id of the session that opens it.
    session: Option<String>,
    until: Instant,
    /// Order of arrival.
    number: u64,
}

/// Waiting messages, by the key of their row.
pub(super) struct UndecryptedQueue {
    waiting: Mutex<BTreeMap<String, UndecryptedMessage>>,
    added: Notify,
    /// Longest time that a message waits for its key.
    patience: Duration,
}

impl UndecryptedQueue {
    pub fn new(patience: Duration) -> Self {
        Self { waiting: Mutex::default(), added: Notify::new(), patience }
    }

    /// Queues a message and returns the row to park it with; `None` if too many wait.
    pub fn take_in(
        &self,
        room: &Room,
        happening: &MatrixEvent,
        event: &TimelineEvent,
    ) -> Option<(String, String)> {
        let key = format!("{} {}", room.room_id(), happening.id);
        let row =
            UndecryptedRow { room: room.room_id().to_owned(), event: event.raw().clone(), seen: now_ms() };
        let value = serde_json::to_string(&row).ok()?;
        if !self.add(&key, row, self.patience) {
            tracing::warn!(room = %room.room_id(), "too many messages cannot be decrypted: one is given up");
            return None;
        }
        tracing::debug!(room = %room.room_id(), event = %happening.id, "a message waits for its key");
        self.added.notify_one();
        Some((key, value))
    }

    /// Removes a message that was deleted, and returns its emptied row.
    pub fn take_out(&self, room: &Room, event: &EventId) -> Option<(String, String)> {
        let key = format!("{} {event}", room.room_id());
        let mut waiting = self.waiting.lock();
        waiting.remove(&key).map(|_| (key, String::new()))
    }

    /// Loads the rows of an earlier process; returns emptied rows for those that are of no use.
    fn load(&self, rows: Vec<(String, String)>, now: u64) -> Vec<(String, String)> {
        let mut useless = Vec::new();
        for (key, value) in rows {
            let row = serde_json::from_str::<UndecryptedRow>(&value).ok();
            let added = row.is_some_and(|row| {
                let waited = Duration::from_millis(now.saturating_sub(row.seen));
                self.add(&key, row, self.patience.saturating_sub(waited).max(GRACE.min(self.patience)))
            });
            if !added {
                useless.push((key, String::new()));
            }
        }
        useless
    }

    fn add(&self, key: &str, row: UndecryptedRow, patience: Duration) -> bool {
        let Some(MatrixEvent { sender, what: MatrixEventKind::Sealed { session, .. }, .. }) =
            wire::read(row.event.json().get())
        else {
            return false;
        };
        let mut waiting = self.waiting.lock();
        if waiting.contains_key(key) {
            return true;
        }
        let of_one = waiting.values().filter(|waiting| waiting.sender == sender).count();
        if waiting.len() >= MOST || of_one >= MOST_OF_ONE {
            return false;
        }
        let number = waiting.values().map(|waiting| waiting.number + 1).max().unwrap_or_default();
        let until = Instant::now() + patience;
        let UndecryptedRow { room, event, .. } = row;
        waiting.insert(key.to_owned(), UndecryptedMessage { room, event, sender, session, until, number });
        true
    }

    /// The messages that wait for one of these keys, or all of them; in order of arrival.
    fn choose(&self, keys: Option<&[(OwnedRoomId, String)]>) -> Vec<(String, UndecryptedMessage)> {
        let waiting = self.waiting.lock();
        let opened = |one: &UndecryptedMessage| match keys {
            Some(keys) => keys.iter().any(|(room, session)| {
                *room == one.room && one.session.as_ref().is_none_or(|id| id == session)
            }),
            None => true,
        };
        let mut chosen: Vec<_> = waiting
            .iter()
            .filter(|(_, waiting)| opened(waiting))
            .map(|(key, waiting)| (key.clone(), waiting.clone()))
            .collect();
        chosen.sort_by_key(|(_, waiting)| waiting.number);
        chosen
    }

    fn forget(&self, keys: &[(String, String)]) {
        let mut waiting = self.waiting.lock();
        for (key, _) in keys {
            waiting.remove(key);
        }
    }

    /// When the first message is given up; `None` if none waits.
    fn first_end(&self) -> Option<Instant> {
        let waiting = self.waiting.lock();
        waiting.values().map(|waiting| waiting.until).min()
    }
}

impl SyncReader<'_> {
    /// Retries waiting messages, whenever a key comes and from time to time. Ends only with an error.
    pub async fn reopen(&self) -> Result<(), PlatformError> {
        let inbox = &self.account.inbox;
        let useless = self.parked.load(inbox.parked().await.map_err(store_failed)?, now_ms());
        if !useless.is_empty() {
            inbox
                .accept(EventBatch { parked: useless, ..EventBatch::default() })
                .await
                .map_err(store_failed)?;
        }
        let encryption: encryption::Encryption = self.account.client.encryption();
        let keys = match encryption.room_keys_received_stream().await {
            Some(keys) => keys.left_stream(),
            None => futures_util::stream::pending().right_stream(),
        };
        let mut keys = pin!(keys);
        let mut backoff = PAUSES;
        let mut next = Instant::now();
        loop {
            let wanted = self.parked.first_end().map(|end| end.min(next));
            let due = async {
                match wanted {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(came) = keys.next() => {
                    // A receiver that lagged behind does not know which keys came.
                    let came = came.ok().map(|keys| {
                        keys.into_iter().map(|key| (key.room_id, key.session_id)).collect::<Vec<_>>()
                    });
                    self.try_again(came.as_deref()).await?;
                }
                () = self.parked.added.notified() => {
                    // A stream of new messages must not make us retry all of them all the time.
                    if wanted.is_none() {
                        backoff.reset();
                        next = Instant::now() + backoff.pause();
                    }
                }
                () = due => {
                    self.try_again(None).await?;
                    next = Instant::now() + backoff.advance();
                }
            }
        }
    }

    async fn try_again(&self, keys: Option<&[(OwnedRoomId, String)]>) -> Result<(), PlatformError> {
        let _alone = self.batch.lock().await;
        let sent = SentCopies::default();
        let (mut batch, mut replay_guard) = (EventBatch::default(), ReplayGuard::with(&sent));
        let chosen = self.parked.choose(keys);
        if chosen.is_empty() {
            return Ok(());
        }
        self.lookup.renew();
        let direct = self.known_direct_rooms().await?;
        for (key, waiting) in chosen {
            let room = self.account.client.get_room(&waiting.room);
            let Some(room) = room.filter(|room| room.state() == RoomState::Joined) else {
                batch.parked.push((key, String::new()));
                continue;
            };
            let about = self.about(&room, &direct).await.map_err(store_failed)?;
            let event = unseal(&room, waiting.event.clone()).await;
            match self.translate(&room, &about, &event).await? {
                TranslatedEvent::Tell(told) => {
                    batch.events.extend(self.once(&room, &about, &event, told, &mut replay_guard).await?);
                }
                TranslatedEvent::Drop => {}
                TranslatedEvent::Park(_) if Instant::now() < waiting.until => continue,
                TranslatedEvent::Park(happening) => {
                    tracing::warn!(room = %waiting.room, event = %happening.id, "a message could not be decrypted");
                    batch.events.extend(unreadable(&room, &about, &happening));
                }
            }
            batch.parked.push((key, String::new()));
        }
        if batch.parked.is_empty() {
            return Ok(());
        }
        batch.notes = replay_guard.into_notes();
        let done = batch.parked.clone();
        self.account.inbox.accept(batch).await.map_err(store_failed)?;
        self.parked.forget(&done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::owned_room_id;
    use serde_json::json;

    use super::*;

    const TEN: Duration = Duration::from_secs(600);

    fn row(event: usize, sender: &str, session: &str) -> (String, String) {
        let event = json!({"type": "m.room.encrypted", "event_id": format!("${event}"), "sender": sender,
            "content": {"session_id": session}});
        let row = json!({"room": "!r:example.org", "event": event, "seen": 1_000});
        (format!("!r:example.org {}", event["event_id"]), row.to_string())
    }

    fn key(session: &str) -> [(OwnedRoomId, String); 1] {
        [(owned_room_id!("!r:example.org"), session.to_owned())]
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_finds_what_it_opens_in_order() {
        let parked = UndecryptedQueue::new(TEN);
        let rows =
            (0..20).map(|event| row(event, "@ann:example.org", if event % 2 == 0 { "A" } else { "B" }));
        assert!(parked.load(rows.collect(), 2_000).is_empty());

        let opened = parked.choose(Some(&key("B")));
        assert_eq!(
            opened.iter().map(|(_, one)| one.number).collect::<Vec<_>>(),
            [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
        );
        assert_eq!(parked.choose(None).len(), 20);
        assert!(parked.choose(Some(&key("C"))).is_empty());

        parked.forget(&opened.into_iter().map(|(key, _)| (key, String::new())).collect::<Vec<_>>());
        assert_eq!(parked.choose(None).len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_pushes_the_others_out() {
        let parked = UndecryptedQueue::new(TEN);
        let flood = (0..MOST_OF_ONE + 10).map(|event| row(event, "@eve:example.org", "A"));
        let given_up = parked.load(flood.collect(), 2_000);

        assert_eq!(given_up.len(), 10);
        assert!(parked.load(vec![row(1_000, "@ann:example.org", "A")], 2_000).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waited_before_a_restart_waits_the_rest_but_never_nothing() {
        let end = |now: u64| {
            let parked = UndecryptedQueue::new(TEN);
            parked.load(vec![row(1, "@ann:example.org", "A")], now);
            parked.first_end().expect("one waits") - Instant::now()
        };
        assert_eq!(end(1_000 + 60_000), Duration::from_secs(540));
        assert_eq!(end(u64::MAX), GRACE);
        assert_eq!(end(0), TEN);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_that_mean_nothing_are_taken_out() {
        let parked = UndecryptedQueue::new(TEN);
        let plain =
            json!({"room": "!r:example.org", "seen": 1, "event": {"type": "m.room.message"}}).to_string();
        let useless = parked.load(vec![("a".to_owned(), "junk".to_owned()), ("b".to_owned(), plain)], 2_000);

        assert_eq!(useless, [("a".to_owned(), String::new()), ("b".to_owned(), String::new())]);
        assert!(parked.first_end().is_none());
    }
}
