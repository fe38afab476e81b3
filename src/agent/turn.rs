//! One turn as an agent sees it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AgentScratch, ModelParams};
use crate::ids::{SessionId, TurnId};

/// One turn as an agent sees it.
#[derive(Clone, Debug)]
pub struct AgentTurn {
    /// Unique; short enough to be quoted to people.
    pub id: TurnId,
    /// The session it belongs to, by the name the upstream knows it.
    pub session: SessionId,
    /// Text for the system message; empty for none.
    pub context: String,
    /// What was said before, oldest first, already filtered and capped.
    pub history: Vec<SessionMessage>,
    /// What the person wrote.
    pub prompt: String,
    /// The same in parts, if a program brought pictures with it: then these are what is sent.
    pub parts: Vec<PromptPart>,
    /// Pictures that go with it.
    pub images: Vec<PromptImage>,
    /// Other files that go with it.
    pub files: Vec<Attachment>,
    /// The same for every repeat of this turn, another one for `/retry`.
    pub key: String,
    /// Who asks and where, for upstreams that are told.
    pub origin: TurnOrigin,
    /// Whether this turn may have run before.
    pub attempt: AttemptKind,
    /// An agent proved that nothing ran and passed it on: it is for whoever stands in.
    pub elsewhere: bool,
    /// Sampling and output format that a program asked for. Empty unless the main agent is a model.
    pub params: ModelParams,
    /// What scopes an agent's memory, if a program named it.
    pub memory: Option<String>,
    /// How many relays it has come through.
    pub hops: u32,
    /// What the agent keeps between two tries.
    pub scratch: AgentScratch,
}

/// A part of what a program asks, in the form of the chat-completions protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptPart {
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

/// Who asks and where; labels, never authority.
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
    /// Nothing was sent yet.
    First,
    /// The process died, or the connection broke, after it may have been sent.
    Resume,
}

/// What is stored before a turn is dispatched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedTurn {
    /// The bytes of the request.
    pub request: Bytes,
    /// Whether repeating these bytes with the same key is known not to run the turn twice.
    pub resumable: bool,
    /// The request is for the agent that stands in for another one, and for nobody else. Stored, or a
    /// repeat after a crash would run at the other.
    pub stand_in: bool,
}

/// One message of a session, as models know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMessage {
    /// Who said it.
    pub role: MessageRole,
    /// What was said.
    pub content: String,
}

/// Who said something in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// A tool's result; kept for the record, never forwarded.
    Tool,
}
