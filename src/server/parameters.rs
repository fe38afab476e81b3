//! Checks the model parameters of a request and decides which of them reach the agent.
//!
//! No parameter is dropped in silence. Sampling parameters and the output format are passed to an agent that is
//! a model; any other agent ignores them, and the header `x-talaria-ignored` names them. Parameters that no
//! agent here supports are refused, because the answer would look as if it had followed them: tools of the
//! client, several answers at once, log probabilities.

use std::ops::RangeInclusive;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use schemars::JsonSchema;
use serde_json::{Number, Value, json};

use super::ApiError;
use crate::agent::{AgentInfo, ModelParams};

/// Response header that names the ignored parameters.
pub const IGNORED: &str = "x-talaria-ignored";

/// Most entries of `stop`.
const STOPS: usize = 16;

/// The parameters of one request, checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientParams {
    /// Parameters to pass to a model.
    params: ModelParams,
    /// Names of the parameters in `params`, as the client wrote them.
    given: Vec<&'static str>,
    /// Name of the output format as the client wrote it, if it is a JSON schema.
    schema: Option<&'static str>,
    /// Parameters that the client set and no agent uses.
    unused: Vec<&'static str>,
}

/// Parameters for the agent that answers, and the names of those that it ignores.
#[derive(Default)]
pub struct AgentParams {
    /// Parameters to store with the turn.
    pub params: ModelParams,
    ignored: Vec<&'static str>,
}

/// `stop`, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "StopTexts")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
pub enum StopSchema {
    /// One text.
    One(String),
    /// Several texts.
    Several(#[schemars(length(min = 1, max = STOPS))] Vec<String>),
}

/// `response_format`, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", rename = "ResponseFormat")]
#[expect(dead_code, reason = "see `Stop`")]
pub enum FormatSchema {
    /// Any text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema; only for an agent that is a model.
    JsonSchema { json_schema: serde_json::Map<String, Value> },
}

/// `tool_choice`, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", rename = "ToolChoice")]
#[expect(dead_code, reason = "see `Stop`")]
pub enum ToolChoice {
    /// No tool is called.
    None,
    /// The agent decides; it never has tools of the client.
    Auto,
}

impl ClientParams {
    /// Takes a number for a model; refuses one outside `range`.
    pub fn number(
        &mut self,
        name: &'static str,
        value: Option<Number>,
        range: RangeInclusive<f64>,
        field: impl FnOnce(&mut ModelParams) -> &mut Option<Number>,
    ) -> Result<(), ApiError> {
        let Some(value) = value else { return Ok(()) };
        if !value.as_f64().is_some_and(|number| range.contains(&number)) {
            let message = format!("It is a number from {} to {}", range.start(), range.end());
            return Err(ApiError::wrong(name, message));
        }
        *field(&mut self.params) = Some(value);
        self.given.push(name);
        Ok(())
    }

    /// Takes a number of tokens for a model; refuses 0.
    pub fn tokens(
        &mut self,
        name: &'static str,
        value: Option<u64>,
        field: impl FnOnce(&mut ModelParams) -> &mut Option<u64>,
    ) -> Result<(), ApiError> {
        match value {
            None => return Ok(()),
            Some(0) => return Err(ApiError::wrong(name, "It is at least 1")),
            Some(_) => *field(&mut self.params) = value,
        }
        self.given.push(name);
        Ok(())
    }

    /// Takes the seed.
    pub fn seed(&mut self, value: Option<i64>) {
        if value.is_some() {
            self.params.seed = value;
            self.given.push("seed");
        }
    }

    /// Takes the texts that end an answer.
    pub fn stop(&mut self, value: Option<Value>) -> Result<(), ApiError> {
        let is_right = match &value {
            None => return Ok(()),
            Some(Value::String(_)) => true,
            Some(Value::Array(list)) => {
                (1..=STOPS).contains(&list.len()) && list.iter().all(Value::is_string)
            }
            Some(_) => false,
        };
        if !is_right {
            return Err(ApiError::wrong("stop", format!("It is a text, or a list of 1 to {STOPS} texts")));
        }
        self.params.stop = value;
        self.given.push("stop");
        Ok(())
    }

