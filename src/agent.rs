//! What answers: the trait, its events and its errors.
//!
//! Only [`Turns`](crate::turns) calls an agent. An agent neither knows the room nor edits anything:
//! it emits [`TurnEvent`]s and ends.

pub mod breaker;
pub mod fallback;
pub mod guide;
mod kept;
pub mod local;
pub mod proxy;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use talaria_platform::{BoxFuture, CancellationToken};

use crate::access::Grant;
use crate::session::{AskId, SessionId, TurnId};
use crate::words::{Phrase, Text};
pub use kept::Kept;

/// Something that turns a prompt into turn events.
pub trait Agent: Send + Sync {
    /// What this agent is and can do, as far as is known now. Must not wait for anything.
    fn about(&self) -> AgentInfo;

    /// What would be sent for this turn. Called before the turn is marked as dispatched; what it
    /// returns is stored with the turn, so that a repeat after a crash is the same byte for byte.
    /// May ask the upstream what it can do; must not start anything there.
    fn prepare<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Prepared, AgentError>>;

    /// Runs the turn to its end. Called at most once at a time per session, after `prepared` was
    /// stored. When `stop` fires the agent ends what it started and returns [`TurnEnd::Stopped`];
    /// if it does not within the grace, the future is dropped, which must end everything too.
    fn run_turn<'a>(
        &'a self,
        turn: &'a Turn,
        prepared: &'a Prepared,
        out: &'a dyn Out,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>>;

    /// A person stopped the turn while none of its tries was under way, and an earlier one may still run somewhere.
    /// Must not wait; best effort.
    fn let_go(&self, _turn: &Turn) {}

    /// Whether an answer that is lost with this process may be found by the next, as far as is known now: see
    /// [`recover`](Self::recover).
    fn may_recover(&self) -> bool {
        false
    }

    /// Looks for the answer to a turn that may have run and must not run again: its connection broke, or the process
    /// that read it. Called once the engine has nothing better to do than to say so. `None` if there is any doubt
    /// whose answer it is. Must run nothing, and end by itself or when it is dropped; `out` is for saying what is
    /// waited for.
    fn recover<'a>(&'a self, _lost: Lost<'a>, _out: &'a dyn Out) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    /// Whether it would answer now. Called before a turn is risked on an agent that was away; must be quick
    /// and start nothing. One that cannot tell says yes: the turn finds out.
    fn reachable(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }
}

/// Where an agent puts what happens. Implemented by the turn engine, and by tests.
pub trait Out: Send + Sync {
    /// Tells what happened. Never waits; when the turn has grown beyond its cap the engine fires
    /// the stop token instead.
    fn emit(&self, event: TurnEvent<'_>);

    /// Asks the people of the turn's place whether the agent may do something, and waits for the answer. No
    /// answer in time, a stop, the end of the process and every failure are [`Choice::Deny`]. Dropping
    /// the future takes the question back; it may be kept over several tries of a turn. An agent that gets
    /// anything but `Allow` must not act.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Choice>;

    /// Says what the whole text is, where that is not what was told piece by piece: this is what stays. Only for the
    /// end of an answer.
    fn whole(&self, _text: &str) {}
}

/// A turn whose answer was lost on the way.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'a> {
    /// The turn.
    pub turn: &'a Turn,
    /// The request that was sent, or may have been.
    pub prepared: &'a Prepared,
    /// How often the same was asked in its session before, and answered. Nothing of which this is not known is looked
    /// for.
    pub before: usize,
}

/// Something an agent may do only if a person allows it. All of it is the agent's word: it is shown, and
/// nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// In a few words, for people.
    pub title: String,
    /// The exact action, such as the whole command. What cannot be shown in full is denied.
    pub detail: String,
    /// The folder it would be done in.
    pub cwd: Option<String>,
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It must not be done.
    Deny,
    /// It may be done once. How far the approval reached is for agents that tell; whether the same must be
    /// asked again is decided here and never by the agent.
    Allow(Grant),
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// For people: "remote agent server", "model llama3".
    pub name: Phrase,
    /// Whether history can be changed after the fact (`/undo`, `/retry`). Where not, people are
    /// offered `/new`.
    pub rewind: bool,
    /// Whether it may be given a request once more that an earlier process made for it and that may have run. One
    /// that never makes such requests must not be given those of the agent that was configured before it.
    pub resume: bool,
    /// Who answers while this one is away, if anybody does.
    pub stand_in: Option<StandIn>,
}

impl AgentInfo {
    /// Whether a model is talked to directly, without an agent server in between.
    pub fn is_model(&self) -> bool {
        matches!(self.name, Phrase::Text(Text::AgentModel, _))
    }
}

/// Who answers while another agent is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// For people, like the name of any agent.
    pub name: Phrase,
    /// The other one is away now.
    pub answers: bool,
}

/// One turn as an agent sees it.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Unique; short enough to be quoted to people.
    pub id: TurnId,
    /// The session it belongs to, by the name the upstream knows it.
    pub session: SessionId,
    /// Text for the system message; empty for none.
    pub context: String,
    /// What was said before, oldest first, already filtered and capped.
    pub history: Vec<Message>,
    /// What the person wrote.
    pub prompt: String,
    /// The same in parts, if a program brought pictures with it: then these are what is sent.
    pub parts: Vec<Part>,
    /// Pictures that go with it.
    pub images: Vec<Image>,
    /// Other files that go with it.
    pub files: Vec<Attachment>,
    /// The same for every repeat of this turn, another one for `/retry`.
    pub key: String,
    /// Who asks and where, for upstreams that are told.
    pub origin: Origin,
    /// Whether this turn may have run before.
    pub attempt: Attempt,
    /// An agent proved that nothing ran and passed it on: it is for whoever stands in.
    pub elsewhere: bool,
    /// What scopes an agent's memory, if a program named it.
    pub memory: Option<String>,
    /// How many relays it has come through.
    pub hops: u32,
    /// What the agent keeps between two tries.
    pub kept: Kept,
}

