//! The SDK's store of keys with a cache in front of it.
//!
//! For each message the SDK loads and decodes all devices of everybody in the room several times, and after each
//! response of the homeserver it writes its account and its position, changed or not. So [`CachedCryptoStore`] keeps
//! what it has read until it is written ([`ReadCache`]), and leaves out a write that would change nothing. Whatever
//! does change is written before the SDK goes on, as without the cache: a key must be on disk before the homeserver
//! sees its public half, and a ratchet before the message that it encrypted.
//!
//! Only this process writes to the store; the lock on the account's folder sees to that.

mod account_digest;
mod forwarding;
mod read_cache;

use std::collections::HashMap;
use std::sync::Arc;

use matrix_sdk::SqliteCryptoStore;
use matrix_sdk::ruma::{DeviceId, OwnedDeviceId, UserId};
use matrix_sdk_base::crypto::store::types::{Changes, PendingChanges, TrackedUser};
use matrix_sdk_base::crypto::store::{CryptoStoreError, DynCryptoStore, GossipRequest, IntoCryptoStore as _};
use matrix_sdk_base::crypto::{Account, DeviceData, UserIdentityData};
use parking_lot::Mutex;
use talaria_platform::spawn_task;

use account_digest::AccountDigest;
use read_cache::ReadCache;

type Result<T> = std::result::Result<T, CryptoStoreError>;

/// A crypto store that reads and writes less. `forwarding` implements the SDK's trait for it.
#[derive(Debug)]
pub(crate) struct CachedCryptoStore {
    /// The store on disk.
    disk: Arc<DynCryptoStore>,
    cache: Arc<ReadCache>,
    /// The account as it is on disk; `None` if that is unknown.
    account: Mutex<Option<AccountDigest>>,
}

impl CachedCryptoStore {
    pub fn new(disk: SqliteCryptoStore) -> Self {
        Self { disk: disk.into_crypto_store(), cache: Arc::default(), account: Mutex::default() }
    }

    async fn account(&self) -> Result<Option<Account>> {
        let account = self.disk.load_account().await?;
        *self.account.lock() = account.as_ref().and_then(AccountDigest::of);
        Ok(account)
    }

    /// Writes the account if it differs from the one on disk. The SDK hands it over after each response.
    async fn save_account(&self, changes: PendingChanges) -> Result<()> {
        let digest = changes.account.as_ref().and_then(AccountDigest::of);
        if changes.account.is_some() {
            let mut known = self.account.lock();
            if digest.is_some() && *known == digest {
                return Ok(());
            }
            // Until the write is done, nobody knows what is on disk; and it may be cancelled.
            *known = None;
        }
        self.disk.save_pending_changes(changes).await?;
        if digest.is_some() {
            *self.account.lock() = digest;
        }
        Ok(())
    }

    async fn save(&self, mut changes: Changes) -> Result<()> {
        // A position alone is not worth a write: only sliding sync reads it, which we do not use.
        let position = changes.next_batch_token.take();
        if changes.is_empty() {
            return Ok(());
        }
        changes.next_batch_token = position;
        let Changes { devices, identities, key_requests, .. } = &changes;
        let is_uncached = devices.is_empty()
            && identities.new.is_empty()
            && identities.changed.is_empty()
            && key_requests.is_empty();
        if is_uncached {
            return self.disk.save_changes(changes).await;
        }
        self.write_cached(move |disk| async move { disk.save_changes(changes).await }).await
    }

    /// Writes something that the cache may have. In a task: if the SDK stops waiting, the database still finishes,
    /// and the cache must not keep what it read in between.
    async fn write_cached<F>(&self, write: impl FnOnce(Arc<DynCryptoStore>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (writing, work) = (ReadCache::begin_write(&self.cache), write(self.disk.clone()));
        let task = spawn_task("matrix-keys", async move {
            let written = work.await;
            drop(writing);
            written
        });
        task.await.map_err(CryptoStoreError::backend)?
    }

    async fn devices(&self, user: &UserId) -> Result<HashMap<OwnedDeviceId, DeviceData>> {
        if let Some(devices) = self.cache.devices(user) {
            return Ok(devices);
        }
        let ticket = self.cache.ticket();
        let devices = self.disk.get_user_devices(user).await?;
        self.cache.keep_devices(ticket, user, &devices);
        Ok(devices)
    }

    /// One device. Not a reason to read all others of its owner, who may have very many.
    async fn device(&self, user: &UserId, device: &DeviceId) -> Result<Option<DeviceData>> {
        match self.cache.device(user, device) {
            Some(known) => Ok(known),
            None => self.disk.get_device(user, device).await,
        }
    }

    async fn identity(&self, user: &UserId) -> Result<Option<UserIdentityData>> {
        if let Some(identity) = self.cache.identity(user) {
            return Ok(identity);
        }
        let ticket = self.cache.ticket();
        let identity = self.disk.get_user_identity(user).await?;
        self.cache.keep_identity(ticket, user, identity.as_ref());
        Ok(identity)
    }

    async fn tracked_users(&self) -> Result<Vec<TrackedUser>> {
        if let Some(users) = self.cache.tracked_users() {
            return Ok(users);
        }
        let ticket = self.cache.ticket();
        let users = self.disk.load_tracked_users().await?;
        self.cache.keep_tracked_users(ticket, &users);
        Ok(users)
    }

    async fn save_tracked(&self, users: &[(&UserId, bool)]) -> Result<()> {
        let users: Vec<_> = users.iter().map(|(user, dirty)| ((*user).to_owned(), *dirty)).collect();
        self.write_cached(move |disk| async move {
            let users: Vec<_> = users.iter().map(|(user, dirty)| (&**user, *dirty)).collect();
            disk.save_tracked_users(&users).await
        })
        .await
    }

    /// Requests for keys that wait to be sent: asked for before and after each response, and nearly always none.
    async fn unsent_requests(&self) -> Result<Vec<GossipRequest>> {
        if self.cache.has_no_unsent_requests() {
            return Ok(Vec::new());
        }
        let ticket = self.cache.ticket();
        let requests = self.disk.get_unsent_secret_requests().await?;
        if requests.is_empty() {
            self.cache.keep_no_unsent_requests(ticket);
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests;
