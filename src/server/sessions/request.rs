//! What may be said about a session, and how it is checked.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::server::ApiError;
use crate::server::headers::check_name;
use crate::server::submit::fresh_name;
use crate::util::one_line;

/// Characters of a title, a model and a reason.
pub(super) const SHORT: usize = 200;

/// Bytes of what is said in a system message.
const SYSTEM_TEXT: usize = 64 * 1024;

/// What a session begins with. Whatever else is sent changes nothing: whose it is follows from the key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionRequest")]
pub struct NewRequest {
    /// What it is called; a name is made for one that has none.
    #[serde(default)]
    pub id: Option<String>,
    /// The same, as some clients call it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
    /// For people: there is one agent.
    #[serde(default)]
    pub model: Option<String>,
    /// Said in the system message of every turn.
    #[serde(default)]
    pub system_prompt: Option<String>,
}

/// What of a session may be changed, and nothing else.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionChange")]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Another title; `null` for none.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", length(max = 200))]
    pub title: Option<Option<String>>,
    /// Why it is over.
    #[serde(default)]
    pub end_reason: Option<String>,
}

/// What a branch begins with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionForkRequest")]
pub struct ForkRequest {
    /// What it is called; a name is made for one that has none.
    #[serde(default)]
    pub id: Option<String>,
    /// The same, as some clients call it.
    #[serde(default)]
    pub session_id: Option<String>,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
}

/// The name that was asked for, or a new one.
pub(super) fn name(asked: Option<String>) -> Result<String, ApiError> {
    match asked.as_deref().map(str::trim) {
        None | Some("") => Ok(fresh_name()),
        Some(name) => match check_name(name) {
            Ok(()) => Ok(name.to_owned()),
            Err(message) => Err(ApiError::wrong("id", message)),
        },
    }
}

/// A title as rooms show them too: one line. Nothing visible is none.
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

/// What is said to the system, for one turn or for all. Nothing visible is nothing.
pub(super) fn system_text(text: Option<String>, param: &str) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > SYSTEM_TEXT => {
            Err(ApiError::wrong(param, format!("It has at most {SYSTEM_TEXT} bytes")))
        }
        text => Ok(text.filter(|text| !text.trim().is_empty())),
    }
}

/// Tells `null` from nothing at all.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}
