//! What answers: the trait and its errors.
//!
//! Only [`Turns`](crate::turns) calls an agent. An agent neither knows the room nor edits anything:
//! it emits [`TurnEvent`]s and ends.

mod agent_scratch;
mod ask;
mod event;
mod model_params;
mod registry;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{BoxFuture, CancellationToken};

use crate::i18n::{LocalizedText, TextKey};
pub use agent_scratch::AgentScratch;
pub use ask::{ANSWER_CHARS, AnswerError, AnswerForm, Ask, AskChoice, AskOption, DenyReason, OptionKind};
pub use event::{
    AskOpened, AskPosition, AskResolved, PriorAsk, Step, StepState, TokenUsage, ToolActivity,
    TranscriptRecord, TurnEvent,
};
pub use model_params::ModelParams;
pub use registry::{AgentInfos, AgentRegistry, AgentTable};
pub use turn::{
    AgentTurn, Attachment, AttemptKind, ImageUrl, MessageRole, PreparedTurn, PromptImage, PromptPart,
    SessionMessage, TurnOrigin,
};

/// Bytes of one turn, whoever answers.
pub const TURN_BYTES: usize = 16 * 1024 * 1024;

/// Something that turns a prompt into turn events.
pub trait Agent: Send + Sync {
    /// What this agent is and can do, as far as is known now. Must not wait for anything.
    fn about(&self) -> AgentInfo;

    /// What would be sent for this turn. Called before the turn is marked as dispatched; what it
    /// returns is stored with the turn, so that a repeat after a crash is the same byte for byte.
    /// May ask the upstream what it can do; must not start anything there.
    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>>;

    /// Runs the turn to its end. Called at most once at a time per session, after `prepared` was
    /// stored. The request is the agent's alone and counts until it is dropped: it should be as soon as the upstream
    /// has it. Of a large question the turn itself has nothing any more. When `stop` fires the agent ends what it started and returns [`TurnEnd::Stopped`];
    /// if it does not within the grace, the future is dropped, which must end everything too.
    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>>;

    /// A person stopped the turn while none of its tries was under way, and an earlier one may still run somewhere.
    /// Must not wait; best effort.
    fn abandon(&self, _turn: &AgentTurn) {}

    /// Whether an answer that is lost with this process may be found by the next, as far as is known now: see
    /// [`recover`](Self::recover).
    fn may_recover(&self) -> bool {
        false
    }

    /// Looks for the answer to a turn that may have run and must not run again: its connection broke, or the process
    /// that read it. Called once the engine has nothing better to do than to say so. `None` if there is any doubt
    /// whose answer it is. Must run nothing, and end by itself or when it is dropped; `out` is for saying what is
    /// waited for.
    fn recover<'a>(
        &'a self,
        _lost: LostTurn<'a>,
        _out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        Box::pin(async { None })
    }

    /// Finds out what [`about`](Self::about) cannot tell yet. Called before something is decided by that; the caller waits
    /// only for a moment, and then decides without it. Must start nothing; failures are not told.
    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Whether it would answer now. Called before a turn is risked on an agent that was away, and by health checks;
    /// must be quick and start nothing. [`AgentErrorKind::Refused`] says that it is there and lets nobody in as things
    /// are. One that cannot tell says yes: the turn finds out.
    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        Box::pin(async { Ok(AnsweringAgent::Agent) })
    }
}

/// Who would answer a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweringAgent {
    /// The agent itself.
    Agent,
    /// The agent that stands in for it, because it is away.
    StandIn,
}

/// Where an agent puts what happens. Implemented by the turn engine, and by tests.
pub trait AgentOutput: Send + Sync {
    /// Tells what happened. Never waits; when the turn has grown beyond its cap the engine fires
    /// the stop token instead.
    fn emit(&self, event: TurnEvent<'_>);

    /// Asks the people of the turn's place, and waits for their answer. No answer in time, a stop, the end of the
    /// process and every failure are [`AskChoice::Deny`] with the reason. Dropping the future withdraws the ask; the
    /// future may outlive one attempt of a turn. An agent may act only on `Allow`, or as the chosen option says.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice>;

    /// Whether the agent should wait before it reads more from its upstream: because nobody takes what came so far, or
    /// because all turns together hold too much. An agent that is told an error ends with it. Asked now and then, and
    /// never while anything else is held.
    fn wait_for_room(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        None
    }

    /// Says what the whole text is, where that is not what was told piece by piece: this is what stays. Only for the
    /// end of an answer.
    fn replace_text(&self, _text: &str) {}
}

/// A turn whose answer was lost on the way.
#[derive(Clone, Copy, Debug)]
pub struct LostTurn<'a> {
    /// The turn.
    pub turn: &'a AgentTurn,
    /// The request that was sent, or may have been.
    pub prepared: &'a PreparedTurn,
    /// How often the same was asked in its session before, and answered. Nothing of which this is not known is looked
    /// for.
    pub before: usize,
}

