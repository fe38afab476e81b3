//! What a path names. What is no text names nothing: it is as absent as what is not there, and the answers are the same
//! byte for byte.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::ApiError;
use super::headers::check_name;
use crate::ids::TurnId;

/// The session that a path names.
pub struct SessionName(pub String);

/// The run that a path names.
pub struct RunName(pub TurnId);

/// The response that a path names.
pub struct ResponseName(pub String);

/// The model that a path names.
pub struct ModelName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for ModelName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        named(parts, state).await.map(Self).ok_or_else(ApiError::no_model)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SessionName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = named(parts, state).await.filter(|name| check_name(name).is_ok());
        name.map(Self).ok_or_else(ApiError::no_session)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RunName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        named(parts, state).await.map(|id| Self(TurnId(id))).ok_or_else(ApiError::no_run)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ResponseName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        named(parts, state).await.map(Self).ok_or_else(ApiError::no_response)
    }
}

async fn named<S: Send + Sync>(parts: &mut Parts, state: &S) -> Option<String> {
    Path::from_request_parts(parts, state).await.ok().map(|Path(name)| name)
}
