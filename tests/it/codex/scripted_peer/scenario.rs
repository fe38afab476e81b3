//! Scenarios of the scripted codex, as a test writes them and the process reads them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version that we know best.
const VERSION: &str = "codex-cli 0.169.0";

/// The behaviour of a scripted codex.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Output of `--version`, without quotes.
    pub version: String,
    /// Acts before anything is read.
    pub on_start: Vec<Act>,
    /// Acts before `initialize` is answered.
    pub on_initialize: Vec<Act>,
    /// Acts of turns. The first entry whose words are in the prompt is played; without one, the prompt is repeated.
    pub turns: Vec<(String, Vec<Act>)>,
    /// A gate at which a turn waits after its start was answered, before it begins. As with the real one, nobody can
    /// interrupt it by its id then.
    pub begins_behind: Option<String>,
    /// When codex begins a turn by itself.
    pub own_turn: Option<OwnTurn>,
    /// What `turn/interrupt` does.
    pub interrupt: InterruptRule,
    /// Answers that are given once in each process, in order, before any other to that method.
    pub once: Vec<(String, ScriptedAnswer)>,
    /// Answers that are always given to a method.
    pub always: BTreeMap<String, ScriptedAnswer>,
    /// Members that replace those of the answers to `thread/start` and `thread/resume`.
    pub thread: Map<String, Value>,
}

/// The moment at which codex begins a turn that nobody has asked for, once in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnTurn {
    /// Right after a turn has ended.
    AfterTurn,
    /// Before the answer to `thread/resume` is sent.
    AtResume,
    /// In place of a turn whose start was answered, and which never begins.
    InPlace,
}

/// What `turn/interrupt` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterruptRule {
    /// It is answered, and the turn ends as interrupted.
    #[default]
    Works,
    /// It is never answered, and the turn goes on.
    Silent,
    /// It is answered, and the turn goes on.
    Ignored,
}

/// An answer in place of the usual one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ScriptedAnswer {
    Result(Value),
    Error { code: i64, message: String, data: Option<Value> },
    Silence,
}

/// One thing that the process does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// A message in these pieces.
    Says(Vec<String>),
    /// Pieces of a message that is not completed.
    SaysHalf(Vec<String>),
    /// Reasoning with this summary.
    Thinks(String),
    /// A command.
    Runs(CommandAct),
    /// A change of files.
    Patches(PatchAct),
    /// A request with these parameters and the ids of the turn. Its answer is awaited, and is in the log.
    Asks { method: String, params: Value },
    /// A notification with these parameters and the ids of the turn.
    Notifies { method: String, params: Value },
    /// Waits until the test opens this gate. A turn can be interrupted meanwhile.
    Waits(String),
    /// Waits until the turn is interrupted.
    Hangs,
    /// The turn fails with this error. `info` is `codexErrorInfo`.
    Fails { message: String, info: Value },
    /// An error after which codex tries again by itself.
    Retries(String),
    /// The history is made shorter.
    Compacts,
    /// The end of the turn is never told.
    EndsSilently,
    /// Bytes as they are; `$thread` and `$turn` are replaced.
    Writes(Vec<u8>),
    /// A line of this many bytes that is no message.
    LongLine(usize),
    /// A notification with this many bytes of padding.
    LongMessage(usize),
    /// One line without an end.
    EndlessLine,
    /// Lines without an end.
    EndlessNoise,
    /// This many notifications of the thread that mean nothing, each with 1000 bytes.
    Floods(usize),
    /// This line so many times, past the log. `$thread` and `$turn` are replaced, and `$number` by the number of the line.
    Repeats { line: String, times: usize },
    /// Input is not read any more.
    StopsReading,
    /// Output is closed, and the process lives on.
    ClosesOutput,
    /// The process ends with these words on standard error.
    Exits { code: i32, stderr: String },
    /// The process kills itself.
    Dies,
}

/// A command of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandAct {
    pub command: String,
    pub output: String,
    pub exit: i32,
    /// Whether somebody must allow it.
    pub asks: bool,
    /// A gate at which it waits, after it has begun to run.
    pub waits: Option<String>,
}

/// A change of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchAct {
    /// Kind (`add`, `update`, `delete`), path and content of each change.
    pub changes: Vec<(String, String, String)>,
    /// Whether somebody must allow it.
    pub asks: bool,
}

impl Act {
    pub fn says(pieces: &[&str]) -> Self {
        Self::Says(pieces.iter().map(|piece| (*piece).to_owned()).collect())
    }

