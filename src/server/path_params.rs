//! Extracts ids from request paths. An invalid id is answered exactly like an unknown one, so that probing
//! reveals nothing.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::ApiError;
use super::headers::check_name;
use crate::ids::TurnId;

/// Session name in a path.
pub struct SessionName(pub String);

/// Run id in a path.
pub struct RunName(pub TurnId);

/// Response id in a path.
pub struct ResponseName(pub String);

/// Model name in a path.
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
