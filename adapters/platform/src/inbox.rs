//! Durable storage that the core gives an adapter: accepted events, the cursor, small values.

use crate::{BoxFuture, RoomEvent, RoomInvite};

/// Events and state from one response of the network; accepted as one transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventBatch {
    /// Events, oldest first.
    pub events: Vec<RoomEvent>,
    /// Events that could not be read yet (for example not decrypted), as opaque rows of the adapter's own. The core
    /// keeps a row until the adapter parks its key with an empty value.
    pub parked: Vec<(String, String)>,
    /// Small values to keep, as [`set_note`](Inbox::set_note) does.
    pub notes: Vec<(String, String)>,
    /// The adapter's position after this batch; `None` leaves it where it was.
    pub cursor: Option<String>,
    /// Whether all of it happened while we were not reading: before a start, or while the network was away. Nobody
    /// could be told then that they ask too much, so the core refuses none of it for that (limits per person, limit
    /// of waiting prompts). Never set this for events that only came faster than they were read. The adapter bounds
    /// how many events there can be.
    pub late: bool,
}

/// Stores an adapter's events and the little state that it needs.
///
/// Made by the core for one account; the adapter never sees another account's state.
pub trait Inbox: Send + Sync {
    /// The position of the last accepted batch; `None` before the first.
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>>;

    /// Stores a batch. When this returns `Ok`, all of it is on disk in one transaction, and stays there if the
    /// process dies. On an error nothing of the batch was stored: stop reading and return the error from `run`, or offer
    /// the same batch again.
    ///
    /// Waits while the core is behind. That slows the adapter's reading down, as intended.
    fn accept(&self, batch: EventBatch) -> BoxFuture<'_, Result<(), InboxError>>;

    /// Decides whether to follow an invitation. The adapter joins only after `true`; after `false` it declines or
    /// ignores the invitation and posts nothing. The decision is on record when this returns.
    ///
    /// Once it has joined, the adapter sends [`Joined`](crate::RoomEventKind::Joined) for everybody it finds in the
    /// room: otherwise the core still counts a person as gone who left before and came back while we were away.
    fn may_join(&self, invite: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>>;

    /// All rows that are still parked, oldest first.
    fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>>;

    /// The small value stored under `key` by [`set_note`](Inbox::set_note).
    fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>>;

    /// Stores a small value durably, such as "this room was once encrypted". An empty value deletes it.
    fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>>;
}

/// The store could not write or read. The log has the cause.
#[derive(Debug, thiserror::Error)]
#[error("the store is not available: {0}")]
pub struct InboxError(pub String);
