//! The messages of the chat-completions protocol.
//!
//! We write the protocol exactly and read it leniently: servers differ in everything but the core, so an
//! unknown field is skipped, and a field of the wrong type counts as missing. Only input that is not a JSON
//! object is refused. Text is borrowed from the input wherever it has no escapes, because this code runs for
//! every few characters of every answer.

mod approval;
mod chunk_cache;
pub mod lenient;
mod reason;
mod relayed_gap;
mod remark;
#[cfg(test)]
mod tests;
mod tool_call;

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

pub use approval::{APPROVAL_REQUEST, APPROVAL_RESPONDED, ApprovalEvent};
pub use chunk_cache::ChunkCache;
pub use reason::FailureReason;
pub use remark::RelayedRemark;
pub use tool_call::{FunctionDelta, ToolCallChunk, ToolCallDelta};

use crate::agent;
use crate::i18n::LocalizedText;

/// Data of the event that ends a stream.
pub const DONE: &str = "[DONE]";

/// Type of the events that carry [`ToolProgress`].
pub const TOOL_PROGRESS: &str = "hermes.tool.progress";

/// Content of a request.
#[derive(Clone, Copy, Default)]
pub struct CompletionRequest<'a> {
    /// Text of the system message.
    pub context: &'a str,
    /// Messages before the prompt.
    pub history: &'a [agent::SessionMessage],
    /// The prompt as text.
    pub prompt: &'a str,
    /// The prompt in parts; sent instead of `prompt` if there are any.
    pub parts: &'a [agent::PromptPart],
    /// Pictures sent with the prompt.
    pub images: &'a [agent::PromptImage],
    /// Files sent with the prompt.
    pub files: &'a [agent::Attachment],
    /// Sampling and output format; set only for models.
    pub params: Option<&'a agent::ModelParams>,
    /// Whether the history includes tool calls and their results: only for an agent of ours that has tools.
    pub with_tools: bool,
}

impl<'a> From<&'a agent::AgentTurn> for CompletionRequest<'a> {
    fn from(turn: &'a agent::AgentTurn) -> Self {
        Self {
            context: &turn.context,
            history: &turn.history,
            prompt: &turn.prompt,
            parts: &turn.parts,
            images: &turn.images,
            files: &turn.files,
            params: None,
            with_tools: false,
        }
    }
}

/// Builds the body of a request for a streamed answer to `prompt`.
///
/// `context` becomes the system message unless it is blank. Of the history, only messages of users and the
/// agent are sent, and tool calls with their results if the agent has tools; some servers refuse empty messages.
/// `include_usage` asks for token counts, which not every server supports.
pub fn chat_request(model: &str, question: &CompletionRequest<'_>, include_usage: bool) -> Vec<u8> {
    request_body(model, chat_messages(question), question.params, include_usage)
}

/// The messages of a request; see [`chat_request`].
pub fn chat_messages(question: &CompletionRequest<'_>) -> Vec<Value> {
    let CompletionRequest { context, history, prompt, parts: given, images, files, with_tools, .. } =
        *question;
    let mut messages = Vec::with_capacity(history.len() + 2);
    if !is_blank(context) {
        messages.push(message("system", context));
    }
    for agent::SessionMessage { role, content, tools, .. } in history {
        match (role, tools.as_ref().filter(|_| with_tools)) {
            (agent::MessageRole::Assistant, Some(agent::ToolActivity::Calls { tool_calls })) => {
                let content = if is_blank(content) { Value::Null } else { json!(content) };
                messages.push(json!({ "role": "assistant", "content": content, "tool_calls": tool_calls }));
            }
            (agent::MessageRole::Tool, Some(agent::ToolActivity::Result { tool_call_id, .. })) => {
                messages.push(json!({ "role": "tool", "tool_call_id": tool_call_id, "content": content }));
            }
            (agent::MessageRole::Tool | agent::MessageRole::Note, _) => {}
            _ if is_blank(content) => {}
            (agent::MessageRole::User, _) => messages.push(message("user", content)),
            (agent::MessageRole::Assistant, _) => messages.push(message("assistant", content)),
        }
    }
    messages.push(match (given, images, files) {
        ([], [], []) => message("user", prompt),
        ([_, ..], _, _) => json!({ "role": "user", "content": given }),
        ([], images, files) => json!({ "role": "user", "content": parts(prompt, images, files) }),
    });
    messages
}

