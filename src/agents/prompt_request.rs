//! The request of a turn for an agent that is a program: everything that it may be told, as it is stored before anything
//! is sent.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::agent::{AgentTurn, PromptPart, SessionMessage};

/// A request as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRequest {
    /// Text of the operator and about the place.
    pub context: String,
    /// Earlier messages of the session, for an agent that does not know them.
    pub history: Vec<SessionMessage>,
    /// The prompt.
    pub input: Vec<PromptInput>,
}

/// A part of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptInput {
    /// Text.
    Text {
        /// The words.
        text: String,
    },
    /// A picture somewhere on the web.
    ImageUrl {
        /// Its address.
        url: String,
    },
    /// A picture, in base64.
    Picture {
        /// Its type.
        mime: String,
        /// The file.
        data: String,
    },
    /// Any other file, in base64.
    File {
        /// The sender's name for it.
        name: String,
        /// The file.
        data: String,
    },
}

impl PromptRequest {
    /// The request for a turn.
    pub fn of(turn: &AgentTurn) -> Self {
        let mut input: Vec<_> = match turn.parts.is_empty() {
            true => vec![PromptInput::Text { text: turn.prompt.clone() }],
            false => turn.parts.iter().map(PromptInput::of).collect(),
        };
        input.extend(turn.images.iter().map(|image| PromptInput::Picture {
            mime: image.mime.to_owned(),
            data: BASE64_STANDARD.encode(&image.content),
        }));
        input.extend(turn.files.iter().map(|file| PromptInput::File {
            name: file.name.clone(),
            data: BASE64_STANDARD.encode(&file.content),
        }));
        Self { context: turn.context.clone(), history: turn.history.clone(), input }
    }

    /// Reads a stored request; `None` if it is not one of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        // There is no error for text.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl PromptInput {
    fn of(part: &PromptPart) -> Self {
        match part {
            PromptPart::Text { text } => Self::Text { text: text.clone() },
            PromptPart::ImageUrl { image_url } => match embedded(&image_url.url) {
                Some((mime, data)) => Self::Picture { mime: mime.to_owned(), data: data.to_owned() },
                None => Self::ImageUrl { url: image_url.url.clone() },
            },
        }
    }
}

/// Kind and content of a picture that is in its address.
fn embedded(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::PromptImage;
    use crate::ids::{AgentName, SessionId, TurnId};

    fn turn() -> AgentTurn {
        AgentTurn::new(TurnId("t".into()), AgentName::local(), SessionId("s".into()))
    }

    #[test]
    fn a_stored_request_says_the_same() {
        let mut turn = turn();
        turn.prompt = "hello".into();
        turn.context = "be kind".into();
        turn.images = vec![PromptImage { mime: "image/png", content: vec![1, 2, 3] }];
        let request = PromptRequest::of(&turn);
        assert_eq!(PromptRequest::parse(&request.to_bytes()), Some(request));
        assert_eq!(PromptRequest::parse(b"{}x"), None);
    }
}
