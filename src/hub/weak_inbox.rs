//! The inbox that a platform holds: a weak reference to the hub.
//!
//! A platform may keep its inbox for as long as it sends, and the hub holds the platform. A strong reference would keep
//! both, and with them the open store, alive for ever. Once the gateway has dropped the hub, each call returns an
//! error.

use std::sync::{Arc, Weak};

use talaria_platform::{BoxFuture, EventBatch, Inbox, InboxError, RoomInvite};

use super::Hub;
use crate::store::StoreError;

/// Inbox of one hub; fails once the hub is gone.
pub(super) struct WeakInbox(pub Weak<Hub>);

impl WeakInbox {
    fn hub(&self) -> Result<Arc<Hub>, InboxError> {
        self.0.upgrade().ok_or_else(|| InboxError(StoreError::Closed.to_string()))
    }
}

impl Inbox for WeakInbox {
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>> {
        Box::pin(async { self.hub()?.cursor().await })
    }

    fn accept(&self, batch: EventBatch) -> BoxFuture<'_, Result<(), InboxError>> {
        Box::pin(async { self.hub()?.accept(batch).await })
    }

    fn may_join(&self, invite: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>> {
        Box::pin(async { self.hub()?.may_join(invite).await })
    }

    fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>> {
        Box::pin(async { self.hub()?.parked().await })
    }

    fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>> {
        Box::pin(async { self.hub()?.note(key).await })
    }

    fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>> {
        Box::pin(async { self.hub()?.set_note(key, value).await })
    }
}
