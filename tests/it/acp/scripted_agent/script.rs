//! Scripts of the scripted agent, as a test writes them and the process reads them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The behaviour of a scripted agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// Acts before anything is read.
    pub on_start: Vec<Act>,
    /// Acts before `initialize` is answered.
    pub on_initialize: Vec<Act>,
    /// The answer to `initialize`.
    pub greeting: Value,
    /// What `session/new` does: an error in place of a conversation.
    pub new_error: Option<(i64, String)>,
    /// The answer to `session/new`, in place of a conversation.
    pub new_answer: Option<Value>,
    /// Fields of the answers to `session/new` and `session/load` besides the id.
    pub offers: Value,
    /// What `session/load` does.
    pub load: LoadRule,
    /// What `session/cancel` does.
    pub cancel: CancelRule,
    /// Acts when `session/cancel` comes, before it does anything.
    pub on_cancel: Vec<Act>,
    /// Acts of turns. The first entry whose words are in the prompt is played; without one, its last text is repeated.
    pub turns: Vec<(String, Vec<Act>)>,
}

/// What `session/load` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoadRule {
    /// The conversation is repeated and then open; one that is not there is an error.
    #[default]
    Works,
    /// It is never answered.
    Hangs,
    /// The process ends.
    Dies,
}

/// What `session/cancel` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelRule {
    /// The prompt is answered with `cancelled`.
    #[default]
    Works,
    /// Nothing.
    Ignored,
}

/// One thing that the process does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// Pieces of one message.
    Says(Vec<String>),
    /// Reasoning.
    Thinks(String),
    /// A command: its name, its output, and whether somebody must allow it.
    Runs { command: String, output: String, asks: bool },
    /// An update of the conversation.
    Updates(Value),
    /// A request with these parameters and the id of the conversation. Its answer is awaited, and is in the log.
    Asks { method: String, params: Value },
    /// Like `Asks`, but its answer is not awaited.
    Sends { method: String, params: Value },
    /// A notification with these parameters and the id of the conversation.
    Notifies { method: String, params: Value },
    /// Waits until the test opens this gate. A turn can be cancelled meanwhile.
    Waits(String),
    /// Waits until the turn is cancelled.
    Hangs,
    /// The prompt is answered with this.
    Ends(Value),
    /// The prompt is answered with this error.
    Fails { code: i64, message: String },
    /// Bytes as they are.
    Writes(Vec<u8>),
    /// A line of this many bytes that is no message.
    LongLine(usize),
    /// An update with this many bytes of padding.
    LongMessage(usize),
    /// One line without an end.
    EndlessLine,
    /// So many pieces of text, each of ten bytes.
    Floods(usize),
    /// Words on standard error.
    Warns(String),
    /// The process ends with these words on standard error.
    Exits { code: i32, stderr: String },
    /// The end of input does not end the process, and neither does SIGTERM.
    StaysAlive,
}

impl Act {
    pub fn says(pieces: &[&str]) -> Self {
        Self::Says(pieces.iter().map(|piece| (*piece).to_owned()).collect())
    }

    pub fn runs(command: &str, output: &str) -> Self {
        Self::Runs { command: command.to_owned(), output: output.to_owned(), asks: false }
    }

    pub fn runs_if_allowed(command: &str, output: &str) -> Self {
        Self::Runs { command: command.to_owned(), output: output.to_owned(), asks: true }
    }

    pub fn asks(method: &str, params: Value) -> Self {
        Self::Asks { method: method.to_owned(), params }
    }

    pub fn sends(method: &str, params: Value) -> Self {
        Self::Sends { method: method.to_owned(), params }
    }

    pub fn waits(gate: &str) -> Self {
        Self::Waits(gate.to_owned())
    }

    pub fn writes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Writes(bytes.into())
    }

    pub fn exits(code: i32, stderr: &str) -> Self {
        Self::Exits { code, stderr: stderr.to_owned() }
    }

    pub fn warns(words: &str) -> Self {
        Self::Warns(words.to_owned())
    }

    pub fn stops(reason: &str) -> Self {
        Self::Ends(json!({ "stopReason": reason }))
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            on_start: Vec::new(),
            on_initialize: Vec::new(),
            greeting: json!({
                "protocolVersion": 1,
                "agentInfo": { "name": "scripted", "version": "1.0" },
                "agentCapabilities": { "loadSession": true,
                    "promptCapabilities": { "image": true, "embeddedContext": false } },
                "authMethods": [],
            }),
            new_error: None,
            new_answer: None,
            offers: json!({ "models": { "availableModels": [{ "modelId": "large", "name": "Large" }] } }),
            load: LoadRule::Works,
            cancel: CancelRule::Works,
            on_cancel: Vec::new(),
            turns: Vec::new(),
        }
    }
}

impl Script {
    /// The acts of a turn with this prompt.
    pub fn acts(&self, prompt: &str) -> Option<Vec<Act>> {
        let turn = self.turns.iter().find(|(words, _)| prompt.contains(words.as_str()));
        turn.map(|(_, acts)| acts.clone())
    }

    /// An agent that does this at every prompt with these words.
    pub fn turn(mut self, words: &str, acts: impl Into<Vec<Act>>) -> Self {
        self.turns.push((words.to_owned(), acts.into()));
        self
    }

    /// An agent that does this before it reads anything.
    pub fn starting(mut self, acts: impl Into<Vec<Act>>) -> Self {
        self.on_start = acts.into();
        self
    }

    /// An agent that does this before it answers `initialize`.
    pub fn initializing(mut self, acts: impl Into<Vec<Act>>) -> Self {
        self.on_initialize = acts.into();
        self
    }

    /// An agent that cannot open conversations of earlier processes.
    pub fn without_load(mut self) -> Self {
        self.greeting["agentCapabilities"]["loadSession"] = json!(false);
        self
    }

    /// An agent whose conversations have these settings.
    pub fn offering(self, offers: Value) -> Self {
        Self { offers, ..self }
    }

    pub fn loading(self, load: LoadRule) -> Self {
        Self { load, ..self }
    }

    /// An agent that does this when it is told to stop.
    pub fn cancelling(self, acts: impl Into<Vec<Act>>) -> Self {
        Self { on_cancel: acts.into(), ..self }
    }

    pub fn cancelled(self, cancel: CancelRule) -> Self {
        Self { cancel, ..self }
    }
}