/// An answer that was found where the upstream keeps it; see [`Agent::recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveredAnswer {
    /// The upstream recorded that the agent had said all it wanted.
    Complete(String),
    /// Nothing proves that this is all of it: the agent may have been interrupted while it spoke.
    Partial(String),
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// What answers.
    pub kind: AgentKind,
    /// For people: "remote agent server", "model llama3".
    pub name: LocalizedText,
    /// Whether history can be changed after the fact.
    pub rewind: RewindSupport,
    /// Whether it may be given a request once more that an earlier process made for it and that may have run. One
    /// that never makes such requests must not be given those of the agent that was configured before it.
    pub resume: bool,
    /// Who answers while this one is away, if anybody does.
    pub stand_in: Option<FallbackInfo>,
}

impl AgentInfo {
    /// Whether a model is talked to directly, without an agent server in between.
    pub fn is_model(&self) -> bool {
        self.kind == AgentKind::Model
    }

    /// Who answers as things stand, for people.
    pub fn answering(&self) -> LocalizedText {
        match &self.stand_in {
            Some(other) if other.answers => {
                TextKey::StatusStandIn.with("agent", other.name.clone()).with("away", self.name.clone())
            }
            Some(_) | None => self.name.clone(),
        }
    }
}

/// The kind of an agent, as the configuration calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// A remote agent server.
    Proxy,
    /// A model server, talked to directly.
    Model,
    /// The built-in guide, while nothing is configured.
    Guide,
}

/// Whether an agent's history can be changed after the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindSupport {
    /// It forgets what is taken back.
    Possible,
    /// The agent keeps every message: `/undo` is refused, and `/retry` asks the question again as a new turn.
    Impossible,
    /// The agent has not said it since the gateway started. `/undo` and edits are refused for now, `/retry` asks once more
    /// behind what was said, and the agent is not told what another one answered in its place. Only what people delete
    /// is taken back all the same: an agent that cannot rewind then forgets the rest of the conversation too.
    Unknown,
}

/// Who answers while another agent is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackInfo {
    /// For people, like the name of any agent.
    pub name: LocalizedText,
    /// The other one is away now.
    pub answers: bool,
}

/// How a turn ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The agent said all it wanted.
    Done,
    /// It was asked to stop and did.
    Stopped,
    /// A length limit cut it short.
    Limit,
}

/// Why a turn failed. `words` is one calm sentence fit for a room: no URL, key, path or upstream body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct AgentError {
    /// What the engine does next.
    pub kind: AgentErrorKind,
    /// What the room is told.
    pub words: LocalizedText,
}

/// What the engine does about a failed turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentErrorKind {
    /// It is proven that nothing ran: the turn waits and is tried again within its budget.
    NothingRan {
        /// How long the upstream wants us to wait.
        after: Option<Duration>,
    },
    /// The same, and the agent is there: it has too much to do. Nobody else is asked in its place, unless it
    /// names a long wait itself.
    Busy {
        /// How long the upstream wants us to wait.
        after: Option<Duration>,
        /// The upstream counts requests and this caller sent too many (429); otherwise it is overloaded (503).
        rate_limited: bool,
    },
    /// It may have run and the outcome is unknown: the same bytes are sent again if they are
    /// resumable, otherwise the turn is interrupted.
    Unknown {
        /// How long the upstream wants us to wait.
        after: Option<Duration>,
    },
    /// Nothing ran, and another agent stands ready: the turn is made ready anew, at once and with
    /// [`AgentTurn::elsewhere`]. Never said of such a turn itself, nor of one that may have run before.
    Elsewhere,
    /// The upstream says no, or answers something that is no answer. Trying again will not help.
    Refused,
    /// The same, because of what was asked: it is wrong or too long, and another question may be answered.
    Unfit,
    /// It broke off after text had come; the text is kept and marked.
    CutShort,
}

impl AgentErrorKind {
    /// How long the upstream wants us to wait, if it says so.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NothingRan { after } | Self::Busy { after, .. } | Self::Unknown { after } => after,
            Self::Elsewhere | Self::Refused | Self::Unfit | Self::CutShort => None,
        }
    }
}

impl AgentError {
    /// An error with the words a room sees.
    pub fn new(kind: AgentErrorKind, words: impl Into<LocalizedText>) -> Self {
        Self { kind, words: words.into() }
    }
}

/// The agent behind a pointer; chosen by configuration when the gateway is built.
pub type SharedAgent = Arc<dyn Agent>;
