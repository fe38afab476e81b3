//! The scripted provider, in both protocols: it repeats the last prompt, and `[exec:COMMAND]` in it runs a command.

use serde_json::{Value, json};

use crate::it::upstream::{Answer, Request, delta};
use crate::responses;

/// Answers a request by what it says last.
pub fn responder(request: &Request) -> Answer {
    let body = request.json();
    match body["messages"].is_array() {
        true => chat(&body),
        false => responses_of(&body),
    }
}

/// Chat completions.
fn chat(body: &Value) -> Answer {
    let messages = body["messages"].as_array().unwrap();
    let last = messages.last().cloned().unwrap_or_default();
    // A title for the conversation, and the like.
    if body["tools"].as_array().is_none_or(Vec::is_empty) {
        return Answer::says(["a title"]);
    }
    if last["role"] == "tool" {
        return Answer::says(["The tool has ended."]);
    }
    let prompt = words(&last["content"]);
    if let Some(command) = command_in(&prompt) {
        let arguments = json!({ "command": command, "description": "run it" }).to_string();
        return Answer::calls("", &[("call_1", "bash", &arguments)]);
    }
    match prompt.contains("[slow]") {
        true => Answer::stream().sends(delta("I begin ")).hangs(),
        false => Answer::says(["You said: ", prompt.as_str()]),
    }
}

/// Responses.
fn responses_of(body: &Value) -> Answer {
    let items = body["input"].as_array().cloned().unwrap_or_default();
    let last = items.last().cloned().unwrap_or_default();
    if last["type"].as_str().is_some_and(|kind| kind.ends_with("_output")) {
        return responses::says(["The tool has ended."]);
    }
    let prompt = words(&last["content"]);
    if let Some(command) = command_in(&prompt) {
        return responses::runs(&command);
    }
    match prompt.contains("[slow]") {
        true => responses::says_half("I begin "),
        false => responses::says(["You said: ", prompt.as_str()]),
    }
}

fn command_in(prompt: &str) -> Option<String> {
    let (_, rest) = prompt.split_once("[exec:")?;
    Some(rest.rsplit_once(']')?.0.to_owned())
}

/// The text of a message's content.
fn words(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n");
    content.as_str().map_or(texts, str::to_owned)
}
