//! What may be asked of `/v1/chat/completions`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::server::ApiError;
use crate::server::content::ChatMessage;
use crate::server::parameters::{ClientParams, FormatSchema, StopSchema, ToolChoice, refuse_tools};

/// A request. Sampling and `response_format` go on to an agent that is a model; others ignore them, and the header
/// `x-talaria-ignored` of the answer names them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ChatRequest {
    /// What was said before, and at its end what is asked.
    pub messages: Vec<ChatMessage>,
    /// Echoed; there is one agent.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether the answer comes as it grows.
    #[serde(default)]
    pub stream: Option<bool>,
    /// For a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 2.0))]
    temperature: Option<Number>,
    /// For a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 1.0))]
    top_p: Option<Number>,
    /// For a model: the most tokens of the answer.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_tokens: Option<u64>,
    /// The same by its newer name.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_completion_tokens: Option<u64>,
    /// For a model: text that ends the answer.
    #[serde(default)]
    #[schemars(with = "Option<StopSchema>")]
    stop: Option<Value>,
    /// For a model.
    #[serde(default)]
    seed: Option<i64>,
    /// For a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = -2.0, max = 2.0))]
    frequency_penalty: Option<Number>,
    /// For a model.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = -2.0, max = 2.0))]
    presence_penalty: Option<Number>,
    /// For a model.
    #[serde(default)]
    #[schemars(with = "Option<FormatSchema>")]
    response_format: Option<Value>,
    /// How many answers: one.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1))]
    n: Option<u64>,
    /// The agent has its own. Refused unless it is empty or `tool_choice` is `none`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
    tools: Option<Value>,
    /// `none` or `auto`.
    #[serde(default)]
    #[schemars(with = "Option<ToolChoice>")]
    tool_choice: Option<Value>,
    /// The older name of `tools`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
    functions: Option<Value>,
    /// The older name of `tool_choice`.
    #[serde(default)]
    #[schemars(with = "Option<ToolChoice>")]
    function_call: Option<Value>,
    /// Not supported.
    #[serde(default)]
    #[schemars(extend("enum" = [false, null]))]
    logprobs: Option<bool>,
    /// `["text"]`.
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

/// In which form an answer comes, for the OpenAPI document.
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
