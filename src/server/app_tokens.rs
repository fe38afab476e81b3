//! Programs with a token of their own, and the end of what they read when it is revoked.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;
use talaria_platform::spawn_task;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ApiError;
use crate::store::{Store, TokenRecord};

/// Tokens that are looked up at once. Anybody can make us look, without any key; the store has other things to do.
const LOOKUPS: usize = 32;

/// How long a use of a token is not written down again: it would be a write for every request.
const NOTED: Duration = Duration::from_secs(60);

/// An app whose token holds.
pub(super) struct FoundApp {
    /// What it is called.
    pub app: String,
    /// Whether it may send system messages and instructions.
    pub instructions: bool,
    /// Fired when its token is revoked or replaced.
    pub revoked: CancellationToken,
}

/// The apps that ask.
pub struct AppTokens {
    revocations: Mutex<AppRevocations>,
    lookups: Semaphore,
}

#[derive(Default)]
struct AppRevocations {
    /// Counts them, so that whoever was looked up during one is looked up again.
    count: u64,
    /// Only apps that have a token are here, so there are never more than those.
    known: HashMap<String, KnownApp>,
}

#[derive(Default)]
struct KnownApp {
    /// Fired when its token is revoked.
    revoked: CancellationToken,
    /// When its use was last written down.
    noted: Option<Instant>,
}

impl Default for AppTokens {
    fn default() -> Self {
        Self { revocations: Mutex::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl AppTokens {
    /// The app that a token belongs to, if it holds. `given` is its digest.
    pub(super) async fn find(
        &self,
        store: &Store,
        id: &str,
        given: &[u8; 32],
    ) -> Result<Option<FoundApp>, ApiError> {
        let Ok(_turn) = self.lookups.acquire().await else { return Ok(None) };
        loop {
            let (asked, before) = (id.to_owned(), self.lock().count);
            let Some(TokenRecord { app, digest, instructions }) =
                store.read(move |tx| tx.token(&asked)).await?
            else {
                return Ok(None);
            };
            // That there is a token with this id is no secret; what it is compared with is always as long.
            if !bool::from(digest.as_slice().ct_eq(given)) {
                return Ok(None);
            }
            let mut revocations = self.lock();
            if revocations.count == before {
                let known = revocations.known.entry(app.clone()).or_default();
                if known.noted.is_none_or(|noted| noted.elapsed() >= NOTED) {
                    known.noted = Some(Instant::now());
                    note(store.clone(), id.to_owned());
                }
                return Ok(Some(FoundApp { app, instructions, revoked: known.revoked.clone() }));
            }
        }
    }

    /// The token of an app no longer holds, and the store knows it: whatever is read with it ends now.
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

/// Writes down that a token was used. On a task of its own: nobody waits for it, and it ends with the store.
fn note(store: Store, id: String) {
    spawn_task("note the use of a token", async move {
        if let Err(error) = store.write(move |tx| tx.touch_token(&id)).await {
            tracing::warn!(%error, "the use of a token could not be written down");
        }
    });
}
