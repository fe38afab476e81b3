//! Maps errors of the SDK to the core's next action: wait, give up this message, or give up the account.

use std::time::{Duration, SystemTime};

use matrix_sdk::encryption::OlmError;
use matrix_sdk::ruma::api::error::{ErrorKind as Code, RetryAfter};
use matrix_sdk::{HttpError, RefreshTokenError};
use matrix_sdk_base::crypto::SessionRecipientCollectionError as NoRecipients;
use talaria_platform::{PlatformError, PlatformErrorKind};
use tracing::{error, warn};

/// The longest pause a homeserver may ask for; a longer one is a mistake or malice.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause after a rate limit that names none.
const USUAL_PAUSE: Duration = Duration::from_secs(1);

const RETRY: PlatformErrorKind = PlatformErrorKind::Retry { after: None };

/// A request that fails in the same way however often it is repeated.
pub(crate) fn rejected(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Rejected, error)
}

/// Converts an error of the SDK.
pub(crate) fn from_sdk(error: matrix_sdk::Error) -> PlatformError {
    PlatformError::new(kind_of_sdk(&error), error)
}

/// Converts an error of an HTTP request.
pub(crate) fn from_http(error: HttpError) -> PlatformError {
    PlatformError::new(kind_of(&error), error)
}

/// Converts an error of writing to a room. `M_FORBIDDEN` counts as gone: the room is no longer open to us.
pub(crate) fn from_write(error: matrix_sdk::Error) -> PlatformError {
    let forbidden = matches!(error.client_api_error_kind(), Some(Code::Forbidden));
    let kind = if forbidden { PlatformErrorKind::Gone } else { kind_of_sdk(&error) };
    PlatformError::new(kind, error)
}

fn kind_of_sdk(error: &matrix_sdk::Error) -> PlatformErrorKind {
    match error {
        matrix_sdk::Error::Http(http) => kind_of(http),
        // The account is no longer logged in, or its store cannot be used.
        matrix_sdk::Error::AuthenticationRequired
        | matrix_sdk::Error::CryptoStoreError(_)
        | matrix_sdk::Error::StateStore(_) => PlatformErrorKind::Fatal,
        matrix_sdk::Error::OlmError(olm) => kind_of_olm(olm),
        // We are not, or no longer, in the room.
        matrix_sdk::Error::WrongRoomState(_) => PlatformErrorKind::Gone,
        // Two callers asked for the same thing and the one that did the work failed; or the SDK is still starting.
        matrix_sdk::Error::ConcurrentRequestFailed
        | matrix_sdk::Error::Timeout
        | matrix_sdk::Error::InsufficientData
        | matrix_sdk::Error::NoOlmMachine
        | matrix_sdk::Error::CrossProcessLockError(_) => RETRY,
        // Any other error concerns this one message.
        _ => PlatformErrorKind::Rejected,
    }
}

/// Classifies a failed encryption. Nothing was sent.
fn kind_of_olm(error: &OlmError) -> PlatformErrorKind {
    match error {
        OlmError::Store(_) => PlatformErrorKind::Fatal,
        OlmError::SessionRecipientCollectionError(NoRecipients::VerifiedUserChangedIdentity(users)) => {
            error!(
                ?users,
                "somebody who was verified has a new identity: nothing is sent to rooms they are in. \
                 Verify them again, or remove them from the room"
            );
            PlatformErrorKind::Rejected
        }
        OlmError::SessionRecipientCollectionError(NoRecipients::VerifiedUserHasUnsignedDevice(devices)) => {
            error!(?devices, "somebody who was verified has a device that is not signed: nothing is sent");
            PlatformErrorKind::Rejected
        }
        OlmError::SessionRecipientCollectionError(
            NoRecipients::CrossSigningNotSetup | NoRecipients::SendingFromUnverifiedDevice,
        ) => {
            warn!(
                "our own device is not signed yet, so nobody gets keys; `talaria matrix doctor` says how to mend it"
            );
            RETRY
        }
        // An Olm session with some device broke; the next attempt makes a new one.
        _ => RETRY,
    }
}

/// Classifies a failed request.
pub(crate) fn kind_of(error: &HttpError) -> PlatformErrorKind {
    match error {
        HttpError::Reqwest(_) => RETRY,
        HttpError::Cached(error) => kind_of(error),
        HttpError::RefreshToken(refresh) => match refresh {
            // The homeserver could not be reached; the token may still be valid.
            RefreshTokenError::MatrixAuth(error)
                if matches!(kind_of(error), PlatformErrorKind::Retry { .. }) =>
            {
                RETRY
            }
            RefreshTokenError::MatrixAuth(_)
            | RefreshTokenError::OAuth(_)
            | RefreshTokenError::RefreshTokenRequired => PlatformErrorKind::Fatal,
        },
        _ => match error.as_client_api_error() {
            Some(api) => match api.error_kind() {
                Some(Code::LimitExceeded(limit)) => {
                    PlatformErrorKind::Retry { after: Some(pause(limit.retry_after.as_ref())) }
                }
                Some(Code::UnknownToken(_) | Code::MissingToken | Code::UserDeactivated) => {
                    PlatformErrorKind::Fatal
                }
                Some(Code::NotFound) => PlatformErrorKind::Gone,
                Some(Code::Forbidden) => PlatformErrorKind::Rejected,
                // The homeserver is full or the account is locked; both can end without us.
                Some(Code::ResourceLimitExceeded(_) | Code::UserLocked) => RETRY,
                _ => kind_of_status(api.status_code.as_u16()),
            },
            // No homeserver gives this response: something in between broke.
            None => RETRY,
        },
    }
}

