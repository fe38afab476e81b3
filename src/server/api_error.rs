//! Every error response of the server, in the form that clients of the OpenAI protocol know.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::headers;
use super::sse::SseBuffer;
use crate::ids::TurnId;
use crate::store::StoreError;
use crate::turns::TooLate;

/// Error response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// Machine-readable code, finer than the status.
    pub code: &'static str,
    /// The field of the request that is wrong.
    pub param: Option<String>,
    /// One sentence for people: what is wrong and what to do.
    pub message: String,
    /// Sent as `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether a client that retries by itself may do so.
    pub again: bool,
    /// `WWW-Authenticate` of a 401.
    pub challenge: &'static str,
    /// Session and run of the request, if its turn has begun.
    pub begun: Option<Box<(String, TurnId)>>,
    /// Partial text of an answer that failed. Boxed, so that the error itself stays small.
    pub partial: Option<Box<Arc<String>>>,
}

/// Challenge of a 401 for a wrong key.
const BEARER: &str = "Bearer";

/// Challenge of a 401 for a request without a key.
const NO_KEY: &str = "Bearer error_description=\"no key was sent; send it as Authorization: Bearer <key>\"";

/// The `error` object on the wire.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct ApiErrorBody<'a> {
    /// One sentence for people: what is wrong and what to do.
    message: &'a str,
    /// Class of the error.
    r#type: &'static str,
    /// The field of the request that is wrong.
    param: Option<&'a str>,
    /// Machine-readable code.
    code: &'a str,
    /// Partial text of an answer that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    partial: Option<Value>,
}

/// Body of every error response.
#[derive(JsonSchema)]
#[schemars(rename = "Problem")]
#[expect(dead_code, reason = "for the OpenAPI document; what is sent is made of the error alone")]
pub struct ApiErrorSchema {
    error: ApiErrorBody<'static>,
}

impl ApiError {
    /// Creates an error without parameter, `Retry-After` or partial text.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            param: None,
            message: message.into(),
            retry_after: None,
            again: true,
            challenge: BEARER,
            begun: None,
            partial: None,
        }
    }

    /// The request is wrong in this field.
    pub fn wrong(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into());
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request", message) }
    }

    /// This field asks for something that no agent here can do.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: "unsupported_parameter", ..Self::wrong(param, message) }
    }

    /// The key is wrong. LiteLLM and others search for these words.
    pub fn invalid_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "Incorrect API key provided")
    }

    /// The request has no key. Programs get the error of a wrong key; people find the next step in a header.
    pub fn no_key() -> Self {
        Self { challenge: NO_KEY, ..Self::invalid_key() }
    }

    /// An app asks for something that only the owner may see.
    pub fn owner_only() -> Self {
        let message = "Only the owner of the server may ask this; use the server's own key";
        Self::new(StatusCode::FORBIDDEN, "owner_only", message)
    }

    /// An app sends instructions for the agent, and its token lacks that right.
    pub fn no_instructions() -> Self {
        let message = "This app may not instruct the agent; leave out system messages and instructions, or ask the \
                       owner for a token that may";
        Self::new(StatusCode::FORBIDDEN, "system_not_allowed", message)
    }

    /// The caller has no such session.
    pub fn no_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "session_not_found", "Session not found")
    }

    /// Names the session and the run that an error is about.
    pub fn about(self, session: &str, run: &TurnId) -> Self {
        Self { begun: Some(Box::new((session.to_owned(), run.clone()))), ..self }
    }

    /// The caller has no such run.
    pub fn no_run() -> Self {
        Self::new(StatusCode::NOT_FOUND, "run_not_found", "Run not found")
    }

    /// The caller has no such response.
    pub fn no_response() -> Self {
        Self::new(StatusCode::NOT_FOUND, "response_not_found", "Response not found")
    }

    /// The server has no such model.
    pub fn no_model() -> Self {
        let message = "There is no such model; GET /v1/models lists those there are";
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }

    /// The run had no reader for too long and is being stopped.
    pub fn too_late() -> Self {
        let message = "Nobody reads this run, so it is being stopped; ask again in a moment for its end";
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(StatusCode::CONFLICT, "run_stopping", message) }
    }

    /// A relay is pointed at itself, directly or through others.
    pub fn circle() -> Self {
        let message = "The request goes in circles: a relay is pointed at itself. Check GATEWAY_PROXY_URL";
        Self::new(StatusCode::LOOP_DETECTED, "relay_loop", message)
    }

    /// A limit is reached; the client should come back after `after`.
    pub fn busy(message: impl Into<String>, after: Duration) -> Self {
        let retry_after = Some(after);
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message) }
    }

    /// The process is about to end.
    pub fn draining() -> Self {
        let message = "The server is about to end; ask again in a moment";
        let retry_after = Some(Duration::from_secs(5));
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "gateway_draining", message) }
    }

    /// Marks an error of a turn that has begun: it may have run, so clients must not retry it.
    pub fn after_it_began(self) -> Self {
        let message = format!("{}; it may have run, and X-Hermes-Run-Id names it", self.message);
        Self { again: false, message, ..self }
    }

    /// A bug or a broken task of ours; the error goes to the log, not to the client.
    pub fn mistake(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "a request handler failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The server made a mistake")
    }

    /// The `error` object. A long partial text is written through `frames`.
    pub fn object(&self, frames: &mut SseBuffer) -> Value {
        let Self { code, param, message, partial, .. } = self;
        let (param, partial) = (param.as_deref(), partial.as_deref().map(|text| frames.long(text)));
        json!(ApiErrorBody { message, r#type: self.kind(), param, code, partial })
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            429 => "rate_limit_error",
            403 => "permission_error",
            status if status < 500 => "invalid_request_error",
            _ => "server_error",
        }
    }
}

impl From<TooLate> for ApiError {
    fn from(TooLate: TooLate) -> Self {
        Self::too_late()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a request could not be answered: the store failed");
        let message = "The store did not answer";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut frames = SseBuffer::default();
        let error = self.object(&mut frames);
        let mut response = frames.into_json(&json!({ "error": error }));
        *response.status_mut() = self.status;
        // For the forge surface, whose errors have a form of their own.
        response.extensions_mut().insert(self.clone());
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge));
        }
        if let Some(begun) = &self.begun {
            headers::tell(response.headers_mut(), &begun.0, &begun.1);
        }
        if let Some(after) = self.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64));
        }
        if !self.again {
            response
                .headers_mut()
                .insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        response
    }
}
