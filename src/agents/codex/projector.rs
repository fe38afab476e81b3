//! Turns completed items of codex into messages of our transcript. Pure.
//!
//! An item that ran a tool becomes a message with one call and the message with its result, so a transcript is legal
//! after every item. Only items make messages, never deltas, and only when they end: by themselves or with their turn. Everything in an item is a stranger's text: names are
//! cleaned, arguments and results are cut to size.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::patch_summary::PatchSummary;
use crate::agent::{MessageRole, SessionMessage};
use crate::agents::call_messages::{CallMessages, EndedCall, NO_END, arguments_text, clean_name};
use crate::agents::sorted_json::{list_field, sorted, text_field};
use crate::agents::tools::cap_result;
use crate::reply::spoken_text;

/// Bytes of a note. It is only read by people who look for a reason.
const NOTE_BYTES: usize = 4 * 1024;

/// Calls that run at once and are remembered for the case that the turn ends first.
const OPEN_CALLS: usize = 32;

/// The transcript of one turn as it grows.
#[derive(Debug)]
pub struct Projector {
    /// Calls of tools so far.
    calls: CallMessages,
    /// Reasoning since the last message of the agent; the next one takes it.
    reasoning: String,
    /// Whether the prompt has come back as an item. The engine has stored it already.
    has_prompt: bool,
    /// Calls that began and did not end, by their items; at most [`OPEN_CALLS`].
    open_calls: VecDeque<(String, EndedCall)>,
}

impl Projector {
    /// A turn of this thread that begins.
    pub fn new(thread: &str) -> Self {
        Self {
            calls: CallMessages::new(thread),
            reasoning: String::new(),
            has_prompt: false,
            open_calls: VecDeque::new(),
        }
    }

    /// Remembers an item that began, in case it does not end before its turn.
    pub fn started(&mut self, item: &Value) {
        let (id, Some(call)) = (text_field(item, "id"), ended_call(item)) else { return };
        self.open_calls.retain(|(known, _)| known != id);
        if self.open_calls.len() == OPEN_CALLS {
            self.open_calls.pop_front();
        }
        let id = id[..id.floor_char_boundary(NOTE_BYTES)].to_owned();
        self.open_calls.push_back((id, EndedCall { result: NO_END.to_owned(), ..call }));
    }

    /// The messages of the calls that did not end before their turn. Codex does not complete items that an interrupt
    /// ended, and a command may outlive a turn that is complete.
    pub fn broken_off(&mut self) -> Vec<SessionMessage> {
        let open = std::mem::take(&mut self.open_calls);
        open.into_iter().flat_map(|(id, call)| self.tool_call(&id, call)).collect()
    }

    /// The messages of a completed item, in order. None for reasoning, which the next message of the agent takes, and for
    /// the prompt, which the engine has stored.
    pub fn completed(&mut self, item: &Value) -> Vec<SessionMessage> {
        let id = text_field(item, "id");
        if let Some(call) = ended_call(item) {
            self.open_calls.retain(|(known, _)| known != id);
            return self.tool_call(id, call);
        }
        match text_field(item, "type") {
            "" => Vec::new(),
            "userMessage" => self.user_message(item),
            "agentMessage" => self.agent_message(text_field(item, "text")),
            "reasoning" => {
                self.keep_reasoning(item);
                Vec::new()
            }
            kind => vec![note(kind, &note_text(kind, item))],
        }
    }

    /// Number of tool calls of the turn so far.
    pub fn tool_iterations(&self) -> u32 {
        self.calls.count()
    }

    /// The prompt comes first and makes no message. Further messages of a user, such as one that codex adds by itself,
    /// are notes: nobody said them here.
    fn user_message(&mut self, item: &Value) -> Vec<SessionMessage> {
        if !std::mem::replace(&mut self.has_prompt, true) {
            return Vec::new();
        }
        let texts = list_field(item, "content").iter().filter(|part| part["type"] == "text");
        let text = texts.map(|part| text_field(part, "text")).collect::<Vec<_>>().join("\n");
        if text.trim().is_empty() { Vec::new() } else { vec![note("userMessage", &text)] }
    }

    fn agent_message(&mut self, text: &str) -> Vec<SessionMessage> {
        let text = spoken_text(text);
        match text.trim() {
            "" => Vec::new(),
            text => {
                let reasoning = self.take_reasoning();
                vec![SessionMessage { reasoning, ..SessionMessage::new(MessageRole::Assistant, text) }]
            }
        }
    }

    /// Keeps the summary, which is what people are shown of it, or else the reasoning itself.
    fn keep_reasoning(&mut self, item: &Value) {
        let parts = [list_field(item, "summary"), list_field(item, "content")];
        let parts = parts.into_iter().find(|parts| !parts.is_empty()).unwrap_or_default();
        for part in parts.iter().filter_map(Value::as_str).filter(|part| !part.trim().is_empty()) {
            if !self.reasoning.is_empty() {
                self.reasoning.push_str("\n\n");
            }
            self.reasoning.push_str(part);
        }
        self.reasoning = cap_result(std::mem::take(&mut self.reasoning));
    }

