//! Opens the account: its folder, the lock on it, the store and the session.

use matrix_sdk::Client;
use matrix_sdk::ruma::OwnedUserId;
use talaria_platform::{Error, ErrorKind};

use crate::settings::Settings;

/// An account that is logged in. Nobody else has its folder open.
pub(crate) struct Opened {
    /// The SDK's client, with its store open.
    pub client: Client,
    /// Whose account it is.
    pub own: OwnedUserId,
}

/// Opens the session that is there, or logs in.
pub(crate) async fn open(_settings: &Settings) -> Result<Opened, Error> {
    Err(ErrorKind::Unsupported.into())
}