/// The body of a request with these messages.
pub fn request_body(
    model: &str,
    messages: Vec<Value>,
    params: Option<&agent::ModelParams>,
    include_usage: bool,
) -> Vec<u8> {
    let mut request = json!({ "model": model, "messages": messages, "stream": true });
    if include_usage {
        request["stream_options"] = json!({ "include_usage": true });
    }
    for (name, value) in params.map(agent::ModelParams::fields).unwrap_or_default() {
        request[name] = value;
    }
    // Unlike `to_vec`, this returns no error; there is none for text and flags.
    let mut body = request.to_string();
    // The buffer doubled while it grew, and is held until the agent has sent it.
    body.shrink_to_fit();
    body.into_bytes()
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// Text, pictures and files as parts of one message. They are embedded in the request: an address on this
/// machine would mean nothing at the other end.
fn parts(prompt: &str, images: &[agent::PromptImage], files: &[agent::Attachment]) -> Vec<Value> {
    let text = (!is_blank(prompt)).then(|| json!({ "type": "text", "text": prompt }));
    let pictures = images.iter().map(|image| {
        let url = format!("data:{};base64,{}", image.mime, BASE64_STANDARD.encode(&image.content));
        json!({ "type": "image_url", "image_url": { "url": url } })
    });
    text.into_iter().chain(pictures).chain(files.iter().map(file)).collect()
}

/// One file. The two audio formats that the protocol knows have a form of their own.
fn file(file: &agent::Attachment) -> Value {
    let data = BASE64_STANDARD.encode(&file.content);
    let sound = |format| json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } });
    match file.mime {
        "audio/wav" => sound("wav"),
        "audio/mpeg" => sound("mp3"),
        mime => {
            let data = format!("data:{mime};base64,{data}");
            json!({ "type": "file", "file": { "filename": file.name, "file_data": data } })
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// One chunk of a streamed answer. [`ChunkCache`] parses a whole stream of them more cheaply.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct StreamChunk<'a> {
    /// The first choice; we never ask for more than one.
    #[serde(borrow, default, rename = "choices", deserialize_with = "lenient::first")]
    pub choice: Option<ChunkChoice<'a>>,
    /// Tokens used, usually in one of the last chunks.
    #[serde(default, deserialize_with = "lenient::object")]
    pub usage: Option<ChunkUsage>,
    /// Error after the stream had begun.
    #[serde(borrow, default, deserialize_with = "lenient::error")]
    pub error: Option<ErrorBody<'a>>,
    /// Result of the turn, sent by our own server in the last chunk. Boxed: only that chunk has one, and every chunk is moved.
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub hermes: Option<Box<HermesEnd<'a>>>,
}

/// Result of a turn, as our own server reports it.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct HermesEnd<'a> {
    /// The whole text.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub text: Option<Cow<'a, str>>,
    /// `completed`, `failed` or `cancelled`.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub status: Option<Cow<'a, str>>,
    /// Why the turn failed.
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub reason: Option<FailureReason<'a>>,
    /// Sentences below the answer.
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    pub remarks: Vec<RelayedRemark<'a>>,
}

impl<'a> StreamChunk<'a> {
    /// Parses the data of an event. Fails only if it is not a JSON object.
    pub fn parse(data: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }

    /// Next piece of the answer, if any.
    pub fn text(&self) -> Option<&str> {
        given(&self.delta()?.content)
    }

    /// Next piece of the reasoning, if any.
    pub fn thought(&self) -> Option<&str> {
        let delta = self.delta()?;
        given(&delta.reasoning_content).or_else(|| given(&delta.reasoning))
    }

    /// Why the answer ends here, if it does: `stop`, `length`, `error` and others.
    pub fn finish_reason(&self) -> Option<&str> {
        given(&self.choice.as_ref()?.finish_reason)
    }

