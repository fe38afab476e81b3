//! Reads what the room, the model, the tools and the database saw of a turn with tools, and names every broken promise.
//!
//! We promise that no call runs twice and no round is asked for twice; that each prompt has one end in the room; and
//! that the next request is one that every server takes, and has all that was on record, that ran, or that people read.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::Value;
use talaria::agent::{MessageRole, NO_ANSWER, SessionMessage, ToolActivity};

use super::super::checker::{INTERRUPTED, pressed};
use super::super::trial::Prompt;
use super::trial::{CALLS, LAST_WORDS, PROMPTS, ToolHistory, WORDS};

/// Beginning of the result of a call that was running at a death.
const NO_RESULT: &str = "(No result: ";

/// A broken promise, with the prompt, call or message that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokenTurn {
    /// A prompt without an end in the room, or without a request to the model.
    Lost(String),
    /// A prompt with more than one answer.
    Doubled(String),
    /// An answer that is neither the model's nor the beginning of it with the mark of an interruption.
    Garbled(String),
    /// A prompt that was given up although nobody died meanwhile.
    GivenUp(String),
    /// A call that ran this many times.
    RanAgain(String, usize),
    /// A call that has a result, or whose turn was answered, and that never ran.
    NeverRan(String),
    /// The model got a request with this many messages twice.
    AskedAgain(usize),
    /// A request that model servers refuse, and why.
    Illegal(String),
    /// The next request lacks this.
    Forgotten(String),
}

/// How an answer ended.
#[derive(PartialEq, Eq)]
enum AnswerEnd {
    Whole,
    /// With the text before the mark, without spaces.
    Interrupted(String),
}

/// Finds every broken promise of a history.
pub fn check(history: &ToolHistory) -> Vec<BrokenTurn> {
    let mut broken = Vec::new();
    let work = check_answer(history, &history.prompts[0], &WORDS.concat(), &mut broken);
    match check_answer(history, &history.prompts[1], LAST_WORDS, &mut broken) {
        Some(AnswerEnd::Interrupted(_)) => broken.push(BrokenTurn::GivenUp(PROMPTS[1].to_owned())),
        Some(AnswerEnd::Whole) | None => {}
    }
    for call in CALLS {
        match history.runs(call) {
            0 if work == Some(AnswerEnd::Whole) => broken.push(BrokenTurn::NeverRan(call.to_owned())),
            0 | 1 => {}
            runs => broken.push(BrokenTurn::RanAgain(call.to_owned(), runs)),
        }
    }
    broken.extend(history.requests.iter().filter_map(|request| problem(request)).map(BrokenTurn::Illegal));
    let mut lengths = HashSet::new();
    let work_requests = history.requests.iter().filter(|request| is_about(request, PROMPTS[0]));
    broken.extend(
        work_requests
            .filter(|request| !lengths.insert(request.len()))
            .map(|request| BrokenTurn::AskedAgain(request.len())),
    );
    let next: Vec<_> = history.requests.iter().filter(|request| is_about(request, PROMPTS[1])).collect();
    match next.as_slice() {
        [] => broken.push(BrokenTurn::Lost(PROMPTS[1].to_owned())),
        [request] => check_memory(history, request, work.as_ref(), &mut broken),
        [request, ..] => broken.push(BrokenTurn::AskedAgain(request.len())),
    }
    broken
}

/// Whether the first turn of a history ended as interrupted.
pub fn is_interrupted(history: &ToolHistory) -> bool {
    let end = check_answer(history, &history.prompts[0], &WORDS.concat(), &mut Vec::new());
    matches!(end, Some(AnswerEnd::Interrupted(_)))
}

fn check_answer(
    history: &ToolHistory,
    prompt: &Prompt,
    said: &str,
    broken: &mut Vec<BrokenTurn>,
) -> Option<AnswerEnd> {
    let name = || prompt.text.clone();
    let answer = match prompt.answers(&history.messages).as_slice() {
        [] => {
            broken.push(BrokenTurn::Lost(name()));
            return None;
        }
        [answer] if !answer.body().done => {
            broken.push(BrokenTurn::Lost(name()));
            return None;
        }
        [answer] => pressed(&answer.body().markdown),
        _ => {
            broken.push(BrokenTurn::Doubled(name()));
            return None;
        }
    };
    let said = pressed(said);
    match answer.strip_suffix(&pressed(INTERRUPTED[0])) {
        Some(text) if said.starts_with(text) => Some(AnswerEnd::Interrupted(text.to_owned())),
        None if answer == said => Some(AnswerEnd::Whole),
        Some(_) | None => {
            broken.push(BrokenTurn::Garbled(name()));
            None
        }
    }
}