    fn take_reasoning(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.reasoning)).filter(|reasoning| !reasoning.is_empty())
    }

    fn tool_call(&mut self, item_id: &str, call: EndedCall) -> Vec<SessionMessage> {
        let reasoning = self.take_reasoning();
        self.calls.of(item_id, call, reasoning)
    }
}

/// The call of an item that runs a tool; `None` for every other item.
fn ended_call(item: &Value) -> Option<EndedCall> {
    match text_field(item, "type") {
        "commandExecution" => Some(command_call(item)),
        "fileChange" => Some(patch_call(item)),
        "mcpToolCall" => Some(mcp_call(item)),
        "dynamicToolCall" => Some(dynamic_call(item)),
        _ => None,
    }
}

fn command_call(item: &Value) -> EndedCall {
    let mut arguments = json!({ "command": text_field(item, "command") });
    if !text_field(item, "cwd").is_empty() {
        arguments["cwd"] = json!(text_field(item, "cwd"));
    }
    let output = cap_result(text_field(item, "aggregatedOutput").to_owned());
    let end = match (text_field(item, "status"), item["exitCode"].as_i64()) {
        ("declined", _) => "[declined: the command did not run]".to_owned(),
        (_, Some(code)) if code != 0 => format!("[exit code: {code}]"),
        ("failed", _) => "[the command failed]".to_owned(),
        _ if output.trim().is_empty() => "[no output]".to_owned(),
        _ => String::new(),
    };
    let separator = if output.is_empty() || output.ends_with('\n') || end.is_empty() { "" } else { "\n" };
    EndedCall {
        name: "exec_command".to_owned(),
        arguments: arguments_text(&arguments),
        result: format!("{output}{separator}{end}"),
    }
}

/// Neither the call nor its result contains what was written: the files have it.
fn patch_call(item: &Value) -> EndedCall {
    let changes = list_field(item, "changes");
    let summary = PatchSummary::of(changes).map_or_else(|| "no files".to_owned(), |patch| patch.text);
    let status = match text_field(item, "status") {
        "declined" => "declined, nothing was changed",
        "failed" => "failed",
        _ => "done",
    };
    let shown = cap_result(summary);
    let arguments = arguments_text(&json!({ "changes": shown }));
    EndedCall { name: "apply_patch".to_owned(), arguments, result: format!("[{status}] {shown}") }
}

fn mcp_call(item: &Value) -> EndedCall {
    let name = format!("mcp.{}.{}", text_field(item, "server"), text_field(item, "tool"));
    let result = match text_field(&item["error"], "message") {
        "" => {
            let text = mcp_result(&item["result"]);
            if item["status"] == "failed" { format!("Error: {text}") } else { text }
        }
        message => format!("Error: {message}"),
    };
    EndedCall { name, arguments: arguments_text(&item["arguments"]), result: cap_result(result) }
}

/// The texts of an MCP result, with a word for everything else.
fn mcp_result(result: &Value) -> String {
    let parts = list_field(result, "content").iter();
    let parts: Vec<_> = parts.map(|part| content_part(part, "text", text_field(part, "type"))).collect();
    match (parts.is_empty(), &result["structuredContent"]) {
        (false, _) => parts.join("\n"),
        (true, Value::Null) => "[no result]".to_owned(),
        (true, structured) => sorted(structured).to_string(),
    }
}

fn dynamic_call(item: &Value) -> EndedCall {
    let name = match (text_field(item, "namespace"), text_field(item, "tool")) {
        ("", tool) => tool.to_owned(),
        (namespace, tool) => format!("{namespace}.{tool}"),
    };
    let parts = list_field(item, "contentItems").iter();
    let parts: Vec<_> = parts.map(|part| content_part(part, "inputText", text_field(part, "type"))).collect();
    let text = if parts.is_empty() { "[no result]".to_owned() } else { parts.join("\n") };
    let has_failed = item["success"] == false || item["status"] == "failed";
    let result = if has_failed { format!("Error: {text}") } else { text };
    EndedCall { name, arguments: arguments_text(&item["arguments"]), result: cap_result(result) }
}

/// A part of a result: its text if it has the type of texts, else the name of its type.
fn content_part(part: &Value, text_type: &str, part_type: &str) -> String {
    if part_type == text_type {
        return text_field(part, "text").to_owned();
    }
    format!("[{}]", clean_name(part_type))
}

/// The words of a note: those that the item has for people, else the whole item.
fn note_text(kind: &str, item: &Value) -> String {
    match kind {
        "plan" => text_field(item, "text").to_owned(),
        "hookPrompt" => {
            let fragments = list_field(item, "fragments").iter().map(|part| text_field(part, "text"));
            fragments.collect::<Vec<_>>().join("\n")
        }
        _ => sorted(item).to_string(),
    }
}

fn note(kind: &str, text: &str) -> SessionMessage {
    let text = &text[..text.floor_char_boundary(NOTE_BYTES)];
    SessionMessage::new(MessageRole::Note, format!("[codex: {}] {text}", clean_name(kind)))
}

#[cfg(test)]
mod tests;
