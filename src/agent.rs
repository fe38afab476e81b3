//! The agent contract: the trait that answers turns, and its errors.
//!
//! Only [`Turns`](crate::turns) calls an agent. An agent never writes to a room: it emits [`TurnEvent`]s and ends. It is
//! told room and person only as labels ([`AgentTurn::origin`]).

mod agent_scratch;
mod ask;
mod event;
mod info;
mod model_params;
mod note_scope;
mod registry;
mod review;
mod transcript;
mod turn;
mod usage_estimate;

use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{BoxFuture, CancellationToken};

use crate::i18n::LocalizedText;
use crate::ids::{AgentName, SessionId};
pub use agent_scratch::AgentScratch;
pub use ask::{ANSWER_CHARS, AnswerError, AnswerForm, Ask, AskChoice, AskOption, DenyReason, OptionKind};
pub use event::{
    AskOpened, AskPosition, AskResolved, PriorAsk, REMARKS_FACT, Step, StepState, TokenUsage, TurnEvent,
};
pub use info::{AgentInfo, AgentKind, FallbackInfo, RewindSupport};
pub use model_params::ModelParams;
pub use note_scope::NoteScope;
pub use registry::{AgentInfos, AgentRegistry, AgentTable, NamedAgent};
pub use review::{LearningTools, ReviewRequest, ReviewResult};
pub use transcript::{NO_ANSWER, close_transcript, legal_history};
pub use turn::{
    AgentTurn, Attachment, AttemptKind, ImageUrl, MessageRole, PreparedTurn, PromptImage, PromptPart,
    SessionMessage, ToolActivity, TurnOrigin,
};
pub use usage_estimate::{UsageEstimate, estimate_tokens, text_bytes};

/// Largest size of one turn in bytes, for every agent.
pub const TURN_BYTES: usize = 16 * 1024 * 1024;

/// Largest report of an agent about a session in bytes; see [`TurnEvent::Upstream`]. It is stored with every session.
pub const UPSTREAM_BYTES: usize = 4 * 1024;

/// Turns a prompt into turn events.
pub trait Agent: Send + Sync {
    /// Describes the agent, as far as is known now. Must not wait for anything.
    fn about(&self) -> AgentInfo;

    /// Makes the request for a turn. Called before the turn is marked as dispatched; the engine stores the request, so
    /// that a repeat after a crash sends the same bytes. Called again only if it is proven that nothing ran.
    /// May ask the upstream for its capabilities; must not start anything there.
    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>>;

    /// Runs the turn to its end. Called at most once at a time per session, after `prepared` was stored. The agent
    /// alone holds the request, which counts as memory in use until it is dropped: the agent should drop it as soon as
    /// the upstream has it. The fields of `turn` that held a large prompt are empty by now. When `stop` fires the agent
    /// ends everything it started and returns [`TurnEnd::Stopped`]; if it does not within the grace, the future is
    /// dropped, which must end everything too.
    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>>;