/// Compares the first request after the killed turn with all that is known of that turn.
fn check_memory(
    history: &ToolHistory,
    request: &[Value],
    work: Option<&AnswerEnd>,
    broken: &mut Vec<BrokenTurn>,
) {
    let mut rest = request.iter();
    for message in &history.recorded {
        if !rest.any(|sent| is_same(sent, message)) {
            broken.push(BrokenTurn::Forgotten(format!("on record: {message:?}")));
            break;
        }
    }
    for call in CALLS {
        let is_called = request.iter().any(|message| call_ids(message).contains(&call));
        let result = request.iter().find(|message| message["tool_call_id"] == call);
        let has_result = result
            .and_then(|result| result["content"].as_str())
            .is_some_and(|content| !content.starts_with(NO_RESULT));
        let must_know = history.runs(call) > 0 || work == Some(&AnswerEnd::Whole);
        if must_know && !is_called {
            broken.push(BrokenTurn::Forgotten(format!("call {call}")));
        }
        if work == Some(&AnswerEnd::Whole) && is_called && !has_result {
            broken.push(BrokenTurn::Forgotten(format!("result of {call}")));
        }
        if has_result && history.runs(call) == 0 {
            broken.push(BrokenTurn::NeverRan(call.to_owned()));
        }
    }
    let texts = request.iter().filter(|message| message["role"] == "assistant");
    let said = texts.filter_map(|message| message["content"].as_str()).filter(|text| *text != NO_ANSWER);
    let said: String = said.map(pressed).collect();
    let read = match work {
        Some(AnswerEnd::Whole) => pressed(&WORDS.concat()),
        Some(AnswerEnd::Interrupted(text)) => text.clone(),
        None => String::new(),
    };
    if !said.starts_with(&read) {
        broken.push(BrokenTurn::Forgotten(format!("text {read}")));
    }
    if !pressed(&WORDS.concat()).starts_with(&said) {
        broken.push(BrokenTurn::Garbled(format!("transcript {said}")));
    }
}

/// Why a strict model server would refuse these messages.
pub fn problem(messages: &[Value]) -> Option<String> {
    let (mut known, mut open) = (HashSet::new(), HashSet::new());
    let mut before = "";
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        let has_text = message["content"].as_str().is_some_and(|text| !text.trim().is_empty());
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                return Some(format!("a result without its call: {id}"));
            }
        } else if !open.is_empty() {
            return Some(format!("a call without its result before a message of the {role}"));
        }
        match (before, role) {
            ("" | "assistant", "user") | ("user" | "tool", "assistant") | ("assistant" | "tool", "tool") => {}
            _ => return Some(format!("{role} after {before}")),
        }
        let ids = call_ids(message);
        if !has_text && ids.is_empty() {
            return Some(format!("an empty message of the {role}"));
        }
        if let Some(id) = ids.iter().find(|id| !known.insert(**id)) {
            return Some(format!("two calls with the id {id}"));
        }
        open.extend(ids);
        before = role;
    }
    match before {
        "user" | "tool" if open.is_empty() => None,
        "user" | "tool" => Some("a call without its result at the end".to_owned()),
        _ => Some(format!("{before} at the end")),
    }
}

/// Whether the last prompt of a request is this one.
fn is_about(request: &[Value], prompt: &str) -> bool {
    let last = request.iter().rfind(|message| message["role"] == "user");
    last.and_then(|message| message["content"].as_str()).is_some_and(|text| text.contains(prompt))
}

/// Whether a message of a request is this one of the transcript.
fn is_same(sent: &Value, recorded: &SessionMessage) -> bool {
    let SessionMessage { role, content, tools, .. } = recorded;
    let role = match role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
        MessageRole::Note => "note",
    };
    let is_same_activity = match tools {
        Some(ToolActivity::Calls { tool_calls }) => sent["tool_calls"] == Value::from(tool_calls.clone()),
        Some(ToolActivity::Result { tool_call_id, .. }) => sent["tool_call_id"] == **tool_call_id,
        None => sent["tool_calls"].is_null() && sent["tool_call_id"].is_null(),
    };
    sent["role"] == role && sent["content"].as_str().unwrap_or_default() == content && is_same_activity
}

/// Ids of the calls in a message of a request.
fn call_ids(message: &Value) -> Vec<&str> {
    let calls = message["tool_calls"].as_array();
    calls.into_iter().flatten().filter_map(|call| call["id"].as_str()).collect()
}
