//! Reads rooms: one sync after the other, each committed before the next.
//!
//! Our own position, committed together with what came, is the truth; the SDK's is not (see `start`). One response
//! is one batch. What a response leaves out is read by `gap`; what cannot be decrypted waits in `parked`; invitations
//! wait at the `doors`. `room` and `translate` turn the rest into events for the core, and the pure files beneath them
//! (`wire`, `mention`, `text`) read what people wrote, none of it trusted.

mod allowance;
mod cursor;
mod doors;
mod filter;
mod gap;
mod heard;
mod history;
mod lookup;
mod mention;
mod parked;
mod patience;
mod people;
mod proof;
mod room;
mod start;
mod sync;
mod text;
mod translate;
mod update;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use matrix_sdk::ruma::{OwnedRoomId, RoomId};
use matrix_sdk::sync::SyncResponse;
use talaria_platform::{Batch, CancellationToken, Error, ErrorKind};

use crate::account::Account;
use doors::Doors;
use lookup::Lookup;
use parked::Parked;
use patience::Patience;
use room::From;
use sync::Failure;

/// Reads until `stop`.
pub(crate) async fn read(account: &Account, stop: &CancellationToken) -> Result<(), Error> {
    let reader = Reader {
        account,
        lookup: Lookup::new(&account.own),
        parked: Parked::new(account.settings.unreadable_after),
        doors: Doors::default(),
        plaintext: Warned::default(),
        batch: tokio::sync::Mutex::default(),
    };
    // Whatever is dropped here was not committed, and will be read again.
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        read = reader.read() => read,
    }
}

/// One account being read.
struct Reader<'a> {
    account: &'a Account,
    lookup: Lookup,
    parked: Parked,
    doors: Doors,
    /// Encrypted rooms where somebody wrote in the clear.
    plaintext: Warned,
    /// Held while a batch is made and handed over: what one of them remembers, the next has to know.
    batch: tokio::sync::Mutex<()>,
}

impl Reader<'_> {
    /// Ends only with an error.
    async fn read(&self) -> Result<(), Error> {
        let since = self.start().await?;
        tokio::select! {
            read = self.follow_stream(since) => read,
            reopened = self.reopen() => reopened,
            answered = self.answer_doors() => answered,
        }
    }

    async fn follow_stream(&self, mut since: String) -> Result<(), Error> {
        let mut patience = Patience::default();
        // The first response after a pause brings what happened meanwhile, and must not wait for more.
        let mut away = true;
        let mut refused = 0;
        loop {
            let response = match sync::next(&self.account.client, &since, !away).await {
                Ok(response) => response,
                Err(Failure::Over(error)) => return Err(error),
                Err(Failure::Away(after)) => {
                    self.account.away.store(true, Ordering::Relaxed);
                    if !patience.is_tried() {
                        tracing::warn!("the homeserver is away; it is asked again until it is back");
                    }
                    away = true;
                    tokio::time::sleep(patience.next(after)).await;
                    continue;
                }
                // Not at the first word: it may be a proxy's, or a homeserver's that is just starting. And not more
                // than once in a row: one that does not know its own positions is only asked again.
                Err(Failure::Lost) if refused + 1 != sync::REFUSALS => {
                    refused = refused.saturating_add(1);
                    tokio::time::sleep(patience.next(None)).await;
                    continue;
                }
                // Somebody has put the homeserver back to an older state.
                Err(Failure::Lost) => {
                    refused = refused.saturating_add(1);
                    let first = sync::first(&self.account.client).await?;
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
            since = self.take(response, &since, away).await?;
            away = false;
        }
    }

    /// Takes one response over and gives the position after it.
    async fn take(&self, response: SyncResponse, since: &str, away: bool) -> Result<String, Error> {
        let SyncResponse { next_batch, rooms, .. } = response;
        self.account.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        if !rooms.invited.is_empty() {
            self.doors.invited(rooms.invited.keys().cloned());
        }
        let _alone = self.batch.lock().await;
        let news = self.news(update::processed(rooms), From { since: Some(since), away }).await?;
        if next_batch != since {
            let batch = Batch { late: away, ..news };
            self.commit(batch, &next_batch).await?;
        }
        Ok(next_batch)
    }
}

/// Rooms that were warned of.
#[derive(Default)]
struct Warned(Mutex<HashSet<OwnedRoomId>>);

impl Warned {
    /// Rooms that are remembered; beyond that a room is simply not warned of.
    const MOST: usize = 1_000;

    /// Whether this is the first time for a room.
    fn first_in(&self, room: &RoomId) -> bool {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.len() < Self::MOST && rooms.insert(room.to_owned())
    }
}

/// Nothing was taken: the next run reads it again from the cursor.
fn store_failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Retry { after: None }, error)
}

/// Wall time in milliseconds. Only what must survive a restart is measured by it.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