    /// The whole text of a complete answer, if the server repeats it at the end.
    pub fn whole(&self) -> Option<&str> {
        let hermes = self.hermes.as_ref()?;
        hermes.text.as_deref().filter(|_| hermes.status.as_deref() == Some("completed"))
    }

    /// Why the turn failed, if our own server reports it.
    pub fn reason(&self) -> Option<LocalizedText> {
        self.hermes.as_ref()?.reason.as_ref()?.words()
    }

    /// Sentences below the answer, if our own server reports any.
    pub fn remarks(&self) -> impl Iterator<Item = LocalizedText> {
        self.hermes.iter().flat_map(|hermes| &hermes.remarks).filter_map(RelayedRemark::words)
    }

    /// Whether the server reports that the turn was stopped there.
    pub fn is_cancelled(&self) -> bool {
        self.hermes.as_ref().is_some_and(|hermes| hermes.status.as_deref() == Some("cancelled"))
    }

    fn delta(&self) -> Option<&ChunkDelta<'a>> {
        self.choice.as_ref()?.delta.as_ref()
    }
}

/// Filters out empty text, as in the first chunk of many servers.
fn given<'t>(text: &'t Option<Cow<'_, str>>) -> Option<&'t str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// One of the answers that a server may give in parallel; we ask for one.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ChunkChoice<'a> {
    /// New content.
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    pub delta: Option<ChunkDelta<'a>>,
    /// See [`StreamChunk::finish_reason`].
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub finish_reason: Option<Cow<'a, str>>,
}

/// New content of an answer.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ChunkDelta<'a> {
    /// Next piece of the answer.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub content: Option<Cow<'a, str>>,
    /// Next piece of the reasoning, under its most common name.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub reasoning_content: Option<Cow<'a, str>>,
    /// Next piece of the reasoning, under its other name. Some servers send both, so this cannot be an alias.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub reasoning: Option<Cow<'a, str>>,
}

/// Tokens that a turn used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ChunkUsage {
    /// Tokens of the prompt.
    #[serde(default, deserialize_with = "lenient::number")]
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    #[serde(default, deserialize_with = "lenient::number")]
    pub completion_tokens: u64,
}

impl From<ChunkUsage> for agent::TokenUsage {
    fn from(usage: ChunkUsage) -> Self {
        Self { input: usage.prompt_tokens, output: usage.completion_tokens }
    }
}

/// Error object of a server. For the log and for classifying the error; never for a room.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ErrorBody<'a> {
    /// Description of the error, in the server's words.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub message: Option<Cow<'a, str>>,
    /// The class of the error, such as `rate_limit_error`.
    #[serde(borrow, default, rename = "type", deserialize_with = "lenient::text")]
    pub kind: Option<Cow<'a, str>>,
    /// A finer code; some servers put the HTTP status here as a number.
    #[serde(borrow, default, deserialize_with = "lenient::label")]
    pub code: Option<Cow<'a, str>>,
    /// Outcome of the turn, which our own server sends beside such a number.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub outcome: Option<Cow<'a, str>>,
}

impl ErrorBody<'_> {
    /// The most specific name of the error.
    pub fn name(&self) -> Option<&str> {
        self.outcome.as_deref().or(self.code.as_deref())
    }
}

/// Progress of a tool call, as hermes-agent and our own server report it.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ToolProgress<'a> {
    /// The name of the tool.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub tool: Option<Cow<'a, str>>,
    /// Emoji for the tool.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub emoji: Option<Cow<'a, str>>,
    /// Subject of the call in one line from our own server. From any other it may contain anything that the agent saw, and
    /// is not for rooms.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub label: Option<Cow<'a, str>>,
    /// Id of the call, equal in all of its events.
    #[serde(borrow, default, rename = "toolCallId", deserialize_with = "lenient::label")]
    pub call_id: Option<Cow<'a, str>>,
    /// `running`, `completed` and others.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    pub status: Option<Cow<'a, str>>,
}

impl<'a> ToolProgress<'a> {
    /// Parses the data of an event of the type [`TOOL_PROGRESS`]. Fails only if it is not a JSON object.
    pub fn parse(data: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }
}
