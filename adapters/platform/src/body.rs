//! What rooms are made to show.

use serde::{Deserialize, Serialize};

use crate::EventId;

/// The whole content of one message of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageBody {
    /// Markdown, at most [`max_text`](crate::PlatformCapabilities::max_text) bytes. The adapter turns it into
    /// what its network shows. On platforms that show by `Append`, every body of a message begins
    /// with the whole text of the body before, unless `done` says that the end replaces it.
    pub markdown: String,
    /// The event this one is about: set on every answer, notice and ask that somebody's message led
    /// to. Networks with replies may show it; others may use it to know that an event was dealt with.
    pub reply_to: Option<EventId>,
    /// What the message is for.
    pub kind: BodyKind,
    /// Whether this is the last word: `false` while an answer still grows.
    pub done: bool,
    /// Files to go with it. The core sends each file as a message of its own: one file, and no text.
    pub files: Vec<OutgoingFile>,
    /// Whether nobody is to be notified of it: it goes on with an answer that has rung already. Networks without such
    /// messages ignore this.
    #[serde(default)]
    pub silent: bool,
    /// Whether the question in `reply_to` failed or was cut short. The console derives its exit code from this.
    #[serde(default)]
    pub failed: bool,
    /// The gateway's own words at the end of an answer, if there are any.
    #[serde(default)]
    pub remark: Option<AnswerRemark>,
}

/// The gateway's own words at the end of an answer: that it broke off, or that a file was not sent. They are part of
/// [`MessageBody::markdown`]; this says where they are, for networks that show them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRemark {
    /// Bytes of [`MessageBody::markdown`] that are the agent's words; everything behind them is ours.
    pub after: usize,
    /// The words, without what joins them to the answer.
    pub words: String,
}

impl MessageBody {
    /// A finished message of text alone.
    pub fn new(kind: BodyKind, markdown: impl Into<String>) -> Self {
        Self {
            markdown: markdown.into(),
            reply_to: None,
            kind,
            done: true,
            files: Vec::new(),
            silent: false,
            failed: false,
            remark: None,
        }
    }
}

/// What a message is for. Networks with quiet messages use them for notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// The agent's words.
    Answer,
    /// The gateway's own words: errors, queueing, the result of a command.
    Notice,
    /// A question a person must answer.
    Ask,
}

/// A file of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutgoingFile {
    /// A safe base name.
    pub name: String,
    /// Found by looking at the content.
    pub mime: String,
    /// The content. Written as base64, because as a list of numbers it would be four times as long.
    #[serde(with = "base64_text")]
    pub content: Vec<u8>,
}

/// Bytes as base64.
mod base64_text {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(content: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(content))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        BASE64_STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Something that is shown for a moment. Best effort: never retried, its failure never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// "is typing" on or off. Repeated every few seconds while it lasts.
    Typing(bool),
    /// Everything up to this event was taken up.
    Read(EventId),
}
