//! The body of `POST /v1/responses`, and the part of it that the response repeats.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::super::ApiError;
use super::super::content::{ParsedMessages, join_system};
use super::super::headers::check_name;
use super::super::parameters::{ClientParams, ToolChoice, chat_format, refuse_tools};
use super::input::{InputSchema, read_input};

/// Limits of `metadata` in the protocol: entries, characters of a name, characters of a value.
const METADATA: (usize, usize, usize) = (16, 64, 512);

/// Body of a request for a response. Sampling parameters and `text.format` are passed to an agent that is a
/// model; other agents ignore them, and the header `x-talaria-ignored` of the response names them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ResponsesRequest {
    /// Text, or a list of messages and parts.
    #[serde(default)]
    #[schemars(!default, with = "InputSchema")]
    pub input: Value,
    /// Added to the system message of this turn alone.
    #[serde(default)]
    pub instructions: Option<String>,
    /// Id of the response that this one continues.
    #[serde(default)]
    pub previous_response_id: Option<String>,
    /// Session of this turn: its name, or an object with its `id`.
    #[serde(default)]
    #[schemars(with = "Option<ConversationSchema>")]
    pub conversation: Option<Value>,
    /// Whether the response can be retrieved later. Default: true.
    #[serde(default)]
    pub store: Option<bool>,
    /// Whether to stream the response as server-sent events.
    #[serde(default)]
    pub stream: Option<bool>,
    /// Whether to respond at once and let the turn run; the response is retrieved later.
    #[serde(default)]
    pub background: Option<bool>,
    /// Name of the agent that answers; any other name means the default agent. Echoed.
    #[serde(default)]
    pub model: Option<String>,
    /// Repeated in the response.
    #[serde(default)]
    #[schemars(extend("maxProperties" = METADATA.0))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Sampling temperature, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 2.0))]
    pub temperature: Option<Number>,
    /// Nucleus sampling, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 1.0))]
    pub top_p: Option<Number>,
    /// Most tokens of the answer, for an agent that is a model, which gets it as `max_tokens`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<u64>,
    /// Form of the text. `format` is passed to an agent that is a model.
    #[serde(default)]
    pub text: Option<TextOptions>,
    /// Must be empty unless `tool_choice` is `none`: the agent has its own tools.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
    pub tools: Option<Value>,
    /// `none` or `auto`.
    #[serde(default)]
    #[schemars(with = "Option<ToolChoice>")]
    pub tool_choice: Option<Value>,
    /// Not supported: the server stores no prompt templates.
    #[serde(default)]
    #[schemars(with = "()")]
    pub prompt: Option<Value>,
    /// Not supported; only 0 is accepted.
    #[serde(default)]
    #[schemars(range(min = 0, max = 0))]
    pub top_logprobs: Option<u64>,
    /// Ignored.
    #[serde(default)]
    pub reasoning: Option<Value>,
    /// Ignored: the response always contains everything there is.
    #[serde(default)]
    pub include: Option<Vec<Value>>,
    /// Ignored.
    #[serde(default)]
    pub max_tool_calls: Option<u64>,
}

/// Form of the answer's text.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TextOptions {
    /// Passed to an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<TextFormat>")]
    format: Option<Value>,
    /// Ignored.
    #[serde(default)]
    verbosity: Option<Value>,
}

/// `text.format`, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
enum TextFormat {
    /// Any text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema; only for an agent that is a model.
    JsonSchema { name: String, schema: Map<String, Value> },
}

/// JSON forms of [`ResponsesRequest::conversation`], for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ConversationName")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
enum ConversationSchema {
    /// The name of a session.
    Id(String),
    /// An object with the name of a session.
    Object { id: String },
}

/// Fields of a request that every response to it repeats. Stored as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestEcho {
    pub model: String,
    pub instructions: Option<String>,
    pub previous_response_id: Option<String>,
    pub conversation: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub background: bool,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub max_output_tokens: Option<u64>,
    /// `text.format`, if one was asked for.
    pub format: Option<Value>,
}

/// A request that has passed all checks.
pub struct CheckedRequest {
    pub spoken: ParsedMessages,
    pub echo: RequestEcho,
    pub params: ClientParams,
    pub store: bool,
    pub stream: bool,
}

