//! Messages, files and signals that the core makes rooms show.

use serde::{Deserialize, Serialize};

use crate::EventId;

/// The whole content of one message of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageBody {
    /// Markdown, at most [`max_text`](crate::PlatformCapabilities::max_text) bytes; the adapter converts it to the
    /// network's format. On platforms that show by `Append`, each body of a message begins with the whole text of the
    /// body before, unless `done` is set: then the text may be another one.
    pub markdown: String,
    /// The event that this message answers: set on every answer, notice and ask that a person's message caused.
    /// Networks with replies may show it; other adapters may use it to learn that an event was dealt with.
    pub reply_to: Option<EventId>,
    /// Purpose of the message.
    pub kind: BodyKind,
    /// Whether this is the final text: `false` while an answer still grows.
    pub done: bool,
    /// Files sent with the message. The core sends each file as a message of its own: one file, and no text.
    pub files: Vec<OutgoingFile>,
    /// Whether nobody is notified: the message continues an answer that has notified people already. Networks without
    /// silent messages ignore this.
    #[serde(default)]
    pub silent: bool,
    /// Whether the question in `reply_to` failed or was cut short. The console derives its exit code from this.
    #[serde(default)]
    pub failed: bool,
    /// The gateway's own words at the end of an answer, if there are any.
    #[serde(default)]
    pub remark: Option<AnswerRemark>,
}

/// The gateway's own words at the end of an answer: that it broke off, or that a file was not sent.
/// [`MessageBody::markdown`] contains them; this says where, for networks that show them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRemark {
    /// Bytes of [`MessageBody::markdown`] that are the agent's words; the gateway's words follow them.
    pub after: usize,
    /// The gateway's words, without the separator between them and the answer.
    pub words: String,
}

impl MessageBody {
    /// Makes a finished message of text alone.
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

/// Purpose of a message. Networks with quiet messages use them for notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// The agent's words.
    Answer,
    /// The gateway's own words: errors, queueing, the result of a command.
    Notice,
    /// An ask: a question that a person must answer.
    Ask,
}

/// A file that we send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutgoingFile {
    /// Base name, safe to show and to store.
    pub name: String,
    /// MIME type, detected from the content.
    pub mime: String,
    /// The content. Stored as base64, because a list of numbers would be four times as long.
    #[serde(with = "base64_text")]
    pub content: Vec<u8>,
}

/// Serializes bytes as base64.
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

/// A sign that a room shows for a moment. Best effort: a signal is never retried, and its failure is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// "is typing" on or off. Repeated every few seconds while the agent works.
    Typing(bool),
    /// Marks everything up to this event as read.
    Read(EventId),
}
