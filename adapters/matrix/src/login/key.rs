//! The key of the device's store: configured as a secret, or kept beside the store.

use std::io;

use talaria_platform::PlatformError;

use super::folder::AccountFolder;
use crate::config::StoreKey;
use crate::operator_error::fatal;

/// Name of the key's file in the folder.
pub(super) const NAME: &str = "store.key";

/// The key of an existing store. Makes none: another key would not open the store.
pub(super) fn of_old(folder: &AccountFolder, given: Option<StoreKey>) -> Result<StoreKey, PlatformError> {
    match given {
        Some(key) => Ok(key),
        None => stored(folder)?.ok_or_else(|| {
            fatal(
                format!("the device's store is there, but its key {} is not", folder.at(NAME).display()),
                "put the key back, or give the one it was made with as `store_key`; if it is lost, run `talaria \
                 matrix logout` and start again with the recovery key",
            )
        }),
    }
}

/// The key for a new store; made if there is none.
pub(super) fn of_new(folder: &AccountFolder, given: Option<StoreKey>) -> Result<StoreKey, PlatformError> {
    if let Some(key) = given {
        return Ok(key);
    }
    if let Some(key) = stored(folder)? {
        return Ok(key);
    }
    let mut key = StoreKey::default();
    random(&mut key.0).and_then(|()| folder.write(NAME, &key.0)).map_err(|error| {
        fatal(
            format!("the store's key {} cannot be made: {error}", folder.at(NAME).display()),
            "check the rights of the folder and the free space",
        )
    })?;
    Ok(key)
}

fn stored(folder: &AccountFolder) -> Result<Option<StoreKey>, PlatformError> {
    let bad = |why: String| {
        fatal(
            format!("the store's key {} cannot be used: {why}", folder.at(NAME).display()),
            "put the right file back; talaria made it with 32 bytes and never changes it",
        )
    };
    let Some(content) = folder.read(NAME).map_err(|error| bad(error.to_string()))? else { return Ok(None) };
    let length = content.len();
    let key = content.try_into().map_err(|_| bad(format!("it has {length} bytes instead of 32")))?;
    Ok(Some(StoreKey(key)))
}

/// Fills `bytes` with random bytes from the system.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::from)
}

/// A random word of upper-case letters, like a device id.
pub(super) fn random_word(letters: usize) -> io::Result<String> {
    let mut bytes = vec![0; letters];
    random(&mut bytes)?;
    // Slightly uneven, which does not matter: the word only has to be new.
    Ok(bytes.into_iter().map(|byte| char::from(b'A' + byte % 26)).collect())
}

#[cfg(test)]
mod tests {
    use talaria_platform::PlatformErrorKind;

    use super::*;

    #[tokio::test]
    async fn a_key_is_made_once_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(dir.path()).await.unwrap();
        assert_eq!(of_old(&folder, None).unwrap_err().kind(), PlatformErrorKind::Fatal);

        let key = of_new(&folder, None).unwrap();
        assert_ne!(key, StoreKey::default());
        assert_eq!(of_new(&folder, None).unwrap(), key);
        assert_eq!(of_old(&folder, None).unwrap(), key);
        assert_eq!(of_old(&folder, Some(StoreKey([7; 32]))).unwrap(), StoreKey([7; 32]));
    }

    #[tokio::test]
    async fn a_damaged_key_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(dir.path()).await.unwrap();
        folder.write(NAME, b"short").unwrap();
        assert_eq!(of_new(&folder, None).unwrap_err().kind(), PlatformErrorKind::Fatal);
        assert_eq!(folder.read(NAME).unwrap().unwrap(), b"short");
    }
}
