//! The owner's key. It can be replaced while the server runs; responses to the old key then end.

use std::mem;

use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::Server;
use crate::config::Secret;
use crate::token;

/// Bytes of a key that cannot be guessed. The key that we generate is longer, and so are the tokens of apps.
const UNGUESSABLE: usize = 24;

/// The current key of the owner; [`Server::replace_key`] changes it.
pub struct OwnerKey(Mutex<OwnerDigest>);

/// The owner's key as a digest. Digests have equal length, so comparing them takes equal time for any input.
#[derive(Clone)]
pub(super) struct OwnerDigest {
    /// `None` if there is no key and every client is the owner.
    digest: Option<[u8; 32]>,
    /// Whether the key is short enough that a person may have made it up.
    pub(super) guessable: bool,
    /// Fired when another key takes its place.
    pub(super) replaced: CancellationToken,
}

impl OwnerKey {
    /// The configured key; `None` if every client is the owner.
    pub fn new(key: Option<&Secret>) -> Self {
        Self(Mutex::new(OwnerDigest::of(key)))
    }

    /// Whether this is the current key.
    pub fn is(&self, key: &Secret) -> bool {
        self.lock().is(&token::digest(key.expose().as_bytes()))
    }

    /// Replaces the key and ends everything that the old key was used for.
    fn replace(&self, key: &Secret) {
        let before = mem::replace(&mut *self.lock(), OwnerDigest::of(Some(key)));
        before.replaced.cancel();
    }

    /// The current key.
    pub(super) fn owner(&self) -> OwnerDigest {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, OwnerDigest> {
        self.0.lock()
    }
}

impl Server {
    /// Replaces the key and ends everything that the old key was used for. Also forgets wrong keys: a client
    /// may have tried the new one too early and must not be paused for it.
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

    /// Whether the server has a key at all.
    pub(super) fn has_key(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether `given` is the digest of the key. Takes constant time.
    pub(super) fn is(&self, given: &[u8; 32]) -> bool {
        self.digest.is_some_and(|digest| digest.ct_eq(given).into())
    }
}
