//! A login in progress: keeps the requested device id and store name, so that they are the same after a crash.

use std::io;

use talaria_platform::PlatformError;

use super::folder::AccountFolder;
use super::session::{self, PendingLogin};
use super::{key, unwritable};

/// Prefix of the folders of stores; a random word follows.
const STORE: &str = "device-";

/// Letters of a device id; homeservers use as many.
const DEVICE: usize = 10;

/// The login that a crash interrupted, or a new one.
pub(super) fn take(folder: &AccountFolder) -> Result<PendingLogin, PlatformError> {
    let unreadable = |error: &io::Error| unwritable(folder, error);
    let content = folder.read(session::PENDING).map_err(|error| unreadable(&error))?;
    let begun: Option<PendingLogin> = content.and_then(|content| serde_json::from_slice(&content).ok());
    // Accepts only a name that we made, because the folder is removed with everything in it.
    if let Some(begun) = begun.filter(|begun| is_store_name(&begun.store)) {
        // Its keys were never published.
        folder.remove_folder(&begun.store).map_err(|error| unreadable(&error))?;
        return Ok(begun);
    }
    let new = || -> io::Result<PendingLogin> {
        let word = key::random_word(DEVICE)?;
        let pending = PendingLogin { store: format!("{STORE}{word}"), device: word.into() };
        folder.write(session::PENDING, &serde_json::to_vec(&pending)?)?;
        Ok(pending)
    };
    new().map_err(|error| unwritable(folder, &error))
}

/// Whether a name is one that we give to stores.
pub(super) fn is_store_name(name: &str) -> bool {
    name.strip_prefix(STORE)
        .is_some_and(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::client::CRYPTO;
    use super::*;

    #[tokio::test]
    async fn a_login_that_was_broken_off_asks_for_the_same_device_and_leaves_no_store() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(dir.path()).await.unwrap();
        let first = take(&folder).unwrap();
        assert_eq!(first.device.as_str().len(), DEVICE);
        fs::create_dir(folder.at(&first.store)).unwrap();
        fs::write(folder.at(&first.store).join(CRYPTO), "half made").unwrap();

        let second = take(&folder).unwrap();
        assert_eq!(second, first);
        assert!(!folder.at(&first.store).exists());
    }

    #[tokio::test]
    async fn a_strange_name_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(&dir.path().join("bot")).await.unwrap();
        let other = dir.path().join("device-OTHER");
        fs::create_dir(&other).unwrap();
        folder.write(session::PENDING, br#"{"device":"ABC","store":"../device-OTHER"}"#).unwrap();
        take(&folder).unwrap();
        assert!(other.exists());
    }
}
