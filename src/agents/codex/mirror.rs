//! The conversation so far, for a new thread that does not know it. Pure.

use serde_json::{Value, json};

use crate::agent::{MessageRole, SessionMessage, ToolActivity};
use crate::util::clip;

/// Characters of a call's arguments and of its result. Codex needs to know what was done, not everything that was said.
const SHOWN: usize = 2_000;

/// The messages as items of codex' history. Calls of tools become text: the tools may be others now.
pub fn history_items(history: &[SessionMessage]) -> Vec<Value> {
    history.iter().filter_map(item).collect()
}

fn item(message: &SessionMessage) -> Option<Value> {
    let (role, kind, text) = match (message.role, &message.tools) {
        (MessageRole::User, _) => ("user", "input_text", message.content.clone()),
        (MessageRole::Assistant, Some(ToolActivity::Calls { tool_calls })) => {
            let calls = tool_calls.iter().map(call);
            let said = Some(message.content.clone()).filter(|said| !said.trim().is_empty());
            let parts: Vec<_> = said.into_iter().chain(calls).collect();
            ("assistant", "output_text", parts.join("\n"))
        }
        (MessageRole::Assistant, _) => ("assistant", "output_text", message.content.clone()),
        (MessageRole::Tool, Some(ToolActivity::Result { tool_name, .. })) => {
            let result = clip(&message.content, SHOWN);
            ("assistant", "output_text", format!("[result of {tool_name}: {result}]"))
        }
        (MessageRole::Tool, _) | (MessageRole::Note, _) => return None,
    };
    let content = json!([{ "type": kind, "text": text }]);
    (!text.trim().is_empty()).then(|| json!({ "type": "message", "role": role, "content": content }))
}

fn call(call: &Value) -> String {
    let function = &call["function"];
    let name = function["name"].as_str().unwrap_or("a tool");
    let arguments = clip(function["arguments"].as_str().unwrap_or_default(), SHOWN);
    format!("[earlier call of {name}: {arguments}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_calls_become_text() {
        let call = json!({ "id": "1", "type": "function", "function": { "name": "look", "arguments": "{\"a\":1}" } });
        let history = [
            SessionMessage::new(MessageRole::User, "hello"),
            SessionMessage {
                tools: Some(ToolActivity::Calls { tool_calls: vec![call] }),
                ..SessionMessage::new(MessageRole::Assistant, "I look.")
            },
            SessionMessage {
                tools: Some(ToolActivity::Result { tool_call_id: "1".into(), tool_name: "look".into() }),
                ..SessionMessage::new(MessageRole::Tool, "seen")
            },
            SessionMessage::new(MessageRole::Note, "a plan"),
            SessionMessage::new(MessageRole::Assistant, " "),
            SessionMessage::new(MessageRole::Assistant, "Done."),
        ];
        let items = history_items(&history);
        let texts: Vec<_> = items
            .iter()
            .map(|item| {
                format!(
                    "{}: {}",
                    item["role"].as_str().unwrap(),
                    item["content"][0]["text"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            texts,
            [
                "user: hello",
                "assistant: I look.\n[earlier call of look: {\"a\":1}]",
                "assistant: [result of look: seen]",
                "assistant: Done.",
            ]
        );
        assert_eq!(items[0]["content"][0]["type"], "input_text");
        assert_eq!(items[3]["content"][0]["type"], "output_text");
    }
}
