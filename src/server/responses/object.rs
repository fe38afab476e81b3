//! The response object of the Responses API, while its turn runs and when it has ended.

use std::collections::BTreeMap;

use axum::response::Response as HttpResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::sse::SseBuffer;
use super::super::turn_result::TurnResult;
use super::request::RequestEcho;
use crate::reply::TurnOutcome;
use crate::store::StoredResponse;

/// The parts of a response that do not depend on its result.
pub struct ResponseInfo {
    /// Id of the response: `resp_` and the digits of its run.
    pub id: String,
    /// Time of the request, in seconds since 1970.
    pub created: i64,
    /// Whether the response can be retrieved later.
    pub store: bool,
    /// Fields of the request that the response repeats.
    pub echo: RequestEcho,
}

/// The response object on the wire.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Response")]
pub struct ResponseObject<'a> {
    /// `resp_` and the digits of its run.
    id: &'a str,
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    /// `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.
    #[schemars(extend("enum" = ["in_progress", "completed", "incomplete", "failed", "cancelled"]))]
    status: &'static str,
    /// Model name of the request; there is one agent.
    model: &'a str,
    /// The message. In a stream, also the reasoning and steps before it.
    #[schemars(with = "Vec<Map<String, Value>>")]
    output: Vec<Value>,
    /// Why the turn failed.
    error: Option<ResponseError>,
    /// Why it is incomplete.
    incomplete_details: Option<IncompleteDetails>,
    /// Tokens used; null until the turn has ended.
    usage: Option<ResponseUsage>,
    instructions: Option<&'a str>,
    metadata: &'a BTreeMap<String, String>,
    previous_response_id: Option<&'a str>,
    conversation: Option<ConversationRef<'a>>,
    store: bool,
    background: bool,
    temperature: Option<f64>,
    top_p: Option<f64>,
    max_output_tokens: Option<u64>,
    /// Always empty: the agent has its own tools, and a client cannot add any.
    #[schemars(with = "Vec<Value>")]
    tools: [Value; 0],
    tool_choice: &'static str,
    parallel_tool_calls: bool,
    #[schemars(with = "Map<String, Value>")]
    text: Value,
    #[schemars(with = "Map<String, Value>")]
    reasoning: Value,
    truncation: &'static str,
    service_tier: &'static str,
}

/// Why a response failed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseError")]
struct ResponseError {
    /// Always `server_error`, because the protocol knows few codes; the message says what happened.
    code: &'static str,
    message: String,
}

/// Why a response is incomplete.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseIncomplete")]
struct IncompleteDetails {
    reason: &'static str,
}

/// Session that the request named.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseConversation")]
struct ConversationRef<'a> {
    id: &'a str,
}

/// Tokens used by a turn, with the field names of the Responses API.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseUsage")]
struct ResponseUsage {
    input_tokens: u64,
    #[schemars(with = "Map<String, Value>")]
    input_tokens_details: Value,
    output_tokens: u64,
    #[schemars(with = "Map<String, Value>")]
    output_tokens_details: Value,
    total_tokens: u64,
}

/// Confirms that a response was deleted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseDeleted")]
pub struct DeletedResponse {
    pub id: String,
    pub object: &'static str,
    pub deleted: bool,
}

impl ResponseInfo {
    /// Reads a stored response.
    pub fn kept(kept: StoredResponse) -> Self {
        let StoredResponse { id, request, created, .. } = kept;
        let echo = serde_json::from_str(&request).unwrap_or_else(|error| {
            tracing::error!(%error, "the stored request of a response could not be read");
            RequestEcho::default()
        });
        Self { id, created, store: true, echo }
    }

