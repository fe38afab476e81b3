//! What a platform holds of the hub.
//!
//! A platform may keep its inbox for as long as it sends, and the hub knows the platform. If it were the hub itself,
//! the two would keep each other, and with them the store open, for ever. So it is a way in that leads nowhere once
//! the gateway has let go of the hub.

use std::sync::{Arc, Weak};

use talaria_platform::{BoxFuture, EventBatch, Inbox, InboxError, RoomInvite};

use super::Hub;
use crate::store::StoreError;

/// A way to a hub.
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
