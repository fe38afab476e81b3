//! What a failure of the SDK means for the core: wait, give up this message, or give up the account.

use std::time::{Duration, SystemTime};

use matrix_sdk::HttpError;
use matrix_sdk::ruma::api::error::{ErrorKind as Code, RetryAfter};
use talaria_platform::{Error, ErrorKind};

/// The longest pause a homeserver may ask for; a longer one is a mistake or malice.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// An error of the SDK for the core.
pub(crate) fn from_sdk(error: matrix_sdk::Error) -> Error {
    let kind = match &error {
        matrix_sdk::Error::Http(http) => kind_of(http),
        // The account is no longer logged in, or its store cannot be used.
        matrix_sdk::Error::AuthenticationRequired
        | matrix_sdk::Error::CryptoStoreError(_)
        | matrix_sdk::Error::StateStore(_) => ErrorKind::Fatal,
        // Everything else is about this one message.
        _ => ErrorKind::Rejected,
    };
    Error::new(kind, error)
}

/// An error of a request for the core.
pub(crate) fn from_http(error: HttpError) -> Error {
    Error::new(kind_of(&error), error)
}

/// What a failed request means.
pub(crate) fn kind_of(error: &HttpError) -> ErrorKind {
    let retry = ErrorKind::Retry { after: None };
    match error {
        HttpError::Reqwest(_) => retry,
        HttpError::Cached(error) => kind_of(error),
        // Either the network is away or the session is over; the request after the next login tells.
        HttpError::RefreshToken(_) => ErrorKind::Fatal,
        _ => match error.as_client_api_error() {
            Some(api) => match api.error_kind() {
                Some(Code::LimitExceeded(limit)) => {
                    ErrorKind::Retry { after: Some(pause(limit.retry_after.as_ref())) }
                }
                Some(Code::UnknownToken(_) | Code::MissingToken | Code::UserDeactivated) => ErrorKind::Fatal,
                Some(Code::NotFound) => ErrorKind::Gone,
                Some(Code::Forbidden) => ErrorKind::Rejected,
                _ if api.status_code.is_server_error() => retry,
                // A proxy in between, not the homeserver.
                _ if matches!(api.status_code.as_u16(), 408 | 425 | 429) => retry,
                _ => ErrorKind::Rejected,
            },
            // An answer that no homeserver gives: something in between broke.
            None => retry,
        },
    }
}

fn pause(after: Option<&RetryAfter>) -> Duration {
    let pause = match after {
        Some(RetryAfter::Delay(delay)) => *delay,
        Some(RetryAfter::DateTime(time)) => time.duration_since(SystemTime::now()).unwrap_or_default(),
        None => Duration::from_secs(1),
    };
    pause.min(LONGEST_PAUSE)
}
