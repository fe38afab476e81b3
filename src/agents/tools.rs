//! Tools that an agent of kind `model` calls: the contract between its loop and each tool.
//!
//! The loop reads a model's tool call, finds the tool by its name, shows the call as a step, and feeds the result back. A
//! tool gets arguments that a model wrote: it checks all of them, and stays within the agent's limits by itself.

pub mod approval;
pub mod arguments;
pub mod blocking;
#[cfg(test)]
pub(crate) mod call_fixture;
pub mod edit_file;
pub mod memory;
pub mod read_file;
pub mod search_files;
pub mod skills;
pub mod terminal;
pub mod workspace;
pub mod write_file;

use serde_json::{Map, Value};
use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{AgentOutput, AgentTurn};
use crate::i18n::LocalizedText;

/// Longest result of one tool call, in bytes. A longer one is cut in the middle, and says so: every byte is sent to the
/// model again with each further call of the turn.
pub const RESULT_BYTES: usize = 48 * 1024;

/// One tool. An implementation holds the parts that all turns share; a call brings the rest.
pub trait AgentTool: Send + Sync {
    /// The tool as the model is told of it. Must not wait. The name is unique within one agent.
    fn spec(&self) -> ToolSpec;

    /// The subject of a call in one line for people, such as the command or the file. Called before `call`, also with
    /// arguments that make no sense; empty if there is nothing to say.
    fn subject(&self, arguments: &Map<String, Value>) -> String;

    /// Runs the tool once. Called only after the call is on record, and never again for the same call. Several calls of
    /// one tool may run at the same time. When `stop` fires, or the future is dropped, everything that the call started
    /// ends.
    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>>;
}

/// The description of a tool for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// A few sentences that say what the tool does and when to use it.
    pub description: String,
    /// JSON schema of the arguments, an object.
    pub parameters: Value,
}

/// One call of a tool.
pub struct ToolCall<'a> {
    /// The arguments, as the model wrote them.
    pub arguments: &'a Map<String, Value>,
    /// The turn that the call belongs to.
    pub turn: &'a AgentTurn,
    /// For asks. A tool neither emits text nor records messages.
    pub out: &'a dyn AgentOutput,
    /// Shows a line as the state of the call: the last line of its output. May be called often; the loop shows as many as
    /// makes sense.
    pub progress: &'a (dyn Fn(&str) + Send + Sync),
    /// Fired when the turn is stopped.
    pub stop: &'a CancellationToken,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFailure {
    /// The call failed or was refused. The model is told these words, and goes on.
    Failed(String),
    /// The task halts because nobody answered an ask in time: the turn ends, cut short for this reason. The words are a
    /// part of a sentence.
    Halt(LocalizedText),
    /// The turn was stopped.
    Stopped,
}

impl ToolFailure {
    /// A failure that the model is told.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::Failed(words.into())
    }
}

/// The text argument `name`, which the tool cannot do without.
pub fn required_text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolFailure> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ToolFailure::failed(format!("`{name}` must be a string"))),
        None => Err(ToolFailure::failed(format!("`{name}` is missing"))),
    }
}

/// Cuts a result to [`RESULT_BYTES`]: the beginning and the end stay, and a line between them says how much is missing.
pub fn cap_result(text: String) -> String {
    if text.len() <= RESULT_BYTES {
        return text;
    }
    let half = RESULT_BYTES / 2;
    let (start, end) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}\n[… {} bytes left out …]\n{}", &text[..start], end - start, &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_keeps_its_beginning_and_its_end() {
        let short = "ü".repeat(10);
        assert_eq!(cap_result(short.clone()), short);
        let cut = cap_result(format!("begin{}end", "ü".repeat(RESULT_BYTES)));
        assert!(cut.starts_with("begin") && cut.ends_with("end") && cut.contains("bytes left out"));
        assert!(cut.len() < RESULT_BYTES + 100);
    }
}
