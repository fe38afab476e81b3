//! The exact action of a request for permission, as people judge it. Pure.

use std::path::Path;

use serde_json::{Value, json};

use crate::agents::acp::tool_calls::ToolCall;
use crate::agents::sorted_json::{list_field, sorted, text_field};

/// Parameters that change nothing about an action: ids, times, words about it, and where it happens, which people are
/// shown apart from it.
const ASIDE: [&str; 13] = [
    "command",
    "cwd",
    "description",
    "reason",
    "call_id",
    "turn_id",
    "process_id",
    "started_at_ms",
    "proposed_execpolicy_amendment",
    "available_decisions",
    "parsed_cmd",
    "source",
    "auto_approved",
];

/// Names that agents give the tool that runs a command in a shell of this machine.
const SHELL_TOOLS: [&str; 7] =
    ["bash", "shell", "local_shell", "exec_command", "run_shell_command", "run_command", "terminal"];

/// Beginning of the text with which gemini says where a command runs, in place of parameters.
const FOLDER_BEGIN: &str = "[current working directory ";

/// Bytes of a title that is taken for a command. A longer one may have been cut.
const TITLE_COMMAND: usize = 16 * 1024;

/// The call with its parameters, where the agent names them in another way: gemini sends a command as the title, and its
/// folder and its reason as a text, and no parameters.
pub fn with_input(mut call: ToolCall) -> ToolCall {
    let is_bare = call.kind == "execute" && call.raw_input.is_null() && call.name.trim().is_empty();
    if is_bare
        && (1..=TITLE_COMMAND).contains(&call.title.trim().len())
        && let [part] = call.content.as_slice()
        && let Some(rest) = text_field(&part["content"], "text").trim().strip_prefix(FOLDER_BEGIN)
        && let Some((folder, reason)) = split_folder(rest)
    {
        call.raw_input = json!({ "command": call.title, "cwd": folder, "description": reason });
    }
    call
}

/// Reads `/folder] (reason)`, of which the reason may be missing. `None` if there is anything else.
fn split_folder(text: &str) -> Option<(&str, &str)> {
    let (folder, rest) = text.split_once(']')?;
    let reason = match rest.trim() {
        "" => "",
        rest => rest.strip_prefix('(')?.strip_suffix(')')?,
    };
    Path::new(folder).is_absolute().then_some((folder, reason))
}

/// The action; `None` if there is nothing that a person could judge.
pub fn of(call: &ToolCall, cwd: &str) -> Option<String> {
    let text = match (command_of(&call.raw_input), changes_of(call, cwd)) {
        (Some(command), _) if runs_in_shell(call) => with_further(&call.raw_input, command),
        // A command for something else, such as a tool that runs it on another machine.
        (Some(_), Some(changes)) => format!("{}\n{changes}", words_of(call)),
        (None, Some(changes)) => changes,
        (_, None) => words_of(call),
    };
    (!text.trim().is_empty()).then_some(text)
}

/// Whether the command of a call is one for the shell. Many agents do not name the tool.
fn runs_in_shell(call: &ToolCall) -> bool {
    let name = call.name.trim();
    call.kind == "execute"
        && (name.is_empty() || SHELL_TOOLS.iter().any(|shell| name.eq_ignore_ascii_case(shell)))
}

/// The command of a call that runs one.
fn command_of(input: &Value) -> Option<String> {
    let command = match &input["command"] {
        Value::String(command) => command.clone(),
        Value::Array(words) => {
            let words = words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
            match words.as_slice() {
                // The shell is the one that everybody has, and the rest is all of its input.
                ["bash" | "sh" | "/bin/bash" | "/bin/sh" | "/usr/bin/bash", "-c" | "-lc", script] => {
                    (*script).to_owned()
                }
                words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    Some(command).filter(|command| !command.trim().is_empty())
}

/// A word of a command, so that it stays one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The command behind all other parameters, where it cannot write itself.
fn with_further(input: &Value, command: String) -> String {
    let fields = input.as_object().into_iter().flatten();
    let mut lines: Vec<String> = fields
        .filter(|(name, value)| !ASIDE.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| format!("{name}: {}", sorted(value)))
        .collect();
    lines.sort_unstable();
    lines.push(command);
    lines.join("\n")
}

/// The files that a call changes, with the size of each change.
fn changes_of(call: &ToolCall, cwd: &str) -> Option<String> {
    let diffs = call.content.iter().filter(|part| part["type"] == "diff");
    let mut lines: Vec<String> = diffs.map(|diff| change_line(diff, cwd)).collect();
    if lines.is_empty() && matches!(call.kind.as_str(), "edit" | "delete" | "move") {
        lines = call.locations.iter().map(|path| shortened(path, cwd)).collect();
    }
    if lines.is_empty() {
        return None;
    }
    // The words may name what the list does not, such as the new name of a file.
    let said = call.title.trim();
    let is_said = said.is_empty() || lines.iter().any(|line| line.starts_with(&shortened(said, cwd)));
    if !is_said {
        lines.insert(0, said.to_owned());
    }
    Some(lines.join("\n"))
}

fn change_line(diff: &Value, cwd: &str) -> String {
    let path = shortened(text_field(diff, "path"), cwd);
    let count = |field: &str| text_field(diff, field).lines().count();
    let (old, new) = (count("oldText"), count("newText"));
    match old {
        0 => format!("{path} (+{new})"),
        _ => format!("{path} (-{old} +{new})"),
    }
}

/// A path within the folder of the session without that folder.
fn shortened(path: &str, cwd: &str) -> String {
    match Path::new(path).strip_prefix(cwd) {
        Ok(rest) if !rest.as_os_str().is_empty() && !path.contains("..") => rest.display().to_string(),
        Ok(_) | Err(_) => path.to_owned(),
    }
}

/// Everything that is known about any other call.
fn words_of(call: &ToolCall) -> String {
    let name = Some(call.name.trim()).filter(|name| !name.is_empty() && *name != call.title.trim());
    let mut lines: Vec<String> = name
        .into_iter()
        .chain([call.title.trim()])
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    lines.extend(call.locations.iter().filter(|path| !call.title.contains(path.as_str())).cloned());
    let texts =
        call.content.iter().flat_map(|part| list_field(part, "content").iter().chain([&part["content"]]));
    lines
        .extend(texts.map(|text| text_field(text, "text").trim().to_owned()).filter(|text| !text.is_empty()));
    match &call.raw_input {
        Value::Null => {}
        Value::Object(fields) if fields.is_empty() => {}
        input => lines.push(sorted(input).to_string()),
    }
    lines.join("\n")
}
