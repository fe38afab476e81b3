//! Logs out: ends the device.

use talaria_platform::PlatformError;

use super::folder::AccountFolder;
use super::http::{HomeserverClient, RequestFailure};
use super::session::{self, StoredSession};
use super::{pending, unwritable};
use crate::config::MatrixSettings;
use crate::operator_error::fatal;

/// Ends the device, on the homeserver first. Works without the store, because the store may be broken.
pub(crate) async fn log_out(settings: &MatrixSettings, here_only: bool) -> Result<(), PlatformError> {
    let folder = AccountFolder::take(&settings.folder).await?;
    let Some(session) = StoredSession::load(&settings.folder)? else {
        return Err(fatal("this account is not logged in", "nothing is to be done"));
    };
    if !here_only {
        let http = HomeserverClient::find(&settings.homeserver).await?;
        end_device(&http, &session).await.map_err(|failure| failure.into_error("logging out"))?;
    }
    // The session first: a store without a session is only rubbish, a session without its store is broken.
    let removed = folder
        .remove(session::NAME)
        .and_then(|()| {
            if pending::is_store_name(&session.store) { folder.remove_folder(&session.store) } else { Ok(()) }
        })
        .and_then(|()| folder.remove(session::PENDING));
    removed.map_err(|error| unwritable(&folder, &error))?;
    tracing::info!(user = %session.user, device = %session.device, "logged out of Matrix");
    Ok(())
}

/// Ends the device on the homeserver. A device that the homeserver no longer knows has ended already.
async fn end_device(http: &HomeserverClient, session: &StoredSession) -> Result<(), RequestFailure> {
    let Err(failure) = http.log_out(&session.access_token).await else { return Ok(()) };
    if !failure.is_unknown_token() {
        return Err(failure);
    }
    let Some(refresh) = &session.refresh_token else { return Ok(()) };
    match http.refresh(refresh).await {
        Ok((token, _)) => http.log_out(&token).await,
        Err(failure) if failure.is_unknown_token() => Ok(()),
        Err(failure) => Err(failure),
    }
}
