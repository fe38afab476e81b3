//! A response as the protocol has it, at each of its stages.

use serde_json::{Value, json};

use super::super::ended::Ended;
use super::request::Echo;
use crate::reply::Outcome;
use crate::store::KeptResponse;

/// A response.
pub struct Answer {
    /// What it is called.
    pub id: String,
    /// When it was asked, in seconds since 1970.
    pub created: i64,
    /// Whether it can be found again.
    pub store: bool,
    /// What it repeats of the question.
    pub echo: Echo,
}

impl Answer {
    /// One that was kept.
    pub fn kept(kept: KeptResponse) -> Self {
        let KeptResponse { id, request, created, .. } = kept;
        let echo = serde_json::from_str(&request).unwrap_or_else(|error| {
            tracing::error!(%error, "what of a question is repeated could not be read");
            Echo::default()
        });
        Self { id, created, store: true, echo }
    }

    /// While its turn waits or runs.
    pub fn running(&self) -> Value {
        self.object("in_progress", &[], None)
    }

    /// When its turn is over.
    pub fn ended(&self, end: &Ended) -> Value {
        let message = (!end.text.is_empty()).then(|| self.message(end));
        self.object(status(end), message.as_slice(), Some(end))
    }

    /// The same with these items.
    pub fn ended_with(&self, output: &[Value], end: &Ended) -> Value {
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

    /// Its only message, when it is over.
    pub fn message(&self, end: &Ended) -> Value {
        let whole = matches!(end.outcome, Outcome::Done);
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant",
            "status": if whole { "completed" } else { "incomplete" }, "content": [text_part(&end.text)],
        })
    }

    fn digits(&self) -> &str {
        self.id.rsplit('_').next().unwrap_or(&self.id)
    }

    fn object(&self, status: &str, output: &[Value], end: Option<&Ended>) -> Value {
        let Self { id, created, store, echo } = self;
        let conversation = echo.conversation.as_ref().map(|id| json!({ "id": id }));
        let cut = end.is_some_and(|end| matches!(end.outcome, Outcome::Limit));
        json!({
            "id": id, "object": "response", "created_at": created, "status": status,
            "model": echo.model, "output": output,
            "error": end.and_then(error),
            "incomplete_details": cut.then(|| json!({ "reason": "max_output_tokens" })),
            "usage": end.map(usage),
            "instructions": echo.instructions, "metadata": echo.metadata,
            "previous_response_id": echo.previous_response_id, "conversation": conversation,
            "store": store, "background": echo.background,
            "temperature": echo.temperature, "top_p": echo.top_p,
            "max_output_tokens": echo.max_output_tokens,
            // The agent has its own tools, and a program cannot bring any.
            "tools": [], "tool_choice": "auto", "parallel_tool_calls": true,
            "text": { "format": { "type": "text" } }, "reasoning": { "effort": null, "summary": null },
            "truncation": "disabled", "service_tier": "default",
        })
    }
}

/// Text as a part of a message.
pub fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// How a response came out.
pub fn status(end: &Ended) -> &'static str {
    match &end.outcome {
        Outcome::Done => "completed",
        Outcome::Limit => "incomplete",
        Outcome::Stopped | Outcome::Cancelled { .. } => "cancelled",
        Outcome::CutShort { .. }
        | Outcome::Failed { .. }
        | Outcome::Interrupted
        | Outcome::Unknown { .. } => "failed",
    }
}

/// The last event of a stream.
pub fn last_event(end: &Ended) -> &'static str {
    match status(end) {
        "completed" => "response.completed",
        "failed" => "response.failed",
        // Whoever knows no such event of a stop is told that it is not whole.
        _ => "response.incomplete",
    }
}

/// Why a response failed. The protocol knows few codes; what happened is in the words.
fn error(end: &Ended) -> Option<Value> {
    let message = end.failure.as_ref().filter(|_| status(end) == "failed")?;
    Some(json!({ "code": "server_error", "message": message }))
}

fn usage(end: &Ended) -> Value {
    let (input, output) = (end.usage.input, end.usage.output);
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
        "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + output,
    })
}
