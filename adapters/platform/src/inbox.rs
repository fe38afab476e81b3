//! The adapter's only durable friend.

use crate::{BoxFuture, RoomEvent, RoomInvite};

/// What one response of the network brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventBatch {
    /// What happened, oldest first.
    pub events: Vec<RoomEvent>,
    /// What could not be read yet (for example not decrypted), as opaque rows of the adapter's own.
    /// They are kept until the adapter parks the same key with an empty value.
    pub parked: Vec<(String, String)>,
    /// Small values to keep, as [`set_note`](Inbox::set_note) does.
    pub notes: Vec<(String, String)>,
    /// The adapter's position after this batch; `None` leaves it where it was.
    pub cursor: Option<String>,
    /// Whether it all happened while we were not reading: before a start, or while the network was away. Nobody could
    /// be told then that they ask too much, so nothing of it is refused for that. Never `true` for what only came
    /// faster than it was read; and the adapter bounds how much there can be.
    pub late: bool,
}

/// Where an adapter puts what came, and keeps the little state it needs.
///
/// Made by the core for one account; the adapter never sees another account's state.
pub trait Inbox: Send + Sync {
    /// The position of the last accepted batch; `None` before the first.
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>>;

    /// Takes a batch over. When this returns `Ok`, all of it is on disk in one transaction,
    /// whatever happens to the process. On an error nothing of the batch was taken: stop reading
    /// and return the error from `run`, or offer the same batch again.
    ///
    /// Waits while the core is behind, which slows the adapter's reading down; that is intended.
    fn accept(&self, batch: EventBatch) -> BoxFuture<'_, Result<(), InboxError>>;

    /// Whether to follow an invitation. The adapter joins only after `true`; after `false` it declines or
    /// leaves it be, without a word. The decision is on record when this returns.
    ///
    /// Once it has joined, the adapter sends [`Joined`](crate::RoomEventKind::Joined) for everybody it finds in the
    /// room: whoever left before and came back while we were away is otherwise taken for gone.
    fn may_join(&self, invite: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>>;

    /// Everything that is still parked, oldest first.
    fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>>;

    /// A small value kept under `key` by [`set_note`](Inbox::set_note).
    fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>>;

    /// Keeps a small value durably, such as "this room was once encrypted". An empty one is forgotten.
    fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>>;
}

/// The store could not take or give something. The log has the cause.
#[derive(Debug, thiserror::Error)]
#[error("the store is not available: {0}")]
pub struct InboxError(pub String);
