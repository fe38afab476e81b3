//! Tells whether an Olm account differs from the one on disk.

use std::io;

use matrix_sdk_base::crypto::Account;
use sha2::{Digest as _, Sha256};

/// Digest of an account with all of its keys. Not the keys themselves: they need not be in memory twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountDigest([u8; 32]);

impl AccountDigest {
    /// The digest of what would be written; `None` if the account cannot be serialized, so that it is always written.
    pub fn of(account: &Account) -> Option<Self> {
        let mut digest = Sha256::new();
        // Buffered: a key is written number by number.
        let mut writer = io::BufWriter::with_capacity(4096, &mut digest);
        serde_json::to_writer(&mut writer, &account.pickle()).ok()?;
        writer.into_inner().ok()?;
        Some(Self(digest.finalize().into()))
    }
}
