//! Errors in the form that clients of this surface know: `{ok: false, error, detail}`.
//!
//! Every error of the server is an [`ApiError`], also those of authentication, limits and unknown methods. Around everything,
//! this writes the ones for a path of this surface anew; status and headers stay.

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::ApiError;
use crate::util::one_line;

/// Most characters of each text.
const LONGEST: usize = 200;

/// Body of every error response of this surface.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ForgeProblem")]
pub struct ForgeErrorSchema {
    /// Always `false`.
    ok: bool,
    /// What is wrong, in one word for programs.
    error: String,
    /// What is wrong and what to do, for people.
    detail: String,
}

/// Whether a path belongs to this surface, also if there is nothing at it.
pub fn is_forge_path(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    first.is_some_and(|first| ["sessions", "run", "files", "admin", "healthz"].contains(&first))
}

/// Middleware around the whole server: writes errors for this surface in its form.
pub async fn reshape(request: Request, next: Next) -> Response {
    let is_forge = is_forge_path(request.uri().path());
    let mut response = next.run(request).await;
    let problem = response.extensions_mut().remove::<ApiError>();
    let Some(problem) = problem.filter(|_| is_forge) else { return response };
    let (error, detail) = words(&problem);
    let Ok(body) = serde_json::to_vec(&ForgeErrorSchema { ok: false, error, detail }) else {
        return response;
    };
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    response.map(|_| Body::from(body))
}

/// The two texts of an error.
pub(super) fn words(problem: &ApiError) -> (String, String) {
    let detail = match &problem.param {
        Some(param) => format!("{param}: {}", problem.message),
        None => problem.message.clone(),
    };
    (problem.code.to_owned(), short(&detail))
}

/// A text for people, on one line and cut to size.
pub(super) fn short(text: &str) -> String {
    one_line(text, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_surface_are_known_by_their_first_part() {
        for path in
            ["/sessions", "/sessions/", "/sessions/a/turn", "/run", "/files/", "/admin/tokens/x", "/healthz"]
        {
            assert!(is_forge_path(path), "{path}");
        }
        for path in ["/", "/api/sessions", "/v1/runs", "/sessionsx", "/health", "//run", "/v1/run"] {
            assert!(!is_forge_path(path), "{path}");
        }
    }

    #[test]
    fn an_error_has_two_short_texts() {
        let (error, detail) = words(&ApiError::wrong("agent", "x\ny ".repeat(200)));
        assert_eq!(error, "invalid_request");
        assert!(detail.starts_with("agent: x y ") && detail.chars().count() <= LONGEST, "{detail}");
    }
}
