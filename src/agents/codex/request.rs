//! The request of a turn: everything that codex may be told, as it is stored before anything is sent.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::turn_files::TurnFiles;
use crate::agent::{AgentTurn, PromptPart, SessionMessage};

/// A request as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodexRequest {
    /// Text of the operator and about the place.
    pub context: String,
    /// Earlier messages of the session, for a thread that does not know them.
    pub history: Vec<SessionMessage>,
    /// The prompt.
    input: Vec<PromptInput>,
}

/// A part of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PromptInput {
    Text {
        text: String,
    },
    /// A picture somewhere on the web.
    ImageUrl {
        url: String,
    },
    /// A picture, in base64.
    Picture {
        mime: String,
        data: String,
    },
    /// Any other file, in base64.
    File {
        name: String,
        data: String,
    },
}

impl CodexRequest {
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

    /// The member `input` of `turn/start`. Pictures become files of their own, so that no line of the protocol is as
    /// large as a picture; codex keeps their content in its thread. Other files are put into the folder of the session,
    /// where codex can work with them.
    pub fn wire_input(&self, files: &mut TurnFiles, cwd: &Path) -> std::io::Result<Vec<Value>> {
        let mut input = Vec::with_capacity(self.input.len());
        let text = |text: &str| json!({ "type": "text", "text": text });
        for part in &self.input {
            input.push(match part {
                PromptInput::Text { text: words } => text(words),
                PromptInput::ImageUrl { url } => json!({ "type": "image", "url": url }),
                PromptInput::Picture { mime, data } => match BASE64_STANDARD.decode(data) {
                    Ok(content) => {
                        json!({ "type": "localImage", "path": files.add_picture(mime, &content)? })
                    }
                    Err(_) => text("(An attached picture cannot be read.)"),
                },
                PromptInput::File { name, data } => match BASE64_STANDARD.decode(data) {
                    Ok(content) => {
                        let kept = files.add_attachment(cwd, name, &content)?;
                        text(&format!("(An attached file is in the working folder: {kept})"))
                    }
                    Err(_) => text("(An attached file cannot be read.)"),
                },
            });
        }
        Ok(input)
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
    use crate::agent::{ImageUrl, PromptImage};
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
        let request = CodexRequest::of(&turn);
        assert_eq!(CodexRequest::parse(&request.to_bytes()), Some(request));
        assert_eq!(CodexRequest::parse(b"{}x"), None);
    }

    #[test]
    fn pictures_become_files_and_addresses_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut turn = turn();
        let picture = |url: &str| PromptPart::ImageUrl { image_url: ImageUrl { url: url.into() } };
        turn.parts = vec![
            PromptPart::Text { text: "look".into() },
            picture("data:image/png;base64,AQID"),
            picture("https://example.org/a.png"),
        ];
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        let input = CodexRequest::of(&turn).wire_input(&mut files, folder.path()).unwrap();
        assert_eq!(input[0], json!({ "type": "text", "text": "look" }));
        assert_eq!(input[2], json!({ "type": "image", "url": "https://example.org/a.png" }));
        let path = input[1]["path"].as_str().unwrap().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), [1, 2, 3]);
        assert!(path.ends_with(".png"));
        drop(files);
        assert!(!Path::new(&path).exists(), "the picture goes with the turn");
    }
}