    /// Takes the output format, in the form of chat completions. `name` is the client's name for it.
    pub fn format(&mut self, name: &'static str, format: Option<Value>) -> Result<(), ApiError> {
        let Some(format) = format else { return Ok(()) };
        match format.get("type").and_then(Value::as_str) {
            // The default; nothing to pass on.
            Some("text") => return Ok(()),
            Some("json_object") => {}
            Some("json_schema") if format.get("json_schema").is_some_and(Value::is_object) => {
                self.schema = Some(name);
            }
            Some("json_schema") => {
                return Err(ApiError::wrong(name, "A format of type json_schema needs its schema"));
            }
            Some(_) | None => {
                let message = "Its type is one of text, json_object and json_schema";
                return Err(ApiError::unsupported(name, message));
            }
        }
        self.params.response_format = Some(format);
        self.given.push(name);
        Ok(())
    }

    /// Takes a parameter that no agent uses.
    pub fn unused<T>(&mut self, name: &'static str, value: Option<&T>) {
        if value.is_some() {
            self.unused.push(name);
        }
    }

    /// Decides which parameters this agent gets. Refuses a JSON schema for an agent that is not a model.
    pub fn for_agent(self, agent: &AgentInfo) -> Result<AgentParams, ApiError> {
        let Self { params, given, schema, unused } = self;
        if agent.is_model() {
            return Ok(AgentParams { params, ignored: unused });
        }
        if let Some(name) = schema {
            let message =
                "The agent is no model, so nothing can make its answer follow a JSON schema; leave it out";
            return Err(ApiError::unsupported(name, message));
        }
        // The parameters are not even stored: if a model answers as the fallback, it must not use those that
        // the client was told are ignored.
        let ignored = given.into_iter().chain(unused).collect();
        Ok(AgentParams { params: ModelParams::default(), ignored })
    }
}

impl AgentParams {
    /// Takes the parameters for the agent, leaving none.
    pub fn take(&mut self) -> ModelParams {
        std::mem::take(&mut self.params)
    }

    /// Adds the header that names the ignored parameters.
    pub fn tell(&self, mut response: Response) -> Response {
        if !self.ignored.is_empty()
            && let Ok(names) = HeaderValue::from_str(&self.ignored.join(", "))
        {
            response.headers_mut().insert(HeaderName::from_static(IGNORED), names);
        }
        response
    }
}

/// Refuses tools of the client: the agent has its own, and the server has no way to hand a call back to the
/// client. An empty list is accepted.
pub fn refuse_tools(
    (tools, tools_name): (Option<&Value>, &'static str),
    (choice, choice_name): (Option<&Value>, &'static str),
) -> Result<(), ApiError> {
    let is_none = choice.and_then(Value::as_str) == Some("none");
    match tools {
        None => {}
        Some(Value::Array(list)) if list.is_empty() || is_none => {}
        Some(Value::Array(_)) => {
            let message = "The agent has its own tools and cannot call the client's; leave them out, or send \
                           tool_choice: \"none\"";
            return Err(ApiError::unsupported(tools_name, message));
        }
        Some(_) => return Err(ApiError::wrong(tools_name, "It must be a list")),
    }
    match choice {
        None => Ok(()),
        Some(Value::String(choice)) if matches!(choice.as_str(), "none" | "auto") => Ok(()),
        Some(_) => {
            let message = "The agent chooses among its own tools; send auto or none";
            Err(ApiError::unsupported(choice_name, message))
        }
    }
}

/// Converts the output format of `/v1/responses` to that of chat completions.
pub fn chat_format(format: &Value) -> Value {
    let mut schema = format.as_object().cloned().unwrap_or_default();
    match schema.remove("type") {
        Some(Value::String(kind)) if kind == "json_schema" && schema.contains_key("schema") => {
            json!({ "type": kind, "json_schema": schema })
        }
        Some(kind) => json!({ "type": kind }),
        None => json!({}),
    }
}