    /// The work of telling the upstream to end a run that may still go on there; `None` if nothing is left to be told. Called
    /// if the turn was stopped during a try, between two tries, or before a crash, and if its place ends with this process.
    /// The engine owns the work: a task goes on with it until it or the process ends. It must end by itself.
    fn abandon(&self, _turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Ready as soon as the next process could go on with a resumable try that runs now; `None` if it can in any case. Asked
    /// when the process is about to end: the engine goes on with the try for a moment until then.
    fn until_resumable(&self, _turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Frees everything that the agent holds for a session that is over. Called for each session that the agent reported
    /// something of ([`TurnEvent::Upstream`]): when `/new`, a reset by time or another agent took its place, when it was
    /// deleted, and when its history changed, which makes it another session to the agent. Never called while a turn of
    /// the session runs.
    ///
    /// The call is stored together with the end of the session, so a crash does not lose it, but may repeat it. It has
    /// a deadline; the agent gets no second call after a failure.
    fn end(&self, _ended: EndedSession) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Called once when a reload has registered another agent in place of this one. Turns that run go on to their end; the
    /// agent gets no further ones, and frees what its successor needs. Must not wait.
    fn retire(&self) {}

    /// Whether the next process may find the answer to this request, if this process ends before the answer is
    /// complete; see [`recover`](Self::recover). Must not wait.
    fn may_recover(&self, _prepared: &PreparedTurn) -> bool {
        false
    }

    /// Looks for the answer to a turn that may have run and must not run again, because the connection or the process
    /// that read it broke. Called before the engine gives the answer up. `None` if there is any doubt that it answers
    /// this turn. Must run nothing, and end by itself or when it is dropped; `out` is for notices while it waits.
    fn recover<'a>(
        &'a self,
        _lost: LostTurn<'a>,
        _out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        Box::pin(async { None })
    }

    /// Finds out what [`about`](Self::about) cannot tell yet. Called before a decision that depends on it; the caller
    /// waits only for a moment, and then decides without it. Must start nothing; failures are not reported.
    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Lines about parts of the agent, such as servers whose tools it has, for `/status`. Must not wait.
    fn state_lines(&self) -> Vec<LocalizedText> {
        Vec::new()
    }

    /// Lines about parts of the agent for the operator's `talaria status`. May look at the system's processes, so it is
    /// called on a thread that may block.
    fn operator_lines(&self) -> Vec<LocalizedText> {
        Vec::new()
    }

    /// Version of the program that runs its turns, if the agent is one and has told it. Must not wait.
    fn program_version(&self) -> Option<String> {
        None
    }

    /// Whether the program that runs its turns is there; true for an agent that is none. Looks at the disk.
    fn has_program(&self) -> bool {
        true
    }

    /// Whether a process of this session is up, by [`AgentTurn::conversation`]. Must not wait.
    fn has_process(&self, _conversation: &SessionId) -> bool {
        false
    }

    /// Reviews a conversation in the background: keeps notes and skills from it, with the tools that
    /// [`AgentInfo::reviews`] names. Called only for an agent that has some; dropped at a deadline.
    fn review(&self, _request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
        Box::pin(async { Ok(ReviewResult::default()) })
    }

    /// Finds out whether the agent would answer now. Called before a turn is risked on an agent that was away, and by
    /// health checks; must be quick and start nothing. [`AgentErrorKind::Refused`] means that the agent is there and
    /// lets nobody in as things are. An agent that cannot tell says yes: the turn finds out.
    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        Box::pin(async { Ok(AnsweringAgent::Agent) })
    }
}

/// The agent that would answer a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweringAgent {
    /// The agent itself.
    Agent,
    /// Its fallback, because the agent is away.
    StandIn,
}

/// A session that is over; see [`Agent::end`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// The agent that reported it. An agent around others passes it on by this name.
    pub agent: AgentName,
    /// The session under the name that the agent was given with its turns.
    pub session: SessionId,
    /// The agent's last report about it.
    pub upstream: serde_json::Value,
}

/// Receives the events of a running turn. Implemented by the turn engine, and by tests.
pub trait AgentOutput: Send + Sync {
    /// Takes an event. Never waits; when the turn has grown beyond its cap the engine fires the stop token instead.
    fn emit(&self, event: TurnEvent<'_>);

    /// Asks the people of the turn's place, and waits for their answer. The ask is opened when the future is first
    /// polled, not by the call. No answer in time, a stop, the end of the
    /// process and every failure are [`AskChoice::Deny`] with the reason. Dropping the future withdraws the ask; the
    /// future may outlive one attempt of a turn. An agent may act only on `Allow`, or as the chosen option says.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice>;

    /// Whether approvals that people gave for longer than once still hold, all of them. For an agent whose upstream does not
    /// repeat an ask that was approved so. Every failure is a no.
    fn still_granted(&self, _asks: Vec<Ask>) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// Stores a report about the session, as `TurnEvent::Upstream` does, and returns when it is on disk. For an agent that
    /// starts something at its upstream which nobody could find without the report. An error ends the turn: the agent
    /// returns it.
    fn store_upstream(&self, report: serde_json::Value) -> BoxFuture<'_, Result<(), AgentError>> {
        self.emit(TurnEvent::Upstream(report));
        Box::pin(async { Ok(()) })
    }

