//! Ends a device.

use talaria_platform::Error;

use super::door::{Door, Failure};
use super::folder::Folder;
use super::session::{self, Session};
use super::{pending, unwritable};
use crate::settings::Settings;
use crate::trouble::fatal;

/// Ends the device, on the homeserver first. Works without its store: that may be what is broken.
pub(crate) async fn log_out(settings: &Settings, here_only: bool) -> Result<(), Error> {
    let folder = Folder::take(&settings.folder).await?;
    let Some(session) = Session::load(&settings.folder)? else {
        return Err(fatal("this account is not logged in", "nothing is to be done"));
    };
    if !here_only {
        let door = Door::find(&settings.homeserver).await?;
        end_device(&door, &session).await.map_err(|failure| failure.into_error("logging out"))?;
    }
    // The session first: a store without one is only rubbish, a session without its store is broken.
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

/// A device that the homeserver no longer knows has ended already.
async fn end_device(door: &Door, session: &Session) -> Result<(), Failure> {
    let Err(failure) = door.log_out(&session.access_token).await else { return Ok(()) };
    if !failure.is_unknown_token() {
        return Err(failure);
    }
    let Some(refresh) = &session.refresh_token else { return Ok(()) };
    match door.refresh(refresh).await {
        Ok((token, _)) => door.log_out(&token).await,
        Err(failure) if failure.is_unknown_token() => Ok(()),
        Err(failure) => Err(failure),
    }
}
