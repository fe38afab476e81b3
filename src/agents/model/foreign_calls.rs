//! Tells a model in words of calls in its history that it cannot make itself: those of tools that it lacks, such as the
//! commands of codex, whose conversation it goes on with. Pure.
//!
//! A server may refuse a call of a tool that the request does not list, or a name such as `mcp.files.read`, and a model
//! that sees such a call tries it again. Messages of the assistant in a row become one, because some servers refuse them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::util::fenced;

/// Bytes of a call's arguments that are told.
const ARGUMENTS: usize = 2 * 1024;

/// Bytes of a result that are told. The turn in which it was needed is over.
const RESULT: usize = 4 * 1024;

/// The messages with each call of a tool that `has` does not know, and its result, as words of the assistant.
pub fn tell_foreign_calls(messages: Vec<Value>, has: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut told = Vec::with_capacity(messages.len());
    let mut messages = VecDeque::from(messages);
    while let Some(mut message) = messages.pop_front() {
        let Some(calls) = take_calls(&mut message) else {
            append(&mut told, message);
            continue;
        };
        let mut results = Vec::new();
        while let Some(result) = messages.pop_front_if(|next| next["role"] == "tool") {
            results.push(result);
        }
        let (own, foreign): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| has(name_of(call)));
        let words = foreign.iter().map(|call| {
            let of_call = |result: &Value| result["tool_call_id"] == call["id"];
            let result = results.iter().position(of_call).map(|at| results.remove(at));
            in_words(call, result.as_ref())
        });
        let words: Vec<_> = words.collect();
        add_words(&mut message, &words.join("\n\n"));
        if !own.is_empty() {
            message["tool_calls"] = own.into();
        }
        append(&mut told, message);
        told.extend(results);
    }
    told
}