    /// The object while its turn waits or runs.
    pub fn running(&self) -> ResponseObject<'_> {
        self.object("in_progress", Vec::new(), None)
    }

    /// The object when its turn has ended.
    pub fn ended(&self, end: &TurnResult) -> HttpResponse {
        let mut frames = SseBuffer::default();
        let message = (!end.text.is_empty()).then(|| self.message(end, frames.long(&end.text)));
        frames.into_json(&self.ended_with(message.into_iter().collect(), end))
    }

    /// The object when its turn has ended, with these output items.
    pub fn ended_with(&self, output: Vec<Value>, end: &TurnResult) -> ResponseObject<'_> {
        self.object(status(end), output, Some(end))
    }

    /// Id of the response's only message.
    pub fn message_id(&self) -> String {
        format!("msg_{}", self.digits())
    }

    /// Id of the reasoning at this index of the output.
    pub fn reasoning_id(&self, index: usize) -> String {
        format!("rs_{}_{index}", self.digits())
    }

    /// Id of the step at this index of the output.
    pub fn step_id(&self, index: usize) -> String {
        format!("mcp_{}_{index}", self.digits())
    }

    /// The response's only message with its whole text, when the turn has ended.
    pub fn message(&self, end: &TurnResult, text: Value) -> Value {
        let whole = matches!(end.outcome, TurnOutcome::Done);
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant",
            "status": if whole { "completed" } else { "incomplete" }, "content": [text_part(text)],
        })
    }

    fn digits(&self) -> &str {
        self.id.rsplit('_').next().unwrap_or(&self.id)
    }

    fn object(
        &self,
        status: &'static str,
        output: Vec<Value>,
        end: Option<&TurnResult>,
    ) -> ResponseObject<'_> {
        let Self { id, created, store, echo } = self;
        let cut = end.is_some_and(|end| matches!(end.outcome, TurnOutcome::Limit));
        ResponseObject {
            id,
            object: "response",
            created_at: *created,
            status,
            model: &echo.model,
            output,
            error: end.and_then(error),
            incomplete_details: cut.then_some(IncompleteDetails { reason: "max_output_tokens" }),
            usage: end.map(usage),
            instructions: echo.instructions.as_deref(),
            metadata: &echo.metadata,
            previous_response_id: echo.previous_response_id.as_deref(),
            conversation: echo.conversation.as_deref().map(|id| ConversationRef { id }),
            store: *store,
            background: echo.background,
            temperature: echo.temperature,
            top_p: echo.top_p,
            max_output_tokens: echo.max_output_tokens,
            tools: [],
            tool_choice: "auto",
            parallel_tool_calls: true,
            text: json!({ "format": echo.format.clone().unwrap_or_else(|| json!({ "type": "text" })) }),
            reasoning: json!({ "effort": null, "summary": null }),
            truncation: "disabled",
            service_tier: "default",
        }
    }
}

/// Content part of a message.
pub fn text_part(text: Value) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// `status` of a finished response.
pub fn status(end: &TurnResult) -> &'static str {
    match &end.outcome {
        TurnOutcome::Done => "completed",
        TurnOutcome::Limit => "incomplete",
        TurnOutcome::Stopped | TurnOutcome::Cancelled { .. } => "cancelled",
        TurnOutcome::CutShort { .. }
        | TurnOutcome::Failed { .. }
        | TurnOutcome::Unavailable { .. }
        | TurnOutcome::Interrupted
        | TurnOutcome::Unknown { .. } => "failed",
    }
}

/// Name of the last event of a stream.
pub fn last_event(end: &TurnResult) -> &'static str {
    match status(end) {
        "completed" => "response.completed",
        "failed" => "response.failed",
        // The protocol has no event for a stopped response; a client learns at least that it is incomplete.
        _ => "response.incomplete",
    }
}

fn error(end: &TurnResult) -> Option<ResponseError> {
    let message = end.failure.as_ref().filter(|_| status(end) == "failed")?;
    Some(ResponseError { code: "server_error", message: message.clone() })
}

fn usage(end: &TurnResult) -> ResponseUsage {
    let (input, output) = (end.usage.input, end.usage.output);
    ResponseUsage {
        input_tokens: input,
        input_tokens_details: json!({ "cached_tokens": 0, "cache_write_tokens": 0 }),
        output_tokens: output,
        output_tokens_details: json!({ "reasoning_tokens": 0 }),
        total_tokens: input + output,
    }
}
