//! The request of a turn as codex takes it.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::agents::prompt_request::{PromptInput, PromptRequest};
use crate::agents::turn_files::TurnFiles;

/// The member `input` of `turn/start`. Pictures become files of their own, so that no line of the protocol is as
/// large as a picture; codex keeps their content in its thread. Other files are put into the folder of the session,
/// where codex can work with them.
pub fn wire_input(request: &PromptRequest, files: &mut TurnFiles, cwd: &Path) -> std::io::Result<Vec<Value>> {
    let mut input = Vec::with_capacity(request.input.len());
    let text = |text: &str| json!({ "type": "text", "text": text });
    for part in &request.input {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{AgentTurn, ImageUrl, PromptPart};
    use crate::ids::{AgentName, SessionId, TurnId};

    #[test]
    fn pictures_become_files_and_addresses_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut turn = AgentTurn::new(TurnId("t".into()), AgentName::local(), SessionId("s".into()));
        let picture = |url: &str| PromptPart::ImageUrl { image_url: ImageUrl { url: url.into() } };
        turn.parts = vec![
            PromptPart::Text { text: "look".into() },
            picture("data:image/png;base64,AQID"),
            picture("https://example.org/a.png"),
        ];
        let mut files = TurnFiles::new(folder.path().join("pictures"));
        let input = wire_input(&PromptRequest::of(&turn), &mut files, folder.path()).unwrap();
        assert_eq!(input[0], json!({ "type": "text", "text": "look" }));
        assert_eq!(input[2], json!({ "type": "image", "url": "https://example.org/a.png" }));
        let path = input[1]["path"].as_str().unwrap().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), [1, 2, 3]);
        assert!(path.ends_with(".png"));
        drop(files);
        assert!(!Path::new(&path).exists(), "the picture goes with the turn");
    }
}