impl ResponsesRequest {
    /// Checks the whole request. `model` is the name to echo if the request has none.
    pub fn read(self, model: &str) -> Result<CheckedRequest, ApiError> {
        let params = self.params()?;
        let mut spoken = read_input(&self.input)?;
        let conversation = self.conversation.as_ref().map(read_conversation).transpose()?;
        let (store, background) = (self.store.unwrap_or(true), self.background.unwrap_or_default());
        if self.previous_response_id.is_some() && conversation.is_some() {
            let message = "Name either the response that this one goes on from, or a conversation";
            return Err(ApiError::wrong("previous_response_id", message));
        }
        if self.previous_response_id.is_some() && !spoken.history.is_empty() {
            let message = "What was said before is known from previous_response_id; send only what is new";
            return Err(ApiError::wrong("input", message));
        }
        if background && !store {
            let message = "What runs in the background must be stored, or nobody could find it";
            return Err(ApiError::wrong("background", message));
        }
        let metadata = self.metadata.unwrap_or_default();
        check_metadata(&metadata)?;
        let instructions = self.instructions.filter(|text| !text.trim().is_empty());
        spoken.system = join_system([instructions.clone(), spoken.system]);
        let echo = RequestEcho {
            model: self.model.unwrap_or_else(|| model.to_owned()),
            instructions,
            previous_response_id: self.previous_response_id,
            conversation,
            metadata,
            background,
            temperature: self.temperature.and_then(|number| number.as_f64()),
            top_p: self.top_p.and_then(|number| number.as_f64()),
            max_output_tokens: self.max_output_tokens,
            format: self.text.and_then(|text| text.format),
        };
        Ok(CheckedRequest { spoken, echo, params, store, stream: self.stream.unwrap_or_default() })
    }

    /// Checks the parameters for a model, and refuses those that no agent supports.
    fn params(&self) -> Result<ClientParams, ApiError> {
        refuse_tools((self.tools.as_ref(), "tools"), (self.tool_choice.as_ref(), "tool_choice"))?;
        if self.prompt.is_some() {
            let message = "The server keeps no prompts; send the text as instructions and input";
            return Err(ApiError::unsupported("prompt", message));
        }
        if self.top_logprobs.is_some_and(|count| count > 0) {
            return Err(ApiError::unsupported("top_logprobs", "The agent does not tell log probabilities"));
        }
        let mut params = ClientParams::default();
        params.number("temperature", self.temperature.clone(), 0.0..=2.0, |to| &mut to.temperature)?;
        params.number("top_p", self.top_p.clone(), 0.0..=1.0, |to| &mut to.top_p)?;
        params.tokens("max_output_tokens", self.max_output_tokens, |to| &mut to.max_tokens)?;
        if let Some(text) = &self.text {
            params.format("text.format", text.format.as_ref().map(chat_format))?;
            params.unused("text.verbosity", text.verbosity.as_ref());
        }
        params.unused("reasoning", self.reasoning.as_ref());
        params.unused("include", self.include.as_ref().filter(|include| !include.is_empty()));
        params.unused("max_tool_calls", self.max_tool_calls.as_ref());
        Ok(params)
    }
}

impl RequestEcho {
    /// JSON to store; see [`ResponseInfo::kept`](super::object::ResponseInfo::kept).
    pub fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| {
            tracing::error!(%error, "the request of a response could not be written");
            "{}".to_owned()
        })
    }
}

fn read_conversation(value: &Value) -> Result<String, ApiError> {
    let name = match value {
        Value::Object(object) => object.get("id").and_then(Value::as_str),
        other => other.as_str(),
    };
    let name = name.ok_or_else(|| ApiError::wrong("conversation", "It is an id, or an object with an id"))?;
    check_name(name).map_err(|message| ApiError::wrong("conversation", message))?;
    Ok(name.to_owned())
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let (entries, name, value) = METADATA;
    let long = |(key, text): (&String, &String)| key.chars().count() > name || text.chars().count() > value;
    match metadata.len() > entries || metadata.iter().any(long) {
        false => Ok(()),
        true => {
            let message =
                format!("At most {entries} entries, names of {name} and values of {value} characters");
            Err(ApiError::wrong("metadata", message))
        }
    }
}
