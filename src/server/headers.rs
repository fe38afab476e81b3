//! Reads the headers of a request that concern its turn. All are checked before anything happens.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::{ApiError, Caller};
use crate::agent::TurnOrigin;
use crate::ids::TurnId;

/// Session of the turn.
pub const SESSION_ID: &str = "x-hermes-session-id";
/// Memory scope of the agent.
pub const SESSION_KEY: &str = "x-hermes-session-key";
/// Id of the run, in responses.
pub const RUN_ID: &str = "x-hermes-run-id";
/// Key that makes a repeated request the same as one.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Id of the last event that the client has seen.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Asks for the partial text of a failed turn as an ordinary answer.
pub const PARTIAL: &str = "x-talaria-partial";
/// Number of relays that the request came through.
pub const HOPS: &str = "x-talaria-hops";

/// A request that came through this many relays is refused: it goes in circles.
const TOO_MANY_HOPS: u32 = 2;

/// Most characters of each header.
const LONGEST: usize = 256;

/// Headers of a request that concern its turn.
#[derive(Clone, Debug, Default)]
pub struct TurnHeaders {
    /// Name of the session.
    pub session: Option<String>,
    /// Memory scope of the agent.
    pub memory: Option<String>,
    /// Idempotency key.
    pub key: Option<String>,
    /// Id of the last event that the client has seen.
    pub last_event: Option<String>,
    /// Whether a failed turn with text is answered like any other, instead of with a 502.
    pub takes_partial: bool,
    /// Number of relays that the request came through.
    pub hops: u32,
    /// The person and the place that asked, as reported by a gateway.
    pub origin: TurnOrigin,
}

impl<S: Send + Sync> FromRequestParts<S> for TurnHeaders {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, state).await?;
        Self::read(&parts.headers, caller.keyless)
    }
}

impl TurnHeaders {
    fn read(headers: &HeaderMap, keyless: bool) -> Result<Self, ApiError> {
        let session = text(headers, SESSION_ID)?;
        if let Some(name) = &session {
            check_name(name).map_err(|message| ApiError::wrong("X-Hermes-Session-Id", message))?;
        }
        let memory = text(headers, SESSION_KEY)?;
        if memory.is_some() && keyless {
            let message = "X-Hermes-Session-Key requires API key authentication; set API_SERVER_KEY";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "api_key_required", message));
        }
        let hops = text(headers, HOPS)?.map_or(Ok(0), |hops| hops.parse());
        let hops = hops.map_err(|_| ApiError::wrong("X-Talaria-Hops", "It must be a number"))?;
        if hops >= TOO_MANY_HOPS {
            return Err(ApiError::circle());
        }
        let takes_partial = match text(headers, PARTIAL)?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(ApiError::wrong("X-Talaria-Partial", "It is true or false")),
        };
        let label = |name| text(headers, name).ok().flatten();
        Ok(Self {
            session,
            memory,
            key: text(headers, IDEMPOTENCY_KEY)?,
            last_event: text(headers, LAST_EVENT_ID)?,
            takes_partial,
            hops,
            origin: TurnOrigin {
                user_id: label("x-hermes-user-id"),
                user_name: label("x-hermes-user-name"),
                chat_id: label("x-hermes-chat-id"),
                chat_name: label("x-hermes-chat-name"),
                chat_type: label("x-hermes-chat-type"),
                thread_id: label("x-hermes-thread-id"),
            },
        })
    }

    /// Adds the headers that name the session and the run of a turn that has begun, also to an error. Without
    /// an idempotency key a client cannot repeat the request safely, so it is told not to retry.
    pub fn name(&self, answer: Result<Response, ApiError>, session: &str, run: &TurnId) -> Response {
        let keyed = self.key.is_some();
        let answer = answer.map_err(|problem| if keyed { problem } else { problem.after_it_began() });
        let mut answer = answer.into_response();
        tell(answer.headers_mut(), session, run);
        if let Some(memory) = &self.memory {
            set(answer.headers_mut(), SESSION_KEY, memory);
        }
        answer
    }
}

/// Adds the headers that name a session and a run.
pub fn tell(headers: &mut HeaderMap, session: &str, run: &TurnId) {
    set(headers, SESSION_ID, session);
    set(headers, RUN_ID, &run.0);
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Checks the name of a session; returns the reason if it is not allowed.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.chars().count() > LONGEST {
        Err("A session id has 1 to 256 characters")
    } else if name.chars().any(char::is_control) || name.contains("..") || name.contains(['/', '\\']) {
        Err("A session id has no control characters, no slashes and no two dots in a row")
    } else {
        Ok(())
    }
}

fn text(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // Proxies and servers disagree on which of two headers counts.
    if values.next().is_some() {
        return Err(ApiError::wrong(name, "The header was sent more than once; send it once"));
    }
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    match text {
        Some("") => Ok(None),
        Some(text) if text.chars().count() <= LONGEST && !text.chars().any(char::is_control) => {
            Ok(Some(text.to_owned()))
        }
        Some(_) | None => {
            Err(ApiError::wrong(name, "The header has at most 256 characters and no control characters"))
        }
    }
}
