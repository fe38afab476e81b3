//! What a program brings with a turn that it asks for over HTTP. Stored with the turn: a start takes it up again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::{ModelParams, PromptPart, TurnOrigin};

/// How long a turn goes on that nobody reads, if its reader may come back.
const A_WHILE: Duration = Duration::from_secs(120);

/// What came with the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppRequest {
    /// The prompt in parts, if there is more to it than text.
    pub parts: Vec<PromptPart>,
    /// For the system message of this turn alone.
    pub system: Option<String>,
    /// Sampling and output format for a model.
    pub params: ModelParams,
    /// What scopes the agent's memory.
    pub memory: Option<String>,
    /// How many relays it has come through.
    pub hops: u32,
    /// Who asks and where, as the program says: labels, never authority.
    pub origin: TurnOrigin,
    /// What it means that nobody reads.
    pub patience: WhenUnread,
    /// What happens while the agent is away or busy.
    pub when_away: WhenAway,
}

impl AppRequest {
    /// What is kept of it when the turn is over.
    pub fn remains(&self) -> Self {
        Self { patience: self.patience, ..Self::default() }
    }

    /// Bytes of everything in it that a program can make long.
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            PromptPart::Text { text } => text.len(),
            PromptPart::ImageUrl { image_url } => image_url.url.len(),
        });
        parts.sum::<usize>() + self.system.as_ref().map_or(0, String::len) + self.params.bytes()
    }

    /// How its pictures are remembered, behind the words: that there were some.
    pub fn pictures(&self) -> String {
        let pictures = self.parts.iter().filter(|part| matches!(part, PromptPart::ImageUrl { .. }));
        pictures.map(|_| "\n[image]").collect()
    }
}

/// What becomes of a turn that nobody reads any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnread {
    /// It is stopped: nobody could find it again.
    #[default]
    None,
    /// It goes on for a while: whoever has its key may come back.
    AWhile,
    /// It goes on to its end: it was started to be looked after later.
    Endless,
}

/// What a turn does when it is proven that nothing ran because the agent is away or busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenAway {
    /// It waits and tries again within `gateway.retry_for`.
    #[default]
    Wait,
    /// It fails at once, so that the client can decide when to ask again.
    Fail,
}

impl WhenUnread {
    /// How long it goes on unread; `None` for as long as it takes.
    pub fn lasts(self) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::AWhile => Some(A_WHILE),
            Self::Endless => None,
        }
    }
}
