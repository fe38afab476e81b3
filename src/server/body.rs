//! A request's JSON, read within its bounds.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use super::Problem;

/// Bytes of a request.
pub const LARGEST: usize = 10_000_000;

/// How deep its JSON may be nested.
const DEPTH: usize = 64;

/// A request as it came and as it is read.
pub struct Body<T> {
    /// Byte for byte, for what must be the same when it is asked again.
    pub bytes: Bytes,
    /// What it says.
    pub value: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state).await.map_err(too_large)?;
        let value = read(&bytes)?;
        Ok(Self { bytes, value })
    }
}

fn too_large(rejection: BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("The request is larger than {LARGEST} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "invalid_body", "The request broke off before its end"),
    }
}

/// Reads JSON; nothing at all counts as an empty object.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if deeper_than(bytes, DEPTH) {
        let message = format!("The JSON is nested deeper than {DEPTH} levels");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_json", message));
    }
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        let code = if error.is_data() { "invalid_request" } else { "invalid_json" };
        Problem::new(StatusCode::BAD_REQUEST, code, format!("The request is not understood: {error}"))
    })
}

/// Whether brackets are nested deeper than this, outside of strings.
fn deeper_than(json: &[u8], most: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'[' | b'{') => {
                depth += 1;
                if depth > most {
                    return true;
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        assert!(!deeper_than(br#"{"a":"[[[[[[\"[["}"#, 1));
        assert!(!deeper_than(b"[][][][]", 1));
        assert!(deeper_than(b"[[]]", 1));
        assert!(read::<serde_json::Value>(&[b'['; 1000]).is_err());
    }
}