    /// Stores a complete message of the turn's transcript, and returns when it is on disk. An agent that records one
    /// message of a turn records all of them in order, and a message with tool calls before it runs any of the calls: a
    /// process that dies then leaves a true transcript. An error ends the turn: the agent returns it.
    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>>;

    /// Returns a future if the agent should wait before it reads more from its upstream: because nobody reads the text
    /// so far, or because all turns together hold too much. If the future returns an error, the agent ends the turn with
    /// it. Called now and then, and never while the agent holds a lock.
    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        None
    }

    /// Sets the final text of the answer, if it differs from the streamed deltas. Only at the end of an answer.
    fn replace_text(&self, _text: &str) {}
}

/// A turn whose answer was lost on the way.
#[derive(Clone, Copy, Debug)]
pub struct LostTurn<'a> {
    /// The turn.
    pub turn: &'a AgentTurn,
    /// The request that was sent, or may have been.
    pub prepared: &'a PreparedTurn,
    /// Earlier turns of this session with an equal prompt.
    pub before: EqualTurns,
}

/// Earlier turns of a session that had the same prompt, as the agent was told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EqualTurns {
    /// Turns that were answered, so the upstream has their prompts.
    pub answered: usize,
    /// Turns with another end, whose prompts the upstream may have or not, and turns whose prompts were deleted here.
    pub unclear: usize,
}

/// An answer that was found where the upstream keeps it; see [`Agent::recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveredAnswer {
    /// The upstream recorded that the agent had said all it wanted.
    Complete(String),
    /// Nothing proves that this is all of it: the agent may have been interrupted while it spoke.
    Partial(String),
}

/// End of a try that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The agent said all it wanted.
    Done,
    /// The agent was asked to stop and did.
    Stopped,
    /// A length limit cut the answer short.
    Limit,
}

/// Failure of a try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct AgentError {
    /// The engine's next action.
    pub kind: AgentErrorKind,
    /// One calm sentence for the room: no URL, key, path or upstream body.
    pub words: LocalizedText,
}

/// The engine's next action after a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentErrorKind {
    /// It is proven that nothing ran: the turn waits and is tried again within its budget.
    NothingRan {
        /// Pause that the upstream asks for.
        after: Option<Duration>,
    },
    /// It is proven that nothing ran, and the agent is there: it has too much to do. The turn waits like after
    /// `NothingRan`; no fallback is asked, unless the agent names a long wait itself.
    Busy {
        /// Pause that the upstream asks for.
        after: Option<Duration>,
        /// The upstream counts requests and this caller sent too many (429); otherwise it is overloaded (503).
        rate_limited: bool,
    },
    /// It is proven that nothing ran, and the agent can make another request that is worth sending at once. The engine
    /// prepares the turn anew without a pause, but not twice in a row. Never returned for a turn that may have run in
    /// an earlier try.
    PrepareAgain,
    /// The turn may have run and the outcome is unknown: the same bytes are sent again if they are resumable, otherwise
    /// the turn is interrupted.
    Unknown {
        /// Pause that the upstream asks for.
        after: Option<Duration>,
    },
    /// The turn may have run, and sending the same bytes again would not tell, even if they are resumable: the engine
    /// looks for the answer ([`Agent::recover`]), and without one the turn is interrupted.
    Lost,
    /// The upstream says no, or its response is no answer. Another try will not help.
    Refused,
    /// The upstream refuses this prompt: it is wrong or too long. Another prompt may be answered.
    Unfit,
    /// The answer broke off after some text; the text is kept and marked.
    CutShort,
}

impl AgentErrorKind {
    /// Pause that the upstream asks for, if any.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NothingRan { after } | Self::Busy { after, .. } | Self::Unknown { after } => after,
            Self::PrepareAgain | Self::Lost | Self::Refused | Self::Unfit | Self::CutShort => None,
        }
    }
}

impl AgentError {
    /// An error with the words a room sees.
    pub fn new(kind: AgentErrorKind, words: impl Into<LocalizedText>) -> Self {
        Self { kind, words: words.into() }
    }
}

/// An agent behind a pointer. A reload may register another one under the same name.
pub type SharedAgent = Arc<dyn Agent>;
