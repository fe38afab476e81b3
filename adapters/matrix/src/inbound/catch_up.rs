//! Catches up at the start: reads the events that an earlier process may have left unread.
//!
//! The SDK stores its position before we see a response. So a crash in between leaves our own position behind the
//! SDK's, and a sync from ours through the SDK would return nothing: the SDK drops a response that it has seen. The
//! stretch between the two is therefore read past the SDK.

use matrix_sdk::ruma::api::client::sync::sync_events::v3::{Filter, Request};
use matrix_sdk::store::StateStoreDataKey;
use talaria_platform::{EventBatch, PlatformError, PlatformErrorKind};

use super::cursor::SyncCursor;
use super::retry::{RetryBackoff, insist, once};
use super::room_events::TimelineStart;
use super::wake::SentCopies;
use super::{SyncReader, filter, members, room_update, store_failed, sync};
use crate::error::{from_http, from_sdk, kind_of};
use crate::login::revoked;

impl SyncReader<'_> {
    /// Reads the unread stretch and returns the position to continue from.
    pub async fn start(&self) -> Result<String, PlatformError> {
        let kept = self.account.inbox.cursor().await.map_err(store_failed)?;
        let cursor = kept.and_then(|kept| SyncCursor::read(&self.account.own, &kept));
        let stored = self.account.client.state_store().get_kv_data(StateStoreDataKey::SyncToken).await;
        let stored =
            stored.map_err(|error| from_sdk(error.into()))?.and_then(|token| token.into_sync_token());
        // Without a position of our own everything up to now is history, even if the SDK has a position.
        let token = match stored {
            Some(token) if cursor.is_some() => token,
            Some(_) | None => self.arrive().await?,
        };
        match cursor {
            Some(cursor) if cursor == token => {}
            Some(_) if is_broken() => self.commit(EventBatch::default(), &token).await?,
            Some(cursor) => self.replay(&cursor, &token).await?,
            // The first start: earlier messages are not for us.
            None => self.commit(EventBatch::default(), &token).await?,
        }
        Ok(token)
    }

    /// The first sync of a device. We answer none of it; but the members of rooms may have changed since another
    /// device of ours looked.
    async fn arrive(&self) -> Result<String, PlatformError> {
        let response = sync::first(&self.account.client).await?;
        self.account.synced.send_replace(true);
        let direct = self.direct_rooms().await?;
        for room in self.account.client.joined_rooms() {
            let about = self.about(&room, &direct).await.map_err(store_failed)?;
            let here = members::all_here(&self.account.client, &room, &about, &response.next_batch).await?;
            let batch = EventBatch { events: here, ..EventBatch::default() };
            self.account.inbox.accept(batch).await.map_err(store_failed)?;
        }
        Ok(response.next_batch)
    }

    /// Reads everything after our own position, up to the SDK's and perhaps beyond; the core drops repeated events.
    async fn replay(&self, cursor: &str, token: &str) -> Result<(), PlatformError> {
        tracing::info!("reading the events again that were not committed");
        let client = &self.account.client;
        let mut request = Request::new();
        request.since = Some(cursor.to_owned());
        request.filter = Some(Filter::FilterDefinition(filter::ours(filter::SentMembers::Speakers)));
        let ask = || async { client.send(request.clone()).with_request_config(once()).await };
        let (mut patience, mut refused) = (RetryBackoff::default(), 0);
        let response = loop {
            let error = match insist("what was not committed", ask).await {
                Ok(response) => break response,
                Err(error) if kind_of(&error) == PlatformErrorKind::Fatal => {
                    return Err(revoked(from_http(error)));
                }
                Err(error) => error,
            };
            refused = if sync::is_position_refused(&error) { refused + 1 } else { 0 };
            if refused >= sync::REFUSALS {
                tracing::warn!(%error, "the homeserver does not know our position: events since then are missed");
                return self.give_up(cursor, token).await;
            }
            tokio::time::sleep(patience.next(None)).await;
        };
        let updates = room_update::unread(response.rooms, |room| client.get_room(room)).await;
        let from = TimelineStart { since: Some(cursor), away: true };
        let news = self.news(updates, from, &SentCopies::default()).await?;
        let batch = EventBatch { late: true, ..news };
        self.commit(batch, token).await
    }

    /// Continues without the events that cannot be read, and reports them as missed in every room, where a person may
    /// wait for an answer.
    pub async fn give_up(&self, cursor: &str, token: &str) -> Result<(), PlatformError> {
        let mut events = Vec::new();
        let direct = self.direct_rooms().await?;
        for room in self.account.client.joined_rooms() {
            let about = self.about(&room, &direct).await.map_err(store_failed)?;
            events.push(self.missed(&room, &about, cursor, 1));
        }
        self.commit(EventBatch { events, ..EventBatch::default() }, token).await
    }
}

/// Breaks the catch-up on purpose: with `TALARIA_BROKEN=replay` we trust the SDK's position, and the tests that kill
/// us in between must fail.
#[cfg(feature = "testing")]
fn is_broken() -> bool {
    std::env::var("TALARIA_BROKEN").is_ok_and(|broken| broken.split(',').any(|name| name == "replay"))
}

/// Always `false` without the feature `testing`.
#[cfg(not(feature = "testing"))]
fn is_broken() -> bool {
    false
}