    pub fn says_half(pieces: &[&str]) -> Self {
        Self::SaysHalf(pieces.iter().map(|piece| (*piece).to_owned()).collect())
    }

    /// A command that nobody is asked about.
    pub fn runs(command: &str, output: &str) -> Self {
        let (command, output) = (command.to_owned(), output.to_owned());
        Self::Runs(CommandAct { command, output, exit: 0, asks: false, waits: None })
    }

    /// A command that somebody must allow.
    pub fn runs_if_allowed(command: &str, output: &str) -> Self {
        let (command, output) = (command.to_owned(), output.to_owned());
        Self::Runs(CommandAct { command, output, exit: 0, asks: true, waits: None })
    }

    /// Changes that somebody must allow: kind, path and content.
    pub fn patches_if_allowed(changes: &[(&str, &str, &str)]) -> Self {
        let owned = |(kind, path, diff): &(&str, &str, &str)| {
            ((*kind).to_owned(), (*path).to_owned(), (*diff).to_owned())
        };
        Self::Patches(PatchAct { changes: changes.iter().map(owned).collect(), asks: true })
    }

    pub fn asks(method: &str, params: Value) -> Self {
        Self::Asks { method: method.to_owned(), params }
    }

    pub fn notifies(method: &str, params: Value) -> Self {
        Self::Notifies { method: method.to_owned(), params }
    }

    pub fn waits(gate: &str) -> Self {
        Self::Waits(gate.to_owned())
    }

    pub fn writes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Writes(bytes.into())
    }

    pub fn repeats(line: &Value, times: usize) -> Self {
        Self::Repeats { line: line.to_string(), times }
    }

    pub fn exits(code: i32, stderr: &str) -> Self {
        Self::Exits { code, stderr: stderr.to_owned() }
    }

    /// A failure that codex names by this word.
    pub fn fails(message: &str, info: &str) -> Self {
        Self::Fails { message: message.to_owned(), info: json!(info) }
    }
}

impl ScriptedAnswer {
    pub fn error(code: i64, message: &str) -> Self {
        Self::Error { code, message: message.to_owned(), data: None }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            version: VERSION.to_owned(),
            on_start: Vec::new(),
            on_initialize: Vec::new(),
            turns: Vec::new(),
            begins_behind: None,
            own_turn: None,
            interrupt: InterruptRule::Works,
            once: Vec::new(),
            always: BTreeMap::new(),
            thread: Map::new(),
        }
    }
}

impl Scenario {
    /// The acts of a turn with this prompt.
    pub fn acts(&self, prompt: &str) -> Option<Vec<Act>> {
        let turn = self.turns.iter().find(|(words, _)| prompt.contains(words.as_str()));
        turn.map(|(_, acts)| acts.clone())
    }

    /// A codex that does this at every prompt with these words.
    pub fn turn(mut self, words: &str, acts: impl Into<Vec<Act>>) -> Self {
        self.turns.push((words.to_owned(), acts.into()));
        self
    }

    /// A codex that does this before it reads anything.
    pub fn starting(mut self, acts: impl Into<Vec<Act>>) -> Self {
        self.on_start = acts.into();
        self
    }

    /// A codex that does this before it answers `initialize`.
    pub fn initializing(mut self, acts: impl Into<Vec<Act>>) -> Self {
        self.on_initialize = acts.into();
        self
    }

    /// A codex that gives this answer to a method, once in each process.
    pub fn once(mut self, method: &str, answer: ScriptedAnswer) -> Self {
        self.once.push((method.to_owned(), answer));
        self
    }

    /// A codex that always gives this answer to a method.
    pub fn always(mut self, method: &str, answer: ScriptedAnswer) -> Self {
        self.always.insert(method.to_owned(), answer);
        self
    }

    /// A codex whose turns wait at this gate before they begin.
    pub fn beginning_behind(mut self, gate: &str) -> Self {
        self.begins_behind = Some(gate.to_owned());
        self
    }

    /// A codex that begins a turn by itself. It asks for the command `make own`.
    pub fn beginning_its_own(mut self, moment: OwnTurn) -> Self {
        self.own_turn = Some(moment);
        self
    }

    pub fn interrupted(mut self, rule: InterruptRule) -> Self {
        self.interrupt = rule;
        self
    }

    /// A codex whose threads have this, in the answers to `thread/start` and `thread/resume`.
    pub fn with_thread(mut self, member: &str, value: Value) -> Self {
        self.thread.insert(member.to_owned(), value);
        self
    }
}
