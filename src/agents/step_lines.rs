//! Short lines about the steps of an agent that is a program. Pure.
//!
//! Everything in a step is a stranger's text: a line is cut to size, hides what looks like a secret, and stays one line.

use serde_json::Value;

use crate::util::{clip, hash, mask_secrets, one_line};

/// Longest line about a step, in characters.
const LINE_CHARS: usize = 80;

/// Characters that are looked at for a line: more than fit, so that a secret at the end is recognized.
pub const LOOKED_AT: usize = 2_000;

/// Characters of a title.
pub const TITLE_CHARS: usize = 60;

/// Longest id of a call that is taken as the id of its step, in bytes.
const ID_BYTES: usize = 64;

/// The values of arguments in one text.
pub fn values_of(arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) => {
            let values = fields.iter().map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            });
            values.collect::<Vec<_>>().join(" ")
        }
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => arguments.to_string(),
    }
}

/// One line that hides nothing but what looks like a secret; `None` if nothing is left.
pub fn shown_line(text: &str) -> Option<String> {
    let line = mask_secrets(&one_line(clip(text, LOOKED_AT), LOOKED_AT));
    let line = match line.char_indices().nth(LINE_CHARS) {
        Some(_) => format!("{}…", clip(&line, LINE_CHARS - 1)),
        None => line,
    };
    Some(line).filter(|line| !line.is_empty())
}

/// The id of the step of a call.
pub fn step_id(call: &str) -> String {
    if call.len() <= ID_BYTES { call.to_owned() } else { hash([call]) }
}
