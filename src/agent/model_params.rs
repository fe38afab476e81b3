//! Parameters of a client's request that a model is given as they are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Sampling parameters and the output format, under the names of the chat-completions protocol. Stored with the turn, so
/// that a turn that waits over a restart asks its model for the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelParams {
    /// From 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Number>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Number>,
    /// Tokens of the answer, by the older name, which more servers know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Tokens of the answer, by the newer name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// Text that ends the answer: one, or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Value>,
    /// Makes sampling repeatable where the server can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// From -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<Number>,
    /// From -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<Number>,
    /// An object whose `type` is `json_object` or `json_schema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
}

impl ModelParams {
    /// Bytes of those that may be long.
    pub fn bytes(&self) -> usize {
        let long = [&self.stop, &self.response_format].into_iter().flatten();
        long.map(|value| value.to_string().len()).sum()
    }

    /// The parameters that are set, by name.
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => Map::new(),
        }
    }
}