/// A part of what a program asks, in the form of the chat-completions protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// All of them.
        text: String,
    },
    /// A picture.
    ImageUrl {
        /// Where it is.
        image_url: ImageUrl,
    },
}

/// Where a picture is: on the web, or in the address itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// `http:`, `https:` or `data:`.
    pub url: String,
}

/// A picture, checked and within the caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Found by looking at the content.
    pub mime: &'static str,
    /// The file.
    pub content: Vec<u8>,
}

/// A file other than a picture, within the caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The sender's name for it, cleaned.
    pub name: String,
    /// Found by looking at the content.
    pub mime: &'static str,
    /// The file.
    pub content: Vec<u8>,
}

/// Who asks and where; labels, never authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The immutable id of the person.
    pub user_id: Option<String>,
    /// The display name.
    pub user_name: Option<String>,
    /// The room.
    pub chat_id: Option<String>,
    /// The room's name.
    pub chat_name: Option<String>,
    /// `direct` or `group`.
    pub chat_type: Option<String>,
    /// The thread in the room.
    pub thread_id: Option<String>,
}

/// Whether a turn may have run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing was sent yet.
    First,
    /// The process died, or the connection broke, after it may have been sent.
    Resume,
}

/// What is stored before a turn is dispatched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The bytes of the request.
    pub request: Vec<u8>,
    /// Whether repeating these bytes with the same key is known not to run the turn twice.
    pub resumable: bool,
    /// The request is for the agent that stands in for another one, and for nobody else. Stored, or a
    /// repeat after a crash would run at the other.
    pub stand_in: bool,
}

/// One message of a session, as models know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
}

/// Who said something in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// A tool's result; kept for the record, never forwarded.
    Tool,
}

/// What happens during a turn. Borrowed, because most of it is copied straight into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent<'a> {
    /// More of the answer.
    Text(&'a str),
    /// More of the reasoning; never shown in rooms.
    Thought(&'a str),
    /// A tool call began or ended. The same `id` again replaces the earlier state.
    Step(Step),
    /// Something people should know now, such as "trying again until 14:05". Replaces the notice
    /// before; `None` takes it away.
    Notice(Option<Phrase>),
    /// What the turn cost.
    Usage(Usage),
    /// A message is complete that belongs into the transcript. An agent that tells its messages tells all of them.
    Record(Record),
    /// A person is asked. Told by the engine, never by an agent.
    Asked(Asked),
    /// A question is over. Told by the engine, never by an agent.
    Answered(Answered),
}

/// A message of a turn's transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who said what.
    pub message: Message,
    /// What it calls, or what it is the result of.
    pub tools: Option<Tools>,
}

/// What a message has to do with tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tools {
    /// The agent calls these.
    Calls {
        /// As the chat-completions protocol has them.
        tool_calls: Vec<serde_json::Value>,
    },
    /// A tool says this.
    Result {
        /// To which call.
        tool_call_id: String,
        /// Which tool.
        tool_name: String,
    },
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which question.
    pub id: AskId,
    /// All of it.
    pub ask: Ask,
    /// Until when it may be answered, in seconds since 1970.
    pub expires: i64,
}

/// How a question came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Which question.
    pub id: AskId,
    /// What the agent is told.
    pub choice: Choice,
    /// Who or what decided: `approved`, `denied`, `timeout`, `stopped`, `restart`, `gone`.
    pub rule: &'static str,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The agent's id of the call.
    pub id: String,
    /// The name of the tool, for people.
    pub title: String,
    /// How far it is.
    pub state: StepState,
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepState {
    /// It runs.
    Running,
    /// It ended well.
    Done,
    /// It ended badly.
    Failed,
}

/// Tokens that a turn used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
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
    pub words: Phrase,
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
    },
    /// It may have run and the outcome is unknown: the same bytes are sent again if they are
    /// resumable, otherwise the turn is interrupted.
    Unknown {
        /// How long the upstream wants us to wait.
        after: Option<Duration>,
    },
    /// Nothing ran, and another agent stands ready: the turn is made ready anew, at once and with
    /// [`Turn::elsewhere`]. Never said of such a turn itself, nor of one that may have run before.
    Elsewhere,
    /// The upstream says no, or answers something that is no answer. Trying again will not help.
    Refused,
    /// It broke off after text had come; the text is kept and marked.
    CutShort,
}

impl AgentInfo {
    /// Who answers as things stand, for people.
    pub fn answering(&self) -> Phrase {
        match &self.stand_in {
            Some(other) if other.answers => {
                Text::StatusStandIn.with("agent", other.name.clone()).with("away", self.name.clone())
            }
            Some(_) | None => self.name.clone(),
        }
    }
}

impl AgentError {
    /// An error with the words a room sees.
    pub fn new(kind: AgentErrorKind, words: impl Into<Phrase>) -> Self {
        Self { kind, words: words.into() }
    }
}

/// The agent behind a pointer; chosen by configuration when the gateway is built.
pub type SharedAgent = Arc<dyn Agent>;
