//! Decides what becomes of the parameters of a request that are meant for a model.
//!
//! No parameter is dropped in silence. Sampling and the output format go on to an agent that is a model; any other agent
//! ignores them, and the header `x-talaria-ignored` names them. What no agent here can do is refused, because its answer
//! would pass for one that did it: tools of the client, several answers at once, log probabilities.

use std::ops::RangeInclusive;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use schemars::JsonSchema;
use serde_json::{Number, Value, json};

use super::ApiError;
use crate::agent::{AgentInfo, ModelParams};

/// The response header that names what was ignored.
pub const IGNORED: &str = "x-talaria-ignored";

/// Texts of which each may end an answer.
const STOPS: usize = 16;

/// The parameters of one request, checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientParams {
    /// For a model.
    params: ModelParams,
    /// The client's own names of those.
    given: Vec<&'static str>,
    /// What the client calls the output format, if that is a JSON schema.
    schema: Option<&'static str>,
    /// Parameters that the client set and no agent uses.
    unused: Vec<&'static str>,
}

/// What goes on to the agent, and what the client is told.
pub struct AgentParams {
    /// For the turn.
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
    /// Several.
    Several(#[schemars(length(min = 1, max = STOPS))] Vec<String>),
}

/// `response_format`, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", rename = "ResponseFormat")]
#[expect(dead_code, reason = "see `Stop`")]
pub enum FormatSchema {
    /// Any text.
    Text,
    /// Some JSON object.
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
    /// The agent decides; it has none of the client's.
    Auto,
}

impl ClientParams {
    /// Takes a number for a model.
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

    /// Takes a number of tokens for a model.
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

    /// Takes the output format, in the form of chat completions. `name` is what the client calls it.
    pub fn format(&mut self, name: &'static str, format: Option<Value>) -> Result<(), ApiError> {
        let Some(format) = format else { return Ok(()) };
        match format.get("type").and_then(Value::as_str) {
            // As without it.
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

    /// What the agent that will answer is given of it.
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
        // Not even kept: should a model stand in for the agent, it must not use what the client was told is ignored.
        let ignored = given.into_iter().chain(unused).collect();
        Ok(AgentParams { params: ModelParams::default(), ignored })
    }
}

impl AgentParams {
    /// Takes what goes on to the agent.
    pub fn take(&mut self) -> ModelParams {
        std::mem::take(&mut self.params)
    }

    /// Tells the client what was ignored.
    pub fn tell(&self, mut response: Response) -> Response {
        if !self.ignored.is_empty()
            && let Ok(names) = HeaderValue::from_str(&self.ignored.join(", "))
        {
            response.headers_mut().insert(HeaderName::from_static(IGNORED), names);
        }
        response
    }
}

/// Refuses tools of the client: the agent has its own, and nobody here could hand a call back. An empty list is none.
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

/// The output format of `/v1/responses` as chat completions have it.
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
