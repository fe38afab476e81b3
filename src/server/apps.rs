//! Programs with a token of their own, and the end of what they read when it is revoked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::Problem;
use crate::store::Store;

/// What every token of an app begins with; then its id, then the secret.
pub const PREFIX: &str = "tlr_";

/// The apps that ask.
#[derive(Default)]
pub struct Apps {
    /// Fired when a token is revoked, for those that have asked since the start.
    revocations: Mutex<HashMap<String, CancellationToken>>,
}

impl Apps {
    /// The app that a token belongs to, if it holds.
    pub(super) async fn find(
        &self,
        store: &Store,
        key: &str,
        given: &[u8; 32],
    ) -> Result<Option<String>, Problem> {
        let Some((id, _)) = key.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')) else {
            return Ok(None);
        };
        let id = id.to_owned();
        let Some((app, expected)) = store.read(move |tx| tx.token(&id)).await? else { return Ok(None) };
        Ok(bool::from(expected.as_slice().ct_eq(given)).then_some(app))
    }

    /// Fires when the app's token is revoked.
    pub(super) fn revocation(&self, app: &str) -> CancellationToken {
        let mut revocations = self.revocations.lock().unwrap_or_else(PoisonError::into_inner);
        revocations.entry(app.to_owned()).or_default().clone()
    }

    /// An app may no longer ask: whatever it reads ends now.
    pub fn revoked(&self, app: &str) {
        let mut revocations = self.revocations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = revocations.remove(app) {
            token.cancel();
        }
    }
}
