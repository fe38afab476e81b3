//! Reads rooms: one sync after the other, each committed before the next.
//!
//! Our own position, committed together with the events, is the truth; the SDK's is not (see `catch_up`). One
//! response is one batch. `gap` reads the events that a response leaves out; messages that cannot be decrypted wait
//! in `undecrypted`; invitations wait in `invites`. `wake` waits for events of others, and keeps our own ones from
//! costing a sync each. `room_events` and `translate` turn the rest into events for the core. The pure files beneath
//! them (`wire`, `mention`, `text`) parse messages and trust none of them.

mod catch_up;
mod cursor;
mod cutoff;
mod event_lookup;
mod filter;
mod gap;
mod invites;
mod member_names;
mod members;
mod mention;
mod replay_guard;
mod retry;
mod room_events;
mod room_update;
mod sender_trust;
mod sync;
mod text;
mod time_budget;
mod translate;
mod undecrypted;
mod wake;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use matrix_sdk::ruma::{OwnedRoomId, RoomId};
use matrix_sdk::sync::SyncResponse;
use parking_lot::Mutex;
use talaria_platform::{CancellationToken, EventBatch, PlatformError, PlatformErrorKind};
use tokio::sync::Notify;

use crate::account::MatrixAccount;
use cursor::SyncCursor;
use event_lookup::EventLookup;
use filter::SentMembers;
use invites::PendingInvites;
use member_names::KnownFacts;
use retry::RetryBackoff;
use room_events::TimelineStart;
use sync::SyncFailure;
use undecrypted::UndecryptedQueue;
use wake::{SentCopies, SyncTurn};

/// Reads until `stop`.
pub(crate) async fn read(account: &MatrixAccount, stop: &CancellationToken) -> Result<(), PlatformError> {
    let reader = SyncReader {
        account,
        lookup: EventLookup::new(&account.own, account.written.clone()),
        parked: UndecryptedQueue::new(account.settings.unreadable_after),
        invites: PendingInvites::default(),
        entered: Notify::new(),
        plaintext: WarnedRooms::default(),
        batch: tokio::sync::Mutex::default(),
        facts: KnownFacts::default(),
    };
    // A batch that is dropped here was not committed, and will be read again.
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        read = reader.read() => read,
    }
}

/// Reads one account.
struct SyncReader<'a> {
    account: &'a MatrixAccount,
    lookup: EventLookup,
    parked: UndecryptedQueue,
    invites: PendingInvites,
    /// We have entered a room, and the SDK must hear of it.
    entered: Notify,
    /// Encrypted rooms where a plaintext message was ignored and logged.
    plaintext: WarnedRooms,
    /// Held while a batch is made and handed over: each batch has to know the state that the one before left.
    batch: tokio::sync::Mutex<()>,
    /// Names and direct chats that no response has changed since they were read.
    facts: KnownFacts,
}

impl SyncReader<'_> {
    /// Reads the stream, retries undecrypted messages and answers invitations. Ends only with an error.
    async fn read(&self) -> Result<(), PlatformError> {
        let since = self.start().await?;
        tokio::select! {
            read = self.follow_stream(since) => read,
            reopened = self.reopen() => reopened,
            answered = self.answer_invites() => answered,
        }
    }

    async fn follow_stream(&self, mut since: String) -> Result<(), PlatformError> {
        let mut patience = RetryBackoff::default();
        // The first response after a pause brings everything since, so it must not wait for more.
        let mut away = true;
        let mut refused = 0;
        loop {
            let (response, sent) = match self.next(&since, away).await {
                Ok(response) => response,
                Err(SyncFailure::Over(error)) => return Err(error),
                Err(SyncFailure::Away(after)) => {
                    self.account.away.store(true, Ordering::Relaxed);
                    if !patience.is_tried() {
                        tracing::warn!("the homeserver is away; it is asked again until it is back");
                    }
                    away = true;
                    tokio::time::sleep(patience.next(after)).await;
                    continue;
                }
                // A first refusal proves nothing: it may come from a proxy, or from a homeserver that is just
                // starting. And we start over only once in a row: a homeserver that does not know its own positions
                // is only asked again.
                Err(SyncFailure::Lost) if refused + 1 != sync::REFUSALS => {
                    refused = refused.saturating_add(1);
                    tokio::time::sleep(patience.next(None)).await;
                    continue;
                }
                // The homeserver was restored to an older state.
                Err(SyncFailure::Lost) => {
                    refused = refused.saturating_add(1);
                    let first = sync::first(&self.account.client).await?;
                    self.facts.forget_all();
                    self.give_up(&since, &first.next_batch).await?;
                    since = first.next_batch;
                    tokio::time::sleep(patience.next(None)).await;
                    continue;
                }
            };
            if patience.is_tried() {
                tracing::info!("the homeserver is back");
                patience.rest();
            }
            self.account.away.store(false, Ordering::Relaxed);
            refused = 0;
            since = self.take(response, &sent, &since, away).await?;
            away = false;
        }
    }

    /// The next response, and messages in it as they were sent. After a pause it is there already.
    async fn next(&self, since: &str, away: bool) -> Result<(SyncResponse, SentCopies), SyncFailure> {
        let turn = if away {
            SyncTurn::Fetch(SentCopies::default(), SentMembers::Speakers)
        } else {
            self.wait_for_others(since).await?
        };
        let (wait, sent, members) = match turn {
            SyncTurn::Wait => (true, SentCopies::default(), SentMembers::Speakers),
            SyncTurn::Fetch(sent, members) => (false, sent, members),
        };
        Ok((sync::next(&self.account.client, since, wait, members).await?, sent))
    }

    /// Commits one response and returns the position after it.
    async fn take(
        &self,
        response: SyncResponse,
        sent: &SentCopies,
        since: &str,
        away: bool,
    ) -> Result<String, PlatformError> {
        let SyncResponse { next_batch, rooms, account_data, .. } = response;
        self.account.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        if !rooms.invited.is_empty() {
            self.invites.invited(rooms.invited.keys().cloned());
        }
        let _alone = self.batch.lock().await;
        let from = TimelineStart { since: Some(since), away };
        let updates = room_update::processed(rooms);
        self.facts.forget_changed(&updates, &account_data);
        let news = self.news(updates, from, sent).await?;
        if next_batch != since {
            let batch = EventBatch { late: away, ..news };
            self.commit(batch, &next_batch).await?;
        }
        Ok(next_batch)
    }

    /// Hands a batch to the core together with our position after it.
    async fn commit(&self, batch: EventBatch, token: &str) -> Result<(), PlatformError> {
        let cursor = Some(SyncCursor::write(&self.account.own, token));
        self.account.inbox.accept(EventBatch { cursor, ..batch }).await.map_err(store_failed)
    }
}

/// Rooms that a warning was logged for.
#[derive(Default)]
struct WarnedRooms(Mutex<HashSet<OwnedRoomId>>);

impl WarnedRooms {
    /// Rooms that are remembered; beyond that, no warning is logged.
    const MOST: usize = 1_000;

    /// Whether this is the first warning for a room.
    fn first_in(&self, room: &RoomId) -> bool {
        let mut rooms = self.0.lock();
        rooms.len() < Self::MOST && rooms.insert(room.to_owned())
    }
}

/// Nothing was stored: the next run reads it again from the cursor.
fn store_failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Retry { after: None }, error)
}

/// Wall time in milliseconds. Used only for times that must survive a restart.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
