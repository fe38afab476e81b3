//! Every error, in the form that clients of this protocol know.

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

/// Why a request is not answered as it wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// For programs.
    pub status: StatusCode,
    /// For programs that care which.
    pub code: &'static str,
    /// Which part of the request is meant.
    pub param: Option<String>,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// Whether a client that tries again by itself may do so.
    pub again: bool,
    /// With a 401: how to come in.
    pub challenge: &'static str,
    /// The session and the run that it is about, if one has begun.
    pub begun: Option<Box<(String, TurnId)>>,
    /// The beginning of an answer that failed, if there was any. Boxed, so that the error itself stays small.
    pub partial: Option<Box<Arc<String>>>,
}

/// The usual challenge.
const BEARER: &str = "Bearer";

/// The challenge to whoever sent no key at all.
const NO_KEY: &str = "Bearer error_description=\"no key was sent; send it as Authorization: Bearer <key>\"";

/// As it goes over the wire.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct ApiErrorBody<'a> {
    /// For people: what is wrong and what to do.
    message: &'a str,
    /// The kind of it.
    r#type: &'static str,
    /// Which part of the request is meant.
    param: Option<&'a str>,
    /// For programs.
    code: &'a str,
    /// What there was of an answer that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    partial: Option<Value>,
}

/// The body of every answer that is a problem.
#[derive(JsonSchema)]
#[schemars(rename = "Problem")]
#[expect(dead_code, reason = "for the OpenAPI document; what is sent is made of the error alone")]
pub struct ApiErrorSchema {
    error: ApiErrorBody<'static>,
}

impl ApiError {
    /// A problem of this kind.
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

    /// The request is wrong in this part of it.
    pub fn wrong(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into());
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request", message) }
    }

    /// The request asks in this part for something that no agent here can do.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: "unsupported_parameter", ..Self::wrong(param, message) }
    }

    /// Nobody may ask with this key. LiteLLM and others look for these words.
    pub fn invalid_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "Incorrect API key provided")
    }

    /// Nobody may ask without one. For programs it is the same; people find what to do in a header.
    pub fn no_key() -> Self {
        Self { challenge: NO_KEY, ..Self::invalid_key() }
    }

    /// An app asks for what only whoever runs the server may see.
    pub fn owner_only() -> Self {
        let message = "Only the owner of the server may ask this; use the server's own key";
        Self::new(StatusCode::FORBIDDEN, "owner_only", message)
    }

    /// An app says how the agent is to behave, and its token was made without that right.
    pub fn no_instructions() -> Self {
        let message = "This app may not instruct the agent; leave out system messages and instructions, or ask the \
                       owner for a token that may";
        Self::new(StatusCode::FORBIDDEN, "system_not_allowed", message)
    }

    /// There is no such session, for whoever asks.
    pub fn no_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "session_not_found", "Session not found")
    }

    /// The same about a run that has begun, which it names.
    pub fn about(self, session: &str, run: &TurnId) -> Self {
        Self { begun: Some(Box::new((session.to_owned(), run.clone()))), ..self }
    }

    /// There is no such run, for whoever asks.
    pub fn no_run() -> Self {
        Self::new(StatusCode::NOT_FOUND, "run_not_found", "Run not found")
    }

    /// There is no such response, for whoever asks.
    pub fn no_response() -> Self {
        Self::new(StatusCode::NOT_FOUND, "response_not_found", "Response not found")
    }

    /// There is no such model.
    pub fn no_model() -> Self {
        let message = "There is no such model; GET /v1/models lists those there are";
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }

    /// Nobody read a run for as long as it had patience, and it is about to end.
    pub fn too_late() -> Self {
        let message = "Nobody reads this run, so it is being stopped; ask again in a moment for its end";
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(StatusCode::CONFLICT, "run_stopping", message) }
    }

    /// A relay is pointed at itself, or at one that is pointed at it.
    pub fn circle() -> Self {
        let message = "The request goes in circles: a relay is pointed at itself. Check GATEWAY_PROXY_URL";
        Self::new(StatusCode::LOOP_DETECTED, "relay_loop", message)
    }

    /// Too much goes on.
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

    /// The same for a turn that has begun and cannot be asked for again.
    pub fn after_it_began(self) -> Self {
        let message = format!("{}; it may have run, and X-Hermes-Run-Id names it", self.message);
        Self { again: false, message, ..self }
    }

    /// A task of ours broke; that is our mistake, whoever asked.
    pub fn mistake(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "answering a request broke");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The server made a mistake")
    }

    /// The error object by itself. The beginning of an answer, which may be long, is written with these frames.
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