/// Takes the calls out of a message; `None` if it has none.
fn take_calls(message: &mut Value) -> Option<Vec<Value>> {
    match message.as_object_mut()?.remove("tool_calls")? {
        Value::Array(calls) => Some(calls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}

fn name_of(call: &Value) -> &str {
    call["function"]["name"].as_str().unwrap_or_default()
}

fn in_words(call: &Value, result: Option<&Value>) -> String {
    let arguments = beginning(call["function"]["arguments"].as_str().unwrap_or_default(), ARGUMENTS);
    let result = result.and_then(|result| result["content"].as_str()).unwrap_or_default();
    let result = fenced(&beginning(result, RESULT));
    format!("(I called the tool {} with {arguments}. It returned:\n{result})", name_of(call))
}

fn beginning(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!("{}\n[… the rest was left out to save room …]", &text[..text.floor_char_boundary(bytes)])
}

/// Adds a paragraph to the text of a message.
fn add_words(message: &mut Value, words: &str) {
    let before = message["content"].as_str().unwrap_or_default();
    let content = match (before, words) {
        (before, "") => before.to_owned(),
        ("", words) => words.to_owned(),
        (before, words) => format!("{before}\n\n{words}"),
    };
    message["content"] = if content.is_empty() { Value::Null } else { json!(content) };
}

/// Adds a message behind the others. Two of the assistant in a row become one, unless a result belongs between them.
fn append(messages: &mut Vec<Value>, mut message: Value) {
    let is_assistant = |message: &Value| message["role"] == "assistant";
    let is_continued = |last: &mut Value| is_assistant(last) && last["tool_calls"].is_null();
    if is_assistant(&message)
        && let Some(mut last) = messages.pop_if(is_continued)
    {
        add_words(&mut last, message["content"].as_str().unwrap_or_default());
        if let Some(calls) = take_calls(&mut message) {
            last["tool_calls"] = calls.into();
        }
        message = last;
    }
    messages.push(message);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    fn calls(content: Value, calls: &[(&str, &str)]) -> Value {
        let call = |(id, name): &(&str, &str)| {
            let function = json!({ "name": name, "arguments": "{\"command\":\"ls\"}" });
            json!({ "id": id, "type": "function", "function": function })
        };
        let calls: Vec<_> = calls.iter().map(call).collect();
        json!({ "role": "assistant", "content": content, "tool_calls": calls })
    }

    fn result(id: &str, content: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": content })
    }

    #[test]
    fn the_work_of_codex_is_told_in_words() {
        let told = tell_foreign_calls(
            vec![
                said("user", "tidy up"),
                said("assistant", "Let me look."),
                calls(Value::Null, &[("a", "exec_command")]),
                result("a", "one.txt\n```\n"),
                calls(Value::Null, &[("b", "mcp.files.read")]),
                result("b", "two"),
                said("assistant", "All is tidy."),
                said("user", "thanks"),
            ],
            |name| name == "terminal",
        );
        let words = "Let me look.\n\n\
                     (I called the tool exec_command with {\"command\":\"ls\"}. It returned:\n````\none.txt\n```\n````)\n\n\
                     (I called the tool mcp.files.read with {\"command\":\"ls\"}. It returned:\n```\ntwo\n```)\n\n\
                     All is tidy.";
        assert_eq!(told, [said("user", "tidy up"), said("assistant", words), said("user", "thanks")]);
    }

    #[test]
    fn calls_of_own_tools_stay_calls() {
        let own = vec![
            said("user", "go"),
            calls(json!("I look."), &[("a", "terminal"), ("b", "terminal")]),
            result("a", "x"),
            result("b", "y"),
            calls(Value::Null, &[("c", "terminal")]),
            result("c", "z"),
            said("assistant", "Done."),
        ];
        assert_eq!(tell_foreign_calls(own.clone(), |name| name == "terminal"), own);
        // Beside another one, only that other one is told.
        let mixed =
            vec![calls(Value::Null, &[("a", "gone"), ("b", "terminal")]), result("a", "x"), result("b", "y")];
        let told = tell_foreign_calls(mixed, |name| name == "terminal");
        assert_eq!(told.len(), 2);
        assert_eq!(told[0]["tool_calls"].as_array().unwrap().len(), 1);
        assert!(told[0]["content"].as_str().unwrap().contains("the tool gone"));
        assert_eq!(told[1], result("b", "y"));
    }

    #[test]
    fn text_before_a_call_is_a_part_of_its_message() {
        let messages = vec![
            said("assistant", "Let me look."),
            calls(Value::Null, &[("a", "terminal")]),
            result("a", "x"),
        ];
        let told = tell_foreign_calls(messages, |_| true);
        assert_eq!(told, [calls(json!("Let me look."), &[("a", "terminal")]), result("a", "x")]);
    }

    #[test]
    fn long_results_are_cut() {
        let long = vec![calls(Value::Null, &[("a", "gone")]), result("a", &"ü".repeat(100_000))];
        let told = tell_foreign_calls(long, |_| false);
        assert!(told[0]["content"].as_str().unwrap().len() < 5_000);
    }

    proptest! {
        /// Any legal history without tools of our own becomes users and assistants that alternate.
        #[test]
        fn a_told_history_alternates(turns in prop::collection::vec(prop::collection::vec(0_u8..3, 1..5), 0..5)) {
            let mut messages = Vec::new();
            for items in turns {
                messages.push(said("user", "q"));
                for (number, item) in items.into_iter().enumerate() {
                    let id = number.to_string();
                    match item {
                        0 => messages.push(said("assistant", "a")),
                        1 => messages.extend([calls(Value::Null, &[(&id, "x")]), result(&id, "r")]),
                        _ => messages.extend([
                            calls(json!("t"), &[(&id, "x"), ("z", "y")]), result("z", "r"), result(&id, "r"),
                        ]),
                    }
                }
            }
            let told = tell_foreign_calls(messages, |_| false);
            for pair in told.windows(2) {
                prop_assert_ne!(&pair[0]["role"], &pair[1]["role"]);
            }
            prop_assert!(told.iter().all(|message| message["tool_calls"].is_null() && message["role"] != "tool"));
            prop_assert!(told.iter().all(|message| message["content"].as_str().is_some_and(|text| !text.is_empty())));
        }
    }
}
