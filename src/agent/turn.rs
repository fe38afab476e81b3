//! One turn as an agent sees it.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AgentScratch, ModelParams, NoteScope};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::rules::AgentRuntime;

/// One turn as an agent sees it.
#[derive(Clone, Debug)]
pub struct AgentTurn {
    /// Unique; short enough to be quoted to people.
    pub id: TurnId,
    /// The agent that the turn is for. Its fallback may answer in its place; see [`PreparedTurn::agent`].
    pub agent: AgentName,
    /// The session under the name that the upstream knows. It is settled when the request is stored, because that
    /// depends on which agent is asked, so a request must not contain it.
    pub session: SessionId,
    /// The session under a name that no change of its history changes, and that is also the name of a folder.
    pub conversation: SessionId,
    /// The last report of this agent about this session; see [`TurnEvent::Upstream`](super::TurnEvent::Upstream).
    /// Settled together with `session`.
    pub upstream: Option<serde_json::Value>,
    /// Text for the system message; empty for none.
    pub context: String,
    /// Text for the system message if the fallback of the agent answers: it contains the fallback's own instructions.
    pub fallback_context: String,
    /// Earlier messages of the session, oldest first, already filtered and capped.
    pub history: Vec<SessionMessage>,
    /// The text that a person or an app wrote.
    pub prompt: String,
    /// The prompt in parts, if an app sent pictures with it: then these are sent instead of `prompt`.
    pub parts: Vec<PromptPart>,
    /// Pictures attached to the prompt.
    pub images: Vec<PromptImage>,
    /// Other files attached to the prompt.
    pub files: Vec<Attachment>,
    /// Idempotency key: every repeat of this turn has the same one, `/retry` another.
    pub key: String,
    /// The person and the place, for upstreams that are told.
    pub origin: TurnOrigin,
    /// The app that asks; `None` for a room and for the owner.
    pub app: Option<String>,
    /// A person asked in a room of this gateway, where chat commands work. An app may relay for a room of another one.
    pub asked_in_room: bool,
    /// Whether this turn may have run before.
    pub attempt: AttemptKind,
    /// Sampling and output format that an app asked for. Empty unless the main agent is a model.
    pub params: ModelParams,
    /// Name that scopes an agent's memory, if an app sent one.
    pub memory: Option<String>,
    /// The notes that an agent of ours may read and write in this turn; `None` for none.
    pub notes: Option<NoteScope>,
    /// The model that a person chose for the session with `/model`, or that an app asks for.
    pub model: Option<String>,
    /// The effort that an app asks for, such as `high`. An agent that has none ignores it, and logs that.
    pub effort: Option<String>,
    /// Tokens that the budget still allows the turn to use; `None` without a budget.
    pub tokens_left: Option<u64>,
    /// Number of relays that the turn has come through.
    pub hops: u32,
    /// The asker may not talk to the fallback of the agent, so an agent that has one behaves as if it had none.
    pub without_fallback: bool,
    /// The surface that asked passes the agent's own lines on, so an agent that has lines emits them; see
    /// [`TurnEvent::Raw`](super::TurnEvent::Raw).
    pub wants_raw: bool,
    /// The working folder of the session, if the surface that asked has one for each session, or the room has one of its
    /// own.
    pub folder: Option<PathBuf>,
    /// Values that agents keep between two tries.
    pub scratch: AgentScratch,
}

impl AgentTurn {
    /// A turn without a prompt, a history and everything else that not every turn has.
    pub fn new(id: TurnId, agent: AgentName, session: SessionId) -> Self {
        Self {
            id,
            agent,
            conversation: session.clone(),
            session,
            upstream: None,
            context: String::new(),
            fallback_context: String::new(),
            history: Vec::new(),
            prompt: String::new(),
            parts: Vec::new(),
            images: Vec::new(),
            files: Vec::new(),
            key: String::new(),
            origin: TurnOrigin::default(),
            app: None,
            asked_in_room: false,
            attempt: AttemptKind::First,
            params: ModelParams::default(),
            memory: None,
            notes: None,
            model: None,
            effort: None,
            tokens_left: None,
            hops: 0,
            without_fallback: false,
            wants_raw: false,
            folder: None,
            scratch: AgentScratch::default(),
        }
    }
}

/// A part of an app's prompt, in the form of the chat-completions protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptPart {
    /// Text.
    Text {
        /// The whole part.
        text: String,
    },
    /// A picture.
    ImageUrl {
        /// Address of the picture.
        image_url: ImageUrl,
    },
}

/// Address of a picture: on the web, or with the picture in the address itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// `http:`, `https:` or `data:`.
    pub url: String,
}

/// A picture, checked and within the caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptImage {
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

/// The person who asks and the place where they ask: labels, never authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnOrigin {
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
pub enum AttemptKind {
    /// It is proven that nothing ran so far.
    First,
    /// The process died, or the connection broke, after the request may have been sent.
    Resume,
}

/// A request, as it is stored before the turn is dispatched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTurn {
    /// The agent that the request was made for. No other agent may be given it, also after a crash.
    pub agent: AgentName,
    /// The runtime of that agent that the request was made for. No other runtime may be given it, either.
    pub runtime: AgentRuntime,
    /// The bytes of the request.
    pub request: Bytes,
    /// Whether repeating these bytes with the same key is known not to run the turn twice.
    pub resumable: bool,
}

impl PreparedTurn {
    /// A request for the agent of `turn` that must not be repeated.
    pub fn new(turn: &AgentTurn, request: impl Into<Bytes>) -> Self {
        let (agent, runtime) = (turn.agent.clone(), AgentRuntime::Auto);
        Self { agent, runtime, request: request.into(), resumable: false }
    }
}

/// One message of a session, as models know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMessage {
    /// Role of the author.
    pub role: MessageRole,
    /// The text.
    pub content: String,
    /// Tool calls of the message, or the call that it is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolActivity>,
    /// The agent's reasoning before the message. It is kept for readers of the transcript; no agent is sent it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
}

impl SessionMessage {
    /// A message without tools and without reasoning.
    pub fn new(role: MessageRole, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), tools: None, reasoning: None }
    }
}

/// Tool calls in a message, or a tool's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolActivity {
    /// The agent calls these.
    Calls {
        /// As the chat-completions protocol has them.
        tool_calls: Vec<serde_json::Value>,
    },
    /// A tool says this.
    Result {
        /// To which call.
        tool_call_id: String,
        /// Name of the tool.
        tool_name: String,
    },
}

/// Role of a message's author in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// A tool's result. Only an agent that runs the tools itself is sent it again.
    Tool,
    /// An event of the agent's work that is neither text nor a tool call, such as a plan. It is kept for readers of the
    /// transcript, never shown as an answer, and sent to no agent again.
    Note,
}
