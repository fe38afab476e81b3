//! A piece of a tool call in a streamed answer.
//!
//! It is read apart from the rest of a chunk: most readers of streams want no tool calls, and most chunks have none.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;

use super::lenient;

/// The tool calls of one chunk.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ToolCallChunk<'a> {
    #[serde(borrow, default, rename = "choices", deserialize_with = "lenient::first")]
    choice: Option<ToolCallChoice<'a>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct ToolCallChoice<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    delta: Option<ToolCallList<'a>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct ToolCallList<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    tool_calls: Vec<ToolCallDelta<'a>>,
}

impl<'a> ToolCallChunk<'a> {
    /// Reads the tool calls in the data of an event; none if it has none.
    pub fn read(data: &'a str) -> Self {
        match memmem::find(data.as_bytes(), br#""tool_calls""#) {
            Some(_) => serde_json::from_str(data).unwrap_or_default(),
            None => Self::default(),
        }
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[ToolCallDelta<'a>] {
        let delta = self.choice.as_ref().and_then(|choice| choice.delta.as_ref());
        delta.map_or(&[], |delta| &delta.tool_calls)
    }
}

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