/// Classifies an HTTP status that came without a Matrix error code that we know.
pub(crate) fn kind_of_status(status: u16) -> PlatformErrorKind {
    match status {
        429 => PlatformErrorKind::Retry { after: Some(USUAL_PAUSE) },
        // Comes from a proxy in between, not from the homeserver.
        408 | 425 | 500.. => RETRY,
        404 | 410 => PlatformErrorKind::Gone,
        _ => PlatformErrorKind::Rejected,
    }
}

fn pause(after: Option<&RetryAfter>) -> Duration {
    let pause = match after {
        Some(RetryAfter::Delay(delay)) => *delay,
        Some(RetryAfter::DateTime(time)) => time.duration_since(SystemTime::now()).unwrap_or_default(),
        None => USUAL_PAUSE,
    };
    pause.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::api::EndpointError as _;
    use matrix_sdk::ruma::api::client::uiaa::UiaaResponse;
    use matrix_sdk::ruma::api::error::FromHttpResponseError;
    use matrix_sdk::ruma::exports::http;

    use super::*;

    fn answer(status: u16, body: &str) -> HttpError {
        let response = http::Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap();
        FromHttpResponseError::Server(UiaaResponse::from_http_response(response)).into()
    }

    fn retry(millis: u64) -> PlatformErrorKind {
        PlatformErrorKind::Retry { after: Some(Duration::from_millis(millis)) }
    }

    #[test]
    fn an_answer_means_what_would_help() {
        use PlatformErrorKind::{Fatal, Gone, Rejected};
        for (status, body, reading, writing) in [
            (
                429,
                r#"{"errcode":"M_LIMIT_EXCEEDED","error":"slow","retry_after_ms":2300}"#,
                retry(2300),
                retry(2300),
            ),
            (
                429,
                r#"{"errcode":"M_LIMIT_EXCEEDED","error":"slow","retry_after_ms":86400000}"#,
                retry(300_000),
                retry(300_000),
            ),
            (429, r#"{"errcode":"M_LIMIT_EXCEEDED","error":"slow"}"#, retry(1000), retry(1000)),
            (429, "<html>slow down</html>", retry(1000), retry(1000)),
            (403, r#"{"errcode":"M_FORBIDDEN","error":"not in room"}"#, Rejected, Gone),
            (404, r#"{"errcode":"M_NOT_FOUND","error":"no"}"#, Gone, Gone),
            (413, r#"{"errcode":"M_TOO_LARGE","error":"event too large"}"#, Rejected, Rejected),
            (413, "too large", Rejected, Rejected),
            (400, r#"{"errcode":"M_BAD_JSON","error":"no"}"#, Rejected, Rejected),
            (418, r#"{"errcode":"ORG_EXAMPLE_TEAPOT","error":"no"}"#, Rejected, Rejected),
            (401, r#"{"errcode":"M_UNKNOWN_TOKEN","error":"who?"}"#, Fatal, Fatal),
            (401, r#"{"errcode":"M_MISSING_TOKEN","error":"who?"}"#, Fatal, Fatal),
            (403, r#"{"errcode":"M_USER_DEACTIVATED","error":"gone"}"#, Fatal, Fatal),
            (500, r#"{"errcode":"M_UNKNOWN","error":"Internal server error"}"#, RETRY, RETRY),
            (502, "<html>bad gateway</html>", RETRY, RETRY),
            (504, "", RETRY, RETRY),
            (520, "cloud", RETRY, RETRY),
        ] {
            assert_eq!(from_http(answer(status, body)).kind(), reading, "{status} {body}");
            assert_eq!(from_write(answer(status, body).into()).kind(), writing, "{status} {body}");
        }
    }

    #[test]
    fn nothing_is_lost_for_want_of_keys() {
        let olm = |error| {
            let error = OlmError::SessionRecipientCollectionError(error);
            from_write(matrix_sdk::Error::OlmError(Box::new(error))).kind()
        };
        assert_eq!(olm(NoRecipients::CrossSigningNotSetup), RETRY);
        assert_eq!(olm(NoRecipients::SendingFromUnverifiedDevice), RETRY);
        assert_eq!(olm(NoRecipients::VerifiedUserChangedIdentity(Vec::new())), PlatformErrorKind::Rejected);
    }
}
