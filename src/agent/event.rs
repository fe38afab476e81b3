//! Events of a turn.

use serde::{Deserialize, Serialize};

use super::{Ask, AskChoice};
use crate::i18n::LocalizedText;
use crate::ids::AskId;

/// Name under which the facts of an app's turn have its remarks.
pub const REMARKS_FACT: &str = "remarks";

/// An event of a turn. Text is borrowed, because most of it is copied straight into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent<'a> {
    /// More of the answer.
    Text(&'a str),
    /// More of the reasoning; never shown in rooms.
    Thought(&'a str),
    /// One line of the agent's own protocol, as it came, without the line break. Emitted only in a turn that
    /// [wants it](super::AgentTurn::wants_raw), before the events that the line causes. Only a reader of the log that
    /// passes lines on looks at it.
    Raw(&'a str),
    /// Further lines of the agent are left out, because there is no space for them. The events that they cause come all
    /// the same. Emitted by the log, once, never by an agent; a reader that resumes behind it gets it again.
    RawCut,
    /// A tool call began or ended. The same `id` again replaces the earlier state.
    Step(Step),
    /// A line for people about the state of the turn, such as "trying again until 14:05". Replaces the notice before;
    /// `None` removes it.
    Notice(Option<LocalizedText>),
    /// A sentence of ours that stays below the answer in a room, and is a part of the result over HTTP. It is no part of the
    /// text.
    Remark(LocalizedText),
    /// Tokens that the turn used.
    Usage(TokenUsage),
    /// The agent's own notes about the session, such as the id of a thread that it opened, at most
    /// [`UPSTREAM_BYTES`](super::UPSTREAM_BYTES) as JSON. They replace the notes before, are stored at once, and are
    /// given back as [`AgentTurn::upstream`](super::AgentTurn::upstream) in the agent's next turn of the session, also
    /// after a restart. A new session begins without them, and so does a session whose history changed.
    Upstream(serde_json::Value),
    /// Names and values about the run for programs, such as ids of an upstream. Each replaces the one with its name. They
    /// are stored with the end of the turn and are a part of its result over HTTP.
    Facts(serde_json::Map<String, serde_json::Value>),
    /// A person is asked. Emitted by the engine, never by an agent.
    Asked(AskOpened),
    /// An ask is over. Emitted by the engine, never by an agent.
    Answered(AskResolved),
}

/// An ask that people can see now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskOpened {
    /// Id of the ask.
    pub id: AskId,
    /// The whole ask.
    pub ask: Ask,
    /// End of the time for an answer, in seconds since 1970.
    pub expires: i64,
    /// A rule denied the ask at once, so nobody is asked.
    pub refused: bool,
}

/// An ask that is over. A denial by [`DenyReason::Restart`](super::DenyReason::Restart) is not in the log of the process
/// that ended, because nobody could know which of its readers had read it; the next process tells it to all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskResolved {
    /// Id of the ask.
    pub id: AskId,
    /// The answer that the agent gets.
    pub choice: AskChoice,
}

/// Position of an ask or of its answer in the turn. It is stored, so that the next process can repeat the event at the
/// same position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskPosition {
    /// Bytes of text and of reasoning before it, plus one for each change of a step.
    pub emitted: usize,
    /// Number of asks and answers before it in the turn, over all processes.
    pub nth: usize,
}

/// An ask of an earlier process, or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorAsk {
    /// Position in the turn; see [`AskPosition::emitted`].
    pub emitted: usize,
    /// Id of the ask.
    pub id: AskId,
    /// The answer; `None` at the position of the ask itself.
    pub answered: Option<AskResolved>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The agent's id of the call.
    pub id: String,
    /// The name of the tool, for people.
    pub title: String,
    /// The subject of the call in one line, such as the command or the file; while it runs, the last line of its output.
    pub detail: Option<String>,
    /// Progress of the call.
    pub state: StepState,
}

/// Progress of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepState {
    /// The tool runs.
    Running,
    /// The tool ended well.
    Done,
    /// The tool failed.
    Failed,
}

/// Tokens that a turn used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}
