//! Messages of the transcript about tools that an agent ran by itself. Pure.
//!
//! A call becomes a message with one call and the message with its result, so that a transcript is legal after each of
//! them. Everything in a call is a stranger's text: names are cleaned, arguments and results are cut to size.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::sorted_json::sorted;
use super::tools::cap_result;
use crate::agent::{MessageRole, SessionMessage, ToolActivity};
use crate::util::hash;

/// Characters of a tool's name.
pub const NAME_CHARS: usize = 128;

/// Letters and digits of a call's id. Some model servers take exactly nine of them.
const ID_CHARS: usize = 9;

/// Calls that are remembered, to tell a repeated one from a new one. No turn that anybody waits for has more.
const KNOWN_CALLS: usize = 4096;

/// Result of a call that did not end before its turn.
pub const NO_END: &str = "[no result: the turn ended before this call did. It may have had its effect, or still run; it was not repeated]";

/// A tool call that has ended.
#[derive(Debug)]
pub struct EndedCall {
    /// Name of the tool.
    pub name: String,
    /// The text of a JSON object.
    pub arguments: String,
    /// The result, cut to size.
    pub result: String,
}

/// Makes the messages of the calls of one turn.
#[derive(Debug)]
pub struct CallMessages {
    /// The agent's name for the conversation.
    thread: String,
    /// How often a call was completed, by its first id; at most [`KNOWN_CALLS`].
    completions: HashMap<String, u32>,
}

impl CallMessages {
    /// A turn that begins, in the conversation that the agent calls `thread`.
    pub fn new(thread: &str) -> Self {
        Self { thread: thread.to_owned(), completions: HashMap::new() }
    }

    /// The messages of a call that the agent calls `item`. `reasoning` is what came before it.
    pub fn of(&mut self, item: &str, call: EndedCall, reasoning: Option<String>) -> Vec<SessionMessage> {
        let EndedCall { name, arguments, result } = call;
        let (id, name) = (self.call_id(item), clean_name(&name));
        let function = json!({ "name": name, "arguments": arguments });
        let tool_calls = vec![json!({ "id": id, "type": "function", "function": function })];
        let called = SessionMessage {
            tools: Some(ToolActivity::Calls { tool_calls }),
            reasoning,
            ..SessionMessage::new(MessageRole::Assistant, "")
        };
        let result = SessionMessage {
            tools: Some(ToolActivity::Result { tool_call_id: id, tool_name: name }),
            ..SessionMessage::new(MessageRole::Tool, result)
        };
        vec![called, result]
    }

    /// An id that the same call of the same conversation always gets, and that every model server takes. An agent's ids
    /// are unique only within their conversation.
    fn call_id(&mut self, item: &str) -> String {
        let id = call_id(&self.thread, item, 0);
        if self.completions.len() >= KNOWN_CALLS && !self.completions.contains_key(&id) {
            return id;
        }
        // Two calls of a transcript must not share an id, even if the agent completes one twice.
        let times = self.completions.entry(id.clone()).or_default();
        *times = times.saturating_add(1);
        if *times == 1 { id } else { call_id(&self.thread, item, *times) }
    }
}

fn call_id(thread: &str, item: &str, times: u32) -> String {
    let digest = hash([thread, item, &times.to_string()]);
    let mut number = u64::from_str_radix(digest.get(..16).unwrap_or_default(), 16).unwrap_or_default();
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |_| {
        let digit = digits[(number % 36) as usize];
        number /= 36;
        char::from(digit)
    };
    (0..ID_CHARS).map(digit).collect()
}

/// The name of a tool without anything that could pass for something else in a list or a line.
pub fn clean_name(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    name.chars().take(NAME_CHARS).map(|c| if is_fine(c) { c } else { '_' }).collect()
}

/// The arguments of a call as model servers want them: the text of a JSON object, with sorted keys.
pub fn arguments_text(arguments: &Value) -> String {
    let object = match arguments {
        Value::Object(_) => sorted(arguments),
        Value::Null => json!({}),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            json!({ "value": sorted(arguments) })
        }
    };
    let text = object.to_string();
    match cap_result(text.clone()) {
        cut if cut == text => text,
        cut => json!({ "cut": cut }).to_string(),
    }
}
