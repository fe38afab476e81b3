//! Bodies of requests that create, change and fork a session, and their checks.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::server::ApiError;
use crate::server::headers::check_name;
use crate::server::submit::fresh_name;
use crate::util::one_line;

/// Most characters of a title, a model and a reason.
pub(super) const SHORT: usize = 200;

/// Most bytes of a session's system prompt, and of a system message.
const SYSTEM_TEXT: usize = 64 * 1024;

/// Body of a request that creates a session. Other fields are ignored; the owner of the session follows from
/// the key alone.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionRequest")]
pub struct NewRequest {
    /// Name of the session; without it, the server makes one.
    #[serde(default)]
    pub id: Option<String>,
    /// Other name of `id`, as some clients send it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Title for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Name of the agent that answers in the session. Any other name is for people, and means the default agent.
    #[serde(default)]
    pub model: Option<String>,
    /// Added to the system message of every turn.
    #[serde(default)]
    pub system_prompt: Option<String>,
}

/// Body of a request that changes a session. Other fields are refused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionChange")]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// New title; `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", length(max = 200))]
    pub title: Option<Option<String>>,
    /// Ends the session, for this reason.
    #[serde(default)]
    pub end_reason: Option<String>,
}

/// Body of a request that forks a session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionForkRequest")]
pub struct ForkRequest {
    /// Name of the fork; without it, the server makes one.
    #[serde(default)]
    pub id: Option<String>,
    /// Other name of `id`, as some clients send it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Title for people.
    #[serde(default)]
    pub title: Option<String>,
}

/// The name that the client chose, or a new one.
pub(super) fn name(asked: Option<String>) -> Result<String, ApiError> {
    match asked.as_deref().map(str::trim) {
        None | Some("") => Ok(fresh_name()),
        Some(name) => match check_name(name) {
            Ok(()) => Ok(name.to_owned()),
            Err(message) => Err(ApiError::wrong("id", message)),
        },
    }
}

/// Cleans a title as rooms show it: one line. A title without visible characters is none.
pub(super) fn title(title: Option<String>) -> Result<Option<String>, ApiError> {
    let title = short(title, "title")?;
    Ok(title.map(|title| one_line(&title, SHORT)).filter(|title| !title.is_empty()))
}

pub(super) fn short(text: Option<String>, param: &str) -> Result<Option<String>, ApiError> {
    let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if text.as_deref().is_some_and(|text| text.chars().count() > SHORT || text.chars().any(char::is_control))
    {
        let message = format!("It has at most {SHORT} characters and no control characters");
        return Err(ApiError::wrong(param, message));
    }
    Ok(text)
}

/// Checks a text for the system message, of one turn or of all. A blank text is none.
pub(super) fn system_text(text: Option<String>, param: &str) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > SYSTEM_TEXT => {
            Err(ApiError::wrong(param, format!("It has at most {SYSTEM_TEXT} bytes")))
        }
        text => Ok(text.filter(|text| !text.trim().is_empty())),
    }
}

/// Tells `null` from an absent field.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}
