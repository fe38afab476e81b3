//! A message of codex that waits for its turn, in a form that takes about the memory of its line.

use serde_json::{Map, Value};

use crate::agents::jsonrpc::{IncomingMessage, PackedMessage, RequestId};

/// Methods whose pieces of text can be joined.
const JOINED: [&str; 4] = [
    "item/agentMessage/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "item/commandExecution/outputDelta",
];

/// The piece itself, in the parameters.
const DELTA: &str = "delta";

/// Parameters that tell which text a piece belongs to.
const TEXT_IDS: [&str; 5] = ["threadId", "turnId", "itemId", "summaryIndex", "contentIndex"];

/// A message that waits.
#[derive(Debug)]
pub enum WaitingMessage {
    /// A piece of a text, with no other parameters than those that we read.
    Piece(IncomingMessage),
    /// Any other message.
    Packed(PackedMessage),
}

impl WaitingMessage {
    /// A message as it came; `line` is its own.
    pub fn new(message: IncomingMessage, line: Vec<u8>) -> Self {
        match piece_params(&message) {
            Some(params) => Self::Piece(IncomingMessage { params: Value::Object(params), ..message }),
            None => Self::Packed(PackedMessage::new(message, line)),
        }
    }

    /// Bytes that it counts for.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Piece(message) => message.bytes,
            Self::Packed(message) => message.bytes(),
        }
    }

    /// Joins the piece of text that comes next to this one, if both belong to one text. Returns its bytes.
    pub fn join(&mut self, next: &Self) -> Option<usize> {
        let (Self::Piece(last), Self::Piece(next)) = (self, next) else { return None };
        let is_same = last.method == next.method
            && TEXT_IDS.iter().all(|key| last.params.get(key) == next.params.get(key));
        let more = next.params[DELTA].as_str().filter(|_| is_same)?;
        match last.params.get_mut(DELTA) {
            Some(Value::String(text)) => text.push_str(more),
            _ => return None,
        }
        last.bytes += more.len();
        Some(more.len())
    }

    /// The id of a request.
    pub fn into_request(self) -> Option<RequestId> {
        match self {
            Self::Piece(message) => message.request,
            Self::Packed(message) => message.into_request(),
        }
    }

    /// The message itself.
    pub fn unpack(self) -> IncomingMessage {
        match self {
            Self::Piece(message) => message,
            Self::Packed(message) => message.unpack(),
        }
    }
}

/// The parameters of a piece of text that we read; `None` if the message is none.
fn piece_params(message: &IncomingMessage) -> Option<Map<String, Value>> {
    let is_text = message.request.is_none() && JOINED.contains(&message.method.as_str());
    if !is_text || !message.params[DELTA].is_string() {
        return None;
    }
    let mut params = Map::new();
    for key in TEXT_IDS.into_iter().chain([DELTA]) {
        match message.params.get(key) {
            None => {}
            // The id of a text has no parts.
            Some(Value::Array(_) | Value::Object(_)) => return None,
            Some(value) => _ = params.insert(key.to_owned(), value.clone()),
        }
    }
    Some(params)
}
