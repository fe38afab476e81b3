//! Files: fetched within a limit, decrypted and checked; uploaded, encrypted where the room is.

use talaria_platform::{Error, ErrorKind, MediaId};

use crate::account::Account;

pub(crate) async fn fetch(_account: &Account, _media: &MediaId, _limit: u64) -> Result<Vec<u8>, Error> {
    Err(ErrorKind::Unsupported.into())
}
