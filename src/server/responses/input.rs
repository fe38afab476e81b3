//! What is asked, in the forms that this protocol knows: text, or a list of messages and parts.

use schemars::JsonSchema;
use serde_json::Value;

use super::super::ApiError;
use super::super::content::{
    ContentPartSchema, ContentSchema, MessageCollector, ParsedMessages, PromptContent,
};
use crate::agent::{MessageRole, PromptPart};
use crate::util::one_line;

/// What is asked, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ResponseInput")]
#[expect(dead_code, reason = "read by hand, so that an error names its place")]
pub enum InputSchema {
    /// What a person says.
    Text(#[schemars(regex(pattern = "\\S"))] String),
    /// What was said before, and at its end what is asked.
    Items(#[schemars(length(min = 1))] Vec<InputItemSchema>),
}

/// One item of a list.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ResponseInputItem")]
#[expect(dead_code, reason = "see `Input`")]
pub enum InputItemSchema {
    /// What somebody says.
    Message {
        /// Who.
        role: InputRoleSchema,
        /// What.
        content: ContentSchema,
    },
    /// A part of what a person says.
    Part(ContentPartSchema),
}

/// Who says something.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", rename = "ResponseInputRole")]
#[expect(dead_code, reason = "see `Input`")]
pub enum InputRoleSchema {
    User,
    Assistant,
    System,
    Developer,
}

/// Reads it. What people say at the end is asked, all of it, and what stands before that is the history. Reasoning and
/// calls of tools are left out; a result of a client's own tool is refused, because nobody asked for it.
pub fn read_input(input: &Value) -> Result<ParsedMessages, ApiError> {
    let mut heard = MessageCollector::default();
    let items = match input {
        Value::String(text) => {
            return heard.then(Some(PromptContent { text: text.clone(), parts: Vec::new() }), "input");
        }
        Value::Array(items) => items,
        Value::Null => {
            return Err(ApiError::wrong("input", "Say what is asked: text, or a list of messages"));
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(ApiError::wrong("input", "It must be text or a list of messages"));
        }
    };
    for (index, item) in items.iter().enumerate() {
        read_item(item, index, &mut heard)?;
    }
    let now = heard.said.iter().rposition(|(role, _)| *role != MessageRole::User).map_or(0, |last| last + 1);
    let now = join(heard.said.split_off(now).into_iter().map(|(_, content)| content));
    heard.then(Some(now), "input")
}

fn read_item(item: &Value, index: usize, heard: &mut MessageCollector) -> Result<(), ApiError> {
    let kind = match item {
        Value::String(_) => "input_text",
        Value::Object(item) => match item.get("type") {
            None | Some(Value::Null) => "message",
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(ApiError::wrong(format!("input[{index}].type"), "It must be text")),
        },
        _ => return Err(ApiError::wrong(format!("input[{index}]"), "Each item is a message or a part")),
    };
    match kind {
        "message" => {
            let at = format!("input[{index}].content");
            let content = PromptContent::read(item.get("content").unwrap_or(&Value::Null), &at)?;
            if !heard.take(item.get("role").and_then(Value::as_str), content) {
                let message = "The role is one of user, assistant, system and developer";
                return Err(ApiError::wrong(format!("input[{index}].role"), message));
            }
        }
        "input_text" | "text" | "input_image" | "image_url" => {
            let part = Value::Array(vec![item.clone()]);
            heard.said.push((MessageRole::User, PromptContent::read(&part, &format!("input[{index}]"))?));
        }
        // Also what we told of the agent's own tools and questions: clients send back all that they were answered.
        "reasoning" | "function_call" | "mcp_call" | "mcp_list_tools" | "mcp_approval_request" => {}
        "function_call_output" | "custom_tool_call_output" => {
            let message = "The agent calls its own tools, so nobody waits for this result; leave it out";
            return Err(ApiError::unsupported(format!("input[{index}].type"), message));
        }
        kind => {
            let kind = one_line(kind, 40);
            let message = format!("Items of type {kind:?} are not supported; send messages");
            return Err(ApiError::wrong(format!("input[{index}].type"), message));
        }
    }
    Ok(())
}

/// What is said in several messages, as one.
fn join(said: impl Iterator<Item = PromptContent>) -> PromptContent {
    let parts = said.flat_map(|PromptContent { text, parts }| match parts.is_empty() {
        true => vec![PromptPart::Text { text }],
        false => parts,
    });
    PromptContent::from_parts(parts.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_people_say_at_the_end_is_asked_and_the_rest_is_history() {
        let spoken = read_input(&json!([
            { "role": "developer", "content": "Be brief" },
            { "role": "user", "content": "hi" },
            { "type": "reasoning", "id": "rs_1", "summary": [] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hello" }] },
            { "role": "user", "content": "look" },
            { "type": "input_image", "image_url": "data:image/png;base64,AA==" },
        ]))
        .unwrap();
        assert_eq!(spoken.system.as_deref(), Some("Be brief"));
        let history: Vec<_> = spoken.history.iter().map(|said| said.content.as_str()).collect();
        assert_eq!(history, ["hi", "Hello"]);
        assert_eq!((spoken.now.text.as_str(), spoken.now.parts.len()), ("look", 2));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (input, param) in [
            (json!(null), "input"),
            (json!(""), "input"),
            (json!({}), "input"),
            (json!([]), "input"),
            (json!([{ "role": "assistant", "content": "hi" }]), "input"),
            (json!([1]), "input[0]"),
            (json!(["hi", { "type": "computer_call" }]), "input[1].type"),
            (json!([{ "type": 7 }]), "input[0].type"),
            (
                json!(["hi", { "type": "function_call_output", "call_id": "1", "output": "" }]),
                "input[1].type",
            ),
            (json!([{ "role": "king", "content": "hi" }]), "input[0].role"),
            (json!([{ "role": "user", "content": [{ "type": "input_file" }] }]), "input[0].content"),
            (json!([{ "type": "input_image", "image_url": "file:///etc/passwd" }]), "input[0]"),
        ] {
            let problem = read_input(&input).unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.param.as_deref()), (400, Some(param)), "{input}");
        }
    }
}
