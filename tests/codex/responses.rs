//! Answers in the protocol of OpenAI's Responses, and what the requests say.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::it::upstream::{Answer, Gate, Request};

/// An answer that is a text in these pieces.
pub fn says<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Answer {
    let message = Message::new(pieces);
    events(&[message.begins(), message.ends()])
}

/// A text of which the second half comes when the gate is open.
pub fn says_behind(first: &str, gate: &Gate, second: &str) -> Answer {
    let message = Message::new([first, second]);
    stream()
        .sends(message.begins_with(1))
        .waits(gate)
        .sends(message.goes_on(1) + &*message.ends() + &*done())
        .ends()
}

/// The beginning of a text, and then nothing until the other end leaves.
pub fn says_half(text: &str) -> Answer {
    stream().sends(Message::new([text]).begins()).hangs()
}

/// The beginning of a text, and then the end of the connection.
pub fn is_cut_after(text: &str) -> Answer {
    stream().sends(Message::new([text]).begins()).closes()
}

/// A thought, and then a text.
pub fn thinks_and_says(thought: &str, text: &str) -> Answer {
    let id = next("rs");
    let part = json!({ "type": "summary_text", "text": thought });
    let item = |summary: Value| json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": null });
    let message = Message::new([text]);
    events(&[
        event("response.output_item.added", json!({ "output_index": 0, "item": item(json!([])) })),
        event(
            "response.reasoning_summary_part.added",
            json!({ "item_id": id, "output_index": 0, "summary_index": 0, "part": { "type": "summary_text", "text": "" } }),
        ),
        event(
            "response.reasoning_summary_text.delta",
            json!({ "item_id": id, "output_index": 0, "summary_index": 0, "delta": thought }),
        ),
        event("response.output_item.done", json!({ "output_index": 0, "item": item(json!([part])) })),
        message.begins(),
        message.ends(),
    ])
}

/// A call of a function.
pub fn calls(name: &str, arguments: &Value) -> Answer {
    events(&[called(None, name, arguments)])
}

/// A call of an MCP server's tool.
pub fn calls_mcp(server: &str, tool: &str, arguments: &Value) -> Answer {
    events(&[called(Some(&format!("mcp__{server}")), tool, arguments)])
}

/// A command that needs a person's approval, with the reason that the model gives.
pub fn runs(command: &str) -> Answer {
    calls(
        "exec_command",
        &json!({ "cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I do this?" }),
    )
}

/// A patch that adds a file with one line.
pub fn adds_file(path: &str, line: &str) -> Answer {
    let patch = format!("*** Begin Patch\n*** Add File: {path}\n+{line}\n*** End Patch\n");
    let item = json!({ "type": "custom_tool_call", "id": next("ctc"), "call_id": next("call"), "name": "apply_patch", "input": patch, "status": "completed" });
    events(&[item_events(&item)])
}

/// A question with options to the person.
pub fn asks(question: &str, options: &[&str]) -> Answer {
    let options: Vec<_> =
        options.iter().map(|label| json!({ "label": label, "description": "as it says" })).collect();
    let question = json!({ "id": "q1", "header": "Choice", "question": question, "options": options });
    calls("request_user_input", &json!({ "questions": [question] }))
}

/// An error of the provider.
pub fn refuses(status: u16) -> Answer {
    let error =
        json!({ "message": "scripted error of the provider", "type": "server_error", "code": "scripted" });
    Answer::status(status, &json!({ "error": error }).to_string())
}

/// The provider says that the conversation is too long for the model.
pub fn has_no_room() -> Answer {
    let error = json!({ "code": "context_length_exceeded", "message": "Your input exceeds the context window of this model." });
    let failed = json!({ "response": { "id": next("resp"), "status": "failed", "error": error } });
    stream().sends(begun() + &*event("response.failed", failed)).ends()
}

/// The items of a request, one line each: role or type, and the words.
pub fn told(request: &Request) -> Vec<String> {
    let items = request.json()["input"].as_array().unwrap().clone();
    let line = |item: &Value| {
        let kind = item["role"].as_str().or(item["type"].as_str()).unwrap_or_default().to_owned();
        let content = if item["content"].is_null() { &item["output"] } else { &item["content"] };
        format!("{kind}: {}", words(content))
    };
    items.iter().map(line).filter(|line| !line.starts_with("developer: ")).collect()
}

/// The names of the tools that a request offers.
pub fn offered(request: &Request) -> Vec<String> {
    let tools = request.json()["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn words(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let part =
        |part: &Value| part["text"].as_str().or(part["image_url"].as_str()).unwrap_or_default().to_owned();
    content.as_str().map_or_else(|| parts.iter().map(part).collect::<Vec<_>>().join("\n"), str::to_owned)
}

/// A text in pieces.
struct Message {
    id: String,
    pieces: Vec<String>,
}

impl Message {
    fn new<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Self {
        Self { id: next("msg"), pieces: pieces.into_iter().map(str::to_owned).collect() }
    }

    fn begins(&self) -> String {
        self.begins_with(self.pieces.len())
    }

    fn begins_with(&self, count: usize) -> String {
        let item = self.item("in_progress", json!([]));
        let added = event("response.output_item.added", json!({ "output_index": 0, "item": item }));
        added + &*self.pieces[..count].iter().map(|piece| self.delta(piece)).collect::<String>()
    }

    fn goes_on(&self, from: usize) -> String {
        self.pieces[from..].iter().map(|piece| self.delta(piece)).collect()
    }

    fn ends(&self) -> String {
        let content = json!([{ "type": "output_text", "text": self.pieces.concat(), "annotations": [] }]);
        event(
            "response.output_item.done",
            json!({ "output_index": 0, "item": self.item("completed", content) }),
        )
    }

    fn delta(&self, piece: &str) -> String {
        let delta = json!({ "item_id": self.id, "output_index": 0, "content_index": 0, "delta": piece });
        event("response.output_text.delta", delta)
    }

    fn item(&self, status: &str, content: Value) -> Value {
        json!({ "type": "message", "id": self.id, "role": "assistant", "status": status, "content": content })
    }
}

fn called(namespace: Option<&str>, name: &str, arguments: &Value) -> String {
    let mut item = json!({ "type": "function_call", "id": next("fc"), "call_id": next("call"), "name": name, "arguments": arguments.to_string(), "status": "completed" });
    if let Some(namespace) = namespace {
        item["namespace"] = json!(namespace);
    }
    item_events(&item)
}

fn item_events(item: &Value) -> String {
    let event = |kind| event(kind, json!({ "output_index": 0, "item": item }));
    event("response.output_item.added") + &*event("response.output_item.done")
}

/// A whole answer of these events.
fn events(events: &[String]) -> Answer {
    stream().sends(events.concat() + &*done()).ends()
}

/// The beginning of a stream.
fn stream() -> Answer {
    Answer::stream().sends(begun())
}

fn begun() -> String {
    event("response.created", json!({ "response": { "id": next("resp") } }))
}

fn done() -> String {
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 120,
    });
    let response = json!({ "id": next("resp"), "object": "response", "status": "completed", "output": [], "usage": usage });
    event("response.completed", json!({ "response": response }))
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = json!(kind);
    format!("event: {kind}\ndata: {data}\n\n")
}

/// An id that no other item has.
fn next(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("{prefix}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
