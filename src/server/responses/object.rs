//! A response as the protocol has it, at each of its stages.

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

/// What is known of a response besides how it comes out.
pub struct ResponseInfo {
    /// What it is called.
    pub id: String,
    /// When it was asked, in seconds since 1970.
    pub created: i64,
    /// Whether it can be found again.
    pub store: bool,
    /// What it repeats of the question.
    pub echo: RequestEcho,
}

/// A response as it goes over the wire.
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
    /// What was asked for; there is one agent.
    model: &'a str,
    /// The message, and for whoever reads along what was thought and done before it.
    #[schemars(with = "Vec<Map<String, Value>>")]
    output: Vec<Value>,
    /// Why it failed.
    error: Option<ResponseError>,
    /// Why it is not whole.
    incomplete_details: Option<IncompleteDetails>,
    /// What it cost, when it is over.
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
    /// The agent has its own tools, and a program cannot bring any.
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
    /// The protocol knows few; what happened is in the words.
    code: &'static str,
    message: String,
}

/// Why a response is not whole.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseIncomplete")]
struct IncompleteDetails {
    reason: &'static str,
}

/// The session that was named.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseConversation")]
struct ConversationRef<'a> {
    id: &'a str,
}

/// Tokens, as this protocol counts them.
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

/// A response that was forgotten.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseDeleted")]
pub struct DeletedResponse {
    pub id: String,
    pub object: &'static str,
    pub deleted: bool,
}

impl ResponseInfo {
    /// One that was kept.
    pub fn kept(kept: StoredResponse) -> Self {
        let StoredResponse { id, request, created, .. } = kept;
        let echo = serde_json::from_str(&request).unwrap_or_else(|error| {
            tracing::error!(%error, "what of a question is repeated could not be read");
            RequestEcho::default()
        });
        Self { id, created, store: true, echo }
    }

    /// While its turn waits or runs.
    pub fn running(&self) -> ResponseObject<'_> {
        self.object("in_progress", Vec::new(), None)
    }

    /// When its turn is over.
    pub fn ended(&self, end: &TurnResult) -> HttpResponse {
        let mut frames = SseBuffer::default();
        let message = (!end.text.is_empty()).then(|| self.message(end, frames.long(&end.text)));
        frames.into_json(&self.ended_with(message.into_iter().collect(), end))
    }

    /// The same with these items.
    pub fn ended_with(&self, output: Vec<Value>, end: &TurnResult) -> ResponseObject<'_> {
        self.object(status(end), output, Some(end))
    }

    /// What its only message is called.
    pub fn message_id(&self) -> String {
        format!("msg_{}", self.digits())
    }

    /// What the reasoning that is its item of this number is called.
    pub fn reasoning_id(&self, index: usize) -> String {
        format!("rs_{}_{index}", self.digits())
    }

    /// What the step that is its item of this number is called.
    pub fn step_id(&self, index: usize) -> String {
        format!("mcp_{}_{index}", self.digits())
    }

    /// Its only message, when it is over, with the whole text.
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

/// Text as a part of a message.
pub fn text_part(text: Value) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// How a response came out.
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

/// The last event of a stream.
pub fn last_event(end: &TurnResult) -> &'static str {
    match status(end) {
        "completed" => "response.completed",
        "failed" => "response.failed",
        // Whoever knows no such event of a stop is told that it is not whole.
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
