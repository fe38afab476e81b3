//! Runs one sync with the homeserver, through the SDK.

use std::time::Duration;

use matrix_sdk::config::{SyncSettings, SyncToken};
use matrix_sdk::ruma::UserId;
use matrix_sdk::ruma::api::client::sync::sync_events::v3::{self, Filter};
use matrix_sdk::ruma::presence::PresenceState;
use matrix_sdk::sync::SyncResponse;
use matrix_sdk::{Client, HttpError};
use talaria_platform::{PlatformError, PlatformErrorKind};

use super::filter::{self, SentMembers};
use super::retry::{RetryBackoff, once};
use crate::error::{from_sdk, kind_of};
use crate::login::http::REQUEST;
use crate::login::revoked;

/// Longest time that the homeserver waits for new events.
const POLL: Duration = Duration::from_secs(30);
/// Extra time for the first sync: it brings the state of all rooms.
const FIRST: Duration = Duration::from_secs(180);

/// Refusals of a position in a row after which we give it up.
pub(super) const REFUSALS: u32 = 3;

/// Why there is no response.
pub(super) enum SyncFailure {
    /// Waiting helps; the time is the homeserver's wish.
    Away(Option<Duration>),
    /// The homeserver does not know this position.
    Lost,
    /// Waiting does not help.
    Over(PlatformError),
}

/// Fetches the events since `since`. With `wait` the homeserver waits until there are some.
pub(super) async fn next(
    client: &Client,
    since: &str,
    wait: bool,
    members: SentMembers,
) -> Result<SyncResponse, SyncFailure> {
    let poll = if wait { POLL } else { Duration::ZERO };
    let filter = Filter::FilterDefinition(filter::ours(members));
    let settings = settings(SyncToken::Specific(since.to_owned()), poll, filter);
    client.sync_once(settings).await.map_err(failure)
}

/// Waits for events of others since `since`, and fetches them as they are, past the SDK. If there are none for a while,
/// the response has none.
pub(super) async fn of_others(
    client: &Client,
    since: &str,
    own: &UserId,
) -> Result<v3::Response, SyncFailure> {
    let mut request = v3::Request::new();
    request.since = Some(since.to_owned());
    request.filter = Some(Filter::FilterDefinition(filter::of_others(own)));
    request.timeout = Some(POLL);
    request.set_presence = PresenceState::Offline;
    let config = once().timeout(POLL + REQUEST);
    let response = client.send(request).with_request_config(config).await;
    response.map_err(|error| failure(error.into()))
}

/// Fetches the state of all rooms, without a position to start from. Repeated until the homeserver returns it.
pub(super) async fn first(client: &Client) -> Result<SyncResponse, PlatformError> {
    let mut patience = RetryBackoff::default();
    loop {
        let filter = Filter::FilterDefinition(filter::first());
        let after = match client.sync_once(settings(SyncToken::NoToken, FIRST, filter)).await.map_err(failure)
        {
            Ok(response) => return Ok(response),
            Err(SyncFailure::Over(error)) => return Err(error),
            Err(SyncFailure::Away(after)) => after,
            Err(SyncFailure::Lost) => None,
        };
        tokio::time::sleep(patience.next(after)).await;
    }
}

fn settings(token: SyncToken, timeout: Duration, filter: Filter) -> SyncSettings {
    SyncSettings::new().token(token).timeout(timeout).filter(filter).set_presence(PresenceState::Offline)
}

/// Whether the homeserver, and not a proxy before it, refuses the request. The position is the only part of it that
/// can be wrong.
pub(super) fn is_position_refused(error: &HttpError) -> bool {
    error
        .as_client_api_error()
        .is_some_and(|api| api.status_code.as_u16() == 400 && api.error_kind().is_some())
}

fn failure(error: matrix_sdk::Error) -> SyncFailure {
    let kind = match &error {
        matrix_sdk::Error::Http(http) => Some(kind_of(http)),
        _ => None,
    };
    if let matrix_sdk::Error::Http(http) = &error
        && is_position_refused(http)
    {
        tracing::warn!(%error, "the homeserver refuses our position");
        return SyncFailure::Lost;
    }
    match kind {
        Some(PlatformErrorKind::Fatal) => SyncFailure::Over(revoked(from_sdk(error))),
        Some(PlatformErrorKind::Retry { after }) => {
            tracing::debug!(%error, "the homeserver is away");
            SyncFailure::Away(after)
        }
        // A proxy that is being set up may answer anything.
        Some(PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported) => {
            tracing::warn!(%error, "the homeserver refuses to sync");
            SyncFailure::Away(None)
        }
        None => {
            let error = from_sdk(error);
            match error.kind() {
                PlatformErrorKind::Fatal => SyncFailure::Over(error),
                PlatformErrorKind::Retry { .. }
                | PlatformErrorKind::Gone
                | PlatformErrorKind::Rejected
                | PlatformErrorKind::Unsupported => {
                    tracing::warn!(?error, "a response of the homeserver could not be read");
                    SyncFailure::Away(None)
                }
            }
        }
    }
}
