//! Looks up the tokens of apps, and cuts off running responses when a token is revoked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;
use talaria_platform::spawn_task;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ApiError;
use crate::access::IpRange;
use crate::store::{AppRights, Store, TokenRecord};

/// Token lookups at once. Any client can cause one without a valid key, and the store has other work.
const LOOKUPS: usize = 32;

/// Time after which the use of a token is recorded again. Recording each use would make every request a write.
const NOTED: Duration = Duration::from_secs(60);

/// An app whose token is valid.
pub(super) struct FoundApp {
    /// Name of the app.
    pub app: String,
    /// What it may do.
    pub rights: AppRights,
    /// Fired when its token is revoked or replaced.
    pub revoked: CancellationToken,
}

/// Tokens of apps: bounded lookups, and the apps to notify of a revocation.
pub struct AppTokens {
    revocations: Mutex<AppRevocations>,
    lookups: Semaphore,
}

#[derive(Default)]
struct AppRevocations {
    /// Number of revocations, so that a lookup that overlapped with one is repeated.
    count: u64,
    /// By app name. Only apps with a valid token are here, so their number is bounded.
    known: HashMap<String, KnownApp>,
}

#[derive(Default)]
struct KnownApp {
    /// Fired when the app's token is revoked.
    revoked: CancellationToken,
    /// When the use of the token was last recorded.
    noted: Option<Instant>,
}

impl Default for AppTokens {
    fn default() -> Self {
        Self { revocations: Mutex::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl AppTokens {
    /// Finds the app of a token, if the token is valid and may be used from this address. `given` is its digest.
    pub(super) async fn find(
        &self,
        store: &Store,
        id: &str,
        given: &[u8; 32],
        from: IpAddr,
    ) -> Result<Option<FoundApp>, ApiError> {
        let Ok(_turn) = self.lookups.acquire().await else { return Ok(None) };
        loop {
            let (asked, before) = (id.to_owned(), self.lock().count);
            let Some(TokenRecord { app, digest, rights }) = store.read(move |tx| tx.token(&asked)).await?
            else {
                return Ok(None);
            };
            // That a token with this id exists is no secret; the digests that are compared always have the same
            // length.
            if !bool::from(digest.as_slice().ct_eq(given)) {
                return Ok(None);
            }
            // Outside of its networks a token is no token.
            let is_near = |ranges: &Vec<IpRange>| ranges.iter().any(|range| range.contains(from));
            if !rights.networks.as_ref().is_none_or(is_near) {
                return Ok(None);
            }
            let mut revocations = self.lock();
            if revocations.count == before {
                let known = revocations.known.entry(app.clone()).or_default();
                if known.noted.is_none_or(|noted| noted.elapsed() >= NOTED) {
                    known.noted = Some(Instant::now());
                    note(store.clone(), id.to_owned());
                }
                return Ok(Some(FoundApp { app, rights, revoked: known.revoked.clone() }));
            }
        }
    }

    /// Ends all responses to an app. Called when its token was revoked in the store.
    pub fn revoked(&self, app: &str) {
        let mut revocations = self.lock();
        revocations.count += 1;
        if let Some(known) = revocations.known.remove(app) {
            known.revoked.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, AppRevocations> {
        self.revocations.lock()
    }
}

/// Records that a token was used, in a task of its own: the request does not wait for it, and the task ends
/// with the store.
fn note(store: Store, id: String) {
    spawn_task("note-the-use-of-a-token", async move {
        if let Err(error) = store.write(move |tx| tx.touch_token(&id)).await {
            tracing::warn!(%error, "the use of a token could not be recorded");
        }
    });
}
