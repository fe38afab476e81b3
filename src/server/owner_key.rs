//! The owner's key. Another may take its place while the server runs; whatever is read with the old one ends then.

use std::mem;

use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::Server;
use crate::config::Secret;
use crate::token;

/// Bytes of a key that nobody guesses. The one that we make has more, and so have those of apps.
const UNGUESSABLE: usize = 24;

/// What is compared with what is sent.
pub struct OwnerKey(Mutex<OwnerDigest>);

/// The owner's key, as a digest: all digests are as long, so that comparing them takes as long whatever is sent.
#[derive(Clone)]
pub(super) struct OwnerDigest {
    /// `None` if everybody who gets here is the owner.
    digest: Option<[u8; 32]>,
    /// It is so short that somebody may have thought it up.
    pub(super) guessable: bool,
    /// Fired when another takes its place.
    pub(super) replaced: CancellationToken,
}

impl OwnerKey {
    /// The key of the owner; `None` if everybody who gets here is.
    pub fn new(key: Option<&Secret>) -> Self {
        Self(Mutex::new(OwnerDigest::of(key)))
    }

    /// Whether this is the key that holds.
    pub fn is(&self, key: &Secret) -> bool {
        self.lock().is(&token::digest(key.expose().as_bytes()))
    }

    /// Another key holds from now on, and whatever was let in by the one before is over.
    fn replace(&self, key: &Secret) {
        let before = mem::replace(&mut *self.lock(), OwnerDigest::of(Some(key)));
        before.replaced.cancel();
    }

    /// The one that holds now.
    pub(super) fn owner(&self) -> OwnerDigest {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, OwnerDigest> {
        self.0.lock()
    }
}

impl Server {
    /// Another key holds from now on, and whatever was let in by the one before is over. Somebody may have tried the new
    /// one too early, and must not be held up for it.
    pub fn replace_key(&self, key: &Secret) {
        self.keys.replace(key);
        self.wrong_keys.forget();
    }
}

impl OwnerDigest {
    fn of(key: Option<&Secret>) -> Self {
        Self {
            digest: key.map(|key| token::digest(key.expose().as_bytes())),
            guessable: key.is_some_and(|key| key.expose().len() < UNGUESSABLE),
            replaced: CancellationToken::new(),
        }
    }

    /// Whether there is a key at all.
    pub(super) fn has_key(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether this is its digest.
    pub(super) fn is(&self, given: &[u8; 32]) -> bool {
        self.digest.is_some_and(|digest| digest.ct_eq(given).into())
    }
}
