//! The source of a turn: a person in a room, or an app over HTTP. Stored with the turn, so that a restart resumes it.
//!
//! A later source (a schedule, an event of the agent server) is another variant of [`TurnSource`]; the compiler then
//! names every place that has to decide about it. Knows neither the store nor the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, EventId, MediaInfo, Place, QuotedMessage, RoomId};

use crate::agent::{ModelParams, PromptPart, TurnOrigin};

/// Time that a turn goes on without readers if a reader can come back.
const A_WHILE: Duration = Duration::from_secs(120);

/// The source of a turn, with everything that only this kind of source has.
#[derive(Clone, Debug)]
pub enum TurnSource {
    /// A person in a room. Shared with the task that shows the answer there.
    Room(Arc<RoomQuestion>),
    /// An app, or the owner, over HTTP. May be large, see [`AppRequest::bytes`].
    App(Box<AppRequest>),
}

impl TurnSource {
    /// The question in a room; `None` for an app's turn.
    pub fn room(&self) -> Option<&Arc<RoomQuestion>> {
        match self {
            Self::Room(question) => Some(question),
            Self::App(_) => None,
        }
    }

    /// The request of an app; `None` for a room's turn.
    pub fn app(&self) -> Option<&AppRequest> {
        match self {
            Self::Room(_) => None,
            Self::App(request) => Some(request),
        }
    }

    /// The room or app that asks, to tell askers apart.
    pub fn asker(&self) -> TurnAsker {
        match self {
            Self::Room(question) => TurnAsker::Room(question.account.clone(), question.place.room.clone()),
            Self::App(request) => TurnAsker::App(request.app.clone()),
        }
    }
}

/// The room or app that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnAsker {
    /// A room of an account.
    Room(AccountId, RoomId),
    /// An app by its name; the owner's is empty.
    App(String),
}

/// A person's question in a room.
#[derive(Clone, Debug)]
pub struct RoomQuestion {
    /// Account of ours that heard it.
    pub account: AccountId,
    /// Room and thread to answer in.
    pub place: Place,
    /// Message that started the turn. The answer replies to it.
    pub event: EventId,
    /// Message with the words of the prompt; another one than `event` if that is a `/retry`.
    pub question: EventId,
    /// Id of the person who asks and is answerable for the turn.
    pub author: String,
    /// Display name of that person.
    pub author_name: Option<String>,
    /// Person who wrote the words, if the author asks them again for somebody else.
    pub speaker: Option<PersonInfo>,
    /// Display name of the room.
    pub room_name: Option<String>,
    /// Whether the room is a chat between one person and us.
    pub direct: bool,
    /// Message that the question replies to.
    pub quote: Option<QuotedMessage>,
    /// Files attached to the question.
    pub media: Vec<MediaInfo>,
    /// Number of `/retry`s and edits before this turn.
    pub attempt: u32,
}

impl RoomQuestion {
    /// The person who asks for this turn and is answerable for it.
    pub fn asked_by(&self) -> PersonInfo {
        PersonInfo { id: self.author.clone(), name: self.author_name.clone() }
    }

    /// The person who wrote the prompt.
    pub fn spoken_by(&self) -> PersonInfo {
        self.speaker.clone().unwrap_or_else(|| self.asked_by())
    }
}

/// A person as an agent is told of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonInfo {
    /// The immutable id.
    pub id: String,
    /// The display name.
    pub name: Option<String>,
}

/// An app's request: everything that came with the prompt over HTTP. Serialized into the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppRequest {
    /// Name of the app; empty for the owner. The store has a column for it.
    #[serde(skip)]
    pub app: String,
    /// The prompt in parts, if there is more to it than text.
    pub parts: Vec<PromptPart>,
    /// Text for the system message of this turn alone.
    pub system: Option<String>,
    /// Sampling and output format for a model.
    pub params: ModelParams,
    /// Scope of the agent's memory.
    pub memory: Option<String>,
    /// Number of relays that the request has come through.
    pub hops: u32,
    /// Person and place that the app asks for. Only labels, never authority.
    pub origin: TurnOrigin,
    /// When to stop the turn if nobody reads it.
    pub patience: WhenUnread,
    /// The reaction to an agent that is away or busy.
    pub when_away: WhenAway,
    /// What only a turn of a forge session has.
    pub forge: Option<Box<ForgeTurn>>,
}

/// What only a turn of a forge session has: a session whose agent works in a folder of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForgeTurn {
    /// Number of the turn in its session, from 1. Set by the transaction that accepts the turn.
    pub index: u64,
    /// The session's own working folder.
    pub folder: PathBuf,
    /// The client reads nothing before the whole answer, so it can answer no ask.
    pub reads_only_the_end: bool,
    /// The app's system text replaces the operator's, instead of following it.
    pub replaces_system: bool,
    /// The model that the app asks for.
    pub model: Option<String>,
    /// The effort that the app asks for: `low`, `medium`, `high`, `xhigh` or `max`.
    pub effort: Option<String>,
}

impl AppRequest {
    /// The part that is kept when the turn is over.
    pub fn remains(&self) -> Self {
        let (app, forge) = (self.app.clone(), self.forge.clone());
        Self { app, patience: self.patience, forge, ..Self::default() }
    }

    /// Drops everything that an app can make long.
    pub fn drop_input(&mut self) {
        (self.parts, self.system, self.params) = (Vec::new(), None, ModelParams::default());
    }

    /// Bytes of everything that an app can make long.
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            PromptPart::Text { text } => text.len(),
            PromptPart::ImageUrl { image_url } => image_url.url.len(),
        });
        parts.sum::<usize>() + self.system.as_ref().map_or(0, String::len) + self.params.bytes()
    }

    /// The trace of its pictures in the transcript, after the prompt's text: only that there were some.
    pub fn pictures(&self) -> String {
        let pictures = self.parts.iter().filter(|part| matches!(part, PromptPart::ImageUrl { .. }));
        pictures.map(|_| "\n[image]").collect()
    }
}

/// The fate of an app's turn that nobody reads any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnread {
    /// The turn is stopped: nobody could find it again.
    #[default]
    None,
    /// The turn goes on for a while: a client that has its key may come back.
    AWhile,
    /// The turn goes on to its end: it was started in the background.
    Endless,
}

impl WhenUnread {
    /// Time that the turn goes on unread; `None` if it has no limit.
    pub fn lasts(self) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::AWhile => Some(A_WHILE),
            Self::Endless => None,
        }
    }
}

/// The reaction of a turn when it is proven that nothing ran because the agent is away or busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenAway {
    /// The turn waits and tries again within `gateway.retry_for`.
    #[default]
    Wait,
    /// The turn fails at once, so that the client can decide when to ask again.
    Fail,
}
