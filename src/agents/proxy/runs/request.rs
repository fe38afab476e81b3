//! The request that begins a run.
//!
//! It is stored without the session, which is settled when it is stored; [`addressed`] adds it. How it begins tells it from
//! a request for a chat completion.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::SessionId;
use crate::openai::hashed_text::HashedText;
use crate::openai::wire::{CompletionRequest, chat_messages};

/// The beginning of every stored request for a run. Requests for chat completions begin with other fields.
const BEGINNING: &[u8] = br#"{"input":"#;

/// The place of a picture in a message that hermes-agent keeps.
const PICTURE: &str = "[screenshot]";

/// Body of `POST /v1/runs`. `input` comes first; see [`BEGINNING`].
#[derive(Serialize)]
struct RunBody<'a> {
    /// The prompt as text, or as the only message of a list if it has pictures.
    input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    /// The upstream does not look into the session for a run, so the messages before are sent.
    conversation_history: Vec<Value>,
    model: &'a str,
}

/// The only field of a request that the search for its answer needs.
#[derive(Deserialize)]
struct RunInput {
    input: Value,
}

/// Builds the request for a run.
pub fn run_request(model: &str, question: &CompletionRequest<'_>) -> Vec<u8> {
    let mut messages = chat_messages(&CompletionRequest { context: "", ..*question });
    let input = match messages.pop() {
        Some(mut prompt) if prompt["content"].is_string() => prompt["content"].take(),
        Some(prompt) => json!([prompt]),
        None => Value::Null,
    };
    let instructions = Some(question.context).filter(|context| !context.trim().is_empty());
    let body = RunBody { input, instructions, conversation_history: messages, model };
    // There is no error for text and lists.
    let mut body = serde_json::to_vec(&body).unwrap_or_default();
    body.shrink_to_fit();
    body
}

/// Whether a stored request is for a run.
pub fn is_run(request: &[u8]) -> bool {
    request.starts_with(BEGINNING)
}

/// The bytes that are sent: the stored request and the session.
pub fn addressed(request: &[u8], session: &SessionId) -> Vec<u8> {
    let Some(rest) = request.strip_prefix(b"{") else { return request.to_vec() };
    let session = Value::from(session.0.as_str()).to_string();
    let field = format!("{{\"session_id\":{session},");
    [field.as_bytes(), rest].concat()
}

/// The prompt of a stored request for a run, as its server keeps it: hermes-agent replaces each picture by
/// [`PICTURE`].
pub fn prompt(request: &[u8]) -> Option<String> {
    let RunInput { input } = serde_json::from_slice(request).ok()?;
    if let Some(text) = input.as_str() {
        return Some(text.to_owned());
    }
    let parts = input.get(0)?.get("content")?.as_array()?;
    let lines = parts.iter().map(|part| part.get("text").and_then(Value::as_str).unwrap_or(PICTURE));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Hash of the prompt of a stored request, to compare it with, because a prompt may be long and a run may take hours.
pub fn hashed_prompt(request: &[u8]) -> HashedText {
    let mut prompt = HashedText::default();
    prompt.push(self::prompt(request).unwrap_or_default().trim());
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{MessageRole, PromptImage, SessionMessage};
    use crate::openai::wire::chat_request;

    #[test]
    fn a_run_has_the_prompt_the_history_and_the_session() {
        let history = [
            SessionMessage::new(MessageRole::User, "hi"),
            SessionMessage::new(MessageRole::Assistant, "hello"),
            SessionMessage::new(MessageRole::Tool, "42"),
        ];
        let question = CompletionRequest {
            context: "Be kind.",
            history: &history,
            prompt: "and now?",
            ..Default::default()
        };
        let stored = run_request("m", &question);
        assert!(is_run(&stored) && !is_run(&chat_request("m", &question, true)));
        assert_eq!(prompt(&stored).as_deref(), Some("and now?"));
        let sent: Value = serde_json::from_slice(&addressed(&stored, &SessionId("a\"b".to_owned()))).unwrap();
        let history =
            json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }]);
        let expected = json!({
            "session_id": "a\"b", "input": "and now?", "instructions": "Be kind.",
            "conversation_history": history, "model": "m",
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_blank_context_is_no_instruction() {
        let stored =
            run_request("m", &CompletionRequest { context: " ", prompt: "hi", ..Default::default() });
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        assert_eq!(stored, json!({ "input": "hi", "conversation_history": [], "model": "m" }));
    }

    #[test]
    fn pictures_are_parts_of_the_only_message() {
        let images = [PromptImage { mime: "image/png", content: vec![1, 2, 3] }];
        let question = CompletionRequest { prompt: "see", images: &images, ..Default::default() };
        let stored = run_request("m", &question);
        assert!(is_run(&stored));
        assert_eq!(prompt(&stored).as_deref(), Some("see\n[screenshot]"));
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        let parts = json!([
            { "type": "text", "text": "see" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AQID" } },
        ]);
        assert_eq!(stored["input"], json!([{ "role": "user", "content": parts }]));
    }
}
