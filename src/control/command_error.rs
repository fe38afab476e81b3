//! Errors of operator commands, with hints, as the command line prints them.

use std::fmt::Display;
use std::path::Path;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use talaria_platform::OperatorError;

use crate::config::ConfigError;
use crate::store::StoreError;
use crate::util::one_line;

/// One problem and its hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// The problem.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// HTTP status, for programs.
    pub status: StatusCode,
    /// Problems for people; never empty.
    pub complaints: Vec<ErrorDetail>,
}

/// Body of the error response on the socket.
#[derive(Serialize, Deserialize)]
pub(super) struct CommandErrorBody {
    pub errors: Vec<ErrorDetail>,
}

impl CommandError {
    /// Creates an error with one problem.
    pub fn new(status: StatusCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let complaint = ErrorDetail { message: message.into(), hint: Some(hint.into()) };
        Self { status, complaints: vec![complaint] }
    }

    /// The request is not valid.
    pub fn wrong(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message, hint)
    }

    /// The requested object does not exist.
    pub fn missing(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message, hint)
    }

    /// The command needs a running gateway.
    pub fn not_running(home: &Path) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("talaria is not running (state folder {})", home.display()),
            "start it with `talaria`; or set TALARIA_HOME to the state folder of the one you mean",
        )
    }

    /// The store failed.
    pub fn store(error: &(impl Display + ?Sized)) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the store did not answer: {error}"),
            "nothing was changed; look at the log and at the free space, then try again",
        )
    }

    /// Whether the configuration is wrong.
    pub fn is_configuration(&self) -> bool {
        self.status == StatusCode::UNPROCESSABLE_ENTITY
    }

    /// The configuration is wrong; nothing was changed.
    pub fn config(errors: Vec<ConfigError>) -> Self {
        let complaints =
            errors.into_iter().map(|ConfigError { message, hint }| ErrorDetail { message, hint }).collect();
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, complaints }
    }
}

impl From<OperatorError> for CommandError {
    fn from(error: OperatorError) -> Self {
        // A server's own words may be among them, and a terminal would obey them.
        Self::new(StatusCode::CONFLICT, one_line(&error.message, 500), error.hint)
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::store(&error)
    }
}

impl IntoResponse for CommandError {
    fn into_response(self) -> Response {
        (self.status, Json(CommandErrorBody { errors: self.complaints })).into_response()
    }
}
