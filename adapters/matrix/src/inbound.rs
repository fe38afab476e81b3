//! Reads rooms: one sync after the other, each committed before the next.

use talaria_platform::{CancellationToken, Error};

use crate::account::Account;

/// Reads until `stop`.
pub(crate) async fn read(_account: &Account, stop: &CancellationToken) -> Result<(), Error> {
    stop.cancelled().await;
    Ok(())
}
