//! The body of `POST /v1/chat/completions`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::server::ApiError;
use crate::server::content::ChatMessage;
use crate::server::parameters::{ClientParams, FormatSchema, StopSchema, ToolChoice, refuse_tools};

/// Body of a request for a chat completion. Sampling parameters and `response_format` are passed to an agent
/// that is a model; other agents ignore them, and the header `x-talaria-ignored` of the answer names them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ChatRequest {
    /// The history, and as the last message the prompt.
    pub messages: Vec<ChatMessage>,
    /// Name of the agent that answers; any other name means the default agent. Echoed.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether to stream the answer as server-sent events.
    #[serde(default)]
    pub stream: Option<bool>,
    /// Sampling temperature, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 2.0))]
    temperature: Option<Number>,
    /// Nucleus sampling, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 1.0))]
    top_p: Option<Number>,
    /// Most tokens of the answer, for an agent that is a model.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_tokens: Option<u64>,
    /// Newer name of `max_tokens`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_completion_tokens: Option<u64>,
    /// Texts that end the answer, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<StopSchema>")]
    stop: Option<Value>,
    /// Seed for sampling, for an agent that is a model.
    #[serde(default)]
    seed: Option<i64>,
    /// For an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = -2.0, max = 2.0))]
    frequency_penalty: Option<Number>,
    /// For an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = -2.0, max = 2.0))]
    presence_penalty: Option<Number>,
    /// Form of the answer, for an agent that is a model.
    #[serde(default)]
    #[schemars(with = "Option<FormatSchema>")]
    response_format: Option<Value>,
    /// Number of answers; only 1 is supported.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1))]
    n: Option<u64>,
    /// Must be empty unless `tool_choice` is `none`: the agent has its own tools.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
    tools: Option<Value>,
    /// `none` or `auto`.
    #[serde(default)]
    #[schemars(with = "Option<ToolChoice>")]
    tool_choice: Option<Value>,
    /// Older name of `tools`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
    functions: Option<Value>,
    /// Older name of `tool_choice`.
    #[serde(default)]
    #[schemars(with = "Option<ToolChoice>")]
    function_call: Option<Value>,
    /// Not supported; only `false` is accepted.
    #[serde(default)]
    #[schemars(extend("enum" = [false, null]))]
    logprobs: Option<bool>,
    /// Only `["text"]` is supported.
    #[serde(default)]
    #[schemars(with = "Option<Vec<AnswerModality>>")]
    modalities: Option<Vec<String>>,
    /// Ignored.
    #[serde(default)]
    logit_bias: Option<Value>,
    /// Ignored.
    #[serde(default)]
    reasoning_effort: Option<Value>,
    /// Ignored.
    #[serde(default)]
    verbosity: Option<Value>,
    /// Ignored.
    #[serde(default)]
    prediction: Option<Value>,
    /// Ignored.
    #[serde(default)]
    web_search_options: Option<Value>,
}

/// Form of an answer, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
#[schemars(rename = "Modality")]
enum AnswerModality {
    Text,
}

impl ChatRequest {
    /// Checks everything but the messages.
    pub fn params(&mut self) -> Result<ClientParams, ApiError> {
        let tools = (self.tools.as_ref(), "tools");
        refuse_tools(tools, (self.tool_choice.as_ref(), "tool_choice"))?;
        let functions = (self.functions.as_ref(), "functions");
        refuse_tools(functions, (self.function_call.as_ref(), "function_call"))?;
        match self.n {
            None | Some(1) => {}
            Some(0) => return Err(ApiError::wrong("n", "It is at least 1")),
            Some(_) => {
                return Err(ApiError::unsupported("n", "There is one answer to a question; leave it out"));
            }
        }
        if self.logprobs == Some(true) {
            return Err(ApiError::unsupported("logprobs", "The agent does not tell log probabilities"));
        }
        if self.modalities.iter().flatten().any(|kind| kind != "text") {
            return Err(ApiError::unsupported("modalities", "The agent answers in text"));
        }
        let mut params = ClientParams::default();
        params.number("temperature", self.temperature.take(), 0.0..=2.0, |to| &mut to.temperature)?;
        params.number("top_p", self.top_p.take(), 0.0..=1.0, |to| &mut to.top_p)?;
        params.tokens("max_tokens", self.max_tokens, |to| &mut to.max_tokens)?;
        params.tokens("max_completion_tokens", self.max_completion_tokens, |to| {
            &mut to.max_completion_tokens
        })?;
        params.stop(self.stop.take())?;
        params.seed(self.seed);
        params.number("frequency_penalty", self.frequency_penalty.take(), -2.0..=2.0, |to| {
            &mut to.frequency_penalty
        })?;
        params.number("presence_penalty", self.presence_penalty.take(), -2.0..=2.0, |to| {
            &mut to.presence_penalty
        })?;
        params.format("response_format", self.response_format.take())?;
        params.unused("logit_bias", self.logit_bias.as_ref());
        params.unused("reasoning_effort", self.reasoning_effort.as_ref());
        params.unused("verbosity", self.verbosity.as_ref());
        params.unused("prediction", self.prediction.as_ref());
        params.unused("web_search_options", self.web_search_options.as_ref());
        Ok(params)
    }
}
