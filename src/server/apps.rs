//! Programs with a token of their own, and the end of what they read when it is revoked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Problem;
use crate::store::Store;
use crate::token::Kept;

/// Tokens that are looked up at once. Anybody can make us look, without any key; the store has other things to do.
const LOOKUPS: usize = 32;

/// The apps that ask.
pub struct Apps {
    revocations: Mutex<Revocations>,
    lookups: Semaphore,
}

#[derive(Default)]
struct Revocations {
    /// Counts them, so that whoever was looked up during one is looked up again.
    count: u64,
    /// Fired when a token is revoked. Only apps that have one are here, so there are never more than those.
    readers: HashMap<String, CancellationToken>,
}

impl Default for Apps {
    fn default() -> Self {
        Self { revocations: Mutex::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl Apps {
    /// The app that a token belongs to, if it holds, and what fires when it no longer does.
    pub(super) async fn find(
        &self,
        store: &Store,
        given: &Kept,
    ) -> Result<Option<(String, CancellationToken)>, Problem> {
        let Ok(_turn) = self.lookups.acquire().await else { return Ok(None) };
        loop {
            let (id, before) = (given.id.clone(), self.lock().count);
            let Some((app, expected)) = store.read(move |tx| tx.token(&id)).await? else { return Ok(None) };
            // That there is a token with this id is no secret; what it is compared with is always as long.
            if !bool::from(expected.as_slice().ct_eq(&given.digest)) {
                return Ok(None);
            }
            let mut revocations = self.lock();
            if revocations.count == before {
                let revoked = revocations.readers.entry(app.clone()).or_default().clone();
                return Ok(Some((app, revoked)));
            }
        }
    }

    /// The token of an app no longer holds, and the store knows it: whatever is read with it ends now.
    pub fn revoked(&self, app: &str) {
        let mut revocations = self.lock();
        revocations.count += 1;
        if let Some(readers) = revocations.readers.remove(app) {
            readers.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Revocations> {
        // Every change under this lock is complete in itself.
        self.revocations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a token comes to that a key is; what is none is not looked up.
pub(super) fn token(key: &[u8]) -> Option<Kept> {
    Kept::of(std::str::from_utf8(key).ok()?)
}
