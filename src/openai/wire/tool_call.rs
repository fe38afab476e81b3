//! A piece of a tool call in a streamed answer.

use std::borrow::Cow;

use serde::Deserialize;

use super::lenient;

/// A piece of a tool call. The first piece of a call has its id and name; the arguments come in many pieces.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ToolCallDelta<'a> {
    /// Number of the call within its message. Some servers leave it out and send each call in one piece.
    #[serde(borrow, default, deserialize_with = "lenient::label")]
    pub index: Option<Cow<'a, str>>,
    /// Id of the call.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub id: Option<Cow<'a, str>>,
    /// The function that is called.
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub function: Option<FunctionDelta<'a>>,
}

/// A piece of the function in a tool call.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct FunctionDelta<'a> {
    /// Name of the tool.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub name: Option<Cow<'a, str>>,
    /// Next piece of the arguments, which are JSON.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub arguments: Option<Cow<'a, str>>,
}
