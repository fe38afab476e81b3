//! The content of a prompt, as the agent takes it.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::abilities::AgentAbilities;
use crate::agent::{MessageRole, SessionMessage, ToolActivity};
use crate::agents::prompt_request::{PromptInput, PromptRequest};
use crate::agents::turn_files::TurnFiles;
use crate::util::clip;

/// Bytes of the conversation so far that a new one is told. The latest messages are the ones that count.
const HISTORY: usize = 64 * 1024;

/// Characters of a call's result in it.
const RESULT: usize = 500;

/// Words of ours that stand before the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptWords<'a> {
    /// Says whose the words in `context` are.
    pub heading: &'static str,
    /// Words of the operator, about the place, and of the program that asks; empty if the agent knows them.
    pub context: &'a str,
    /// Earlier messages, if the agent does not know them.
    pub history: &'a [SessionMessage],
}

/// The heading of those words. Where a program asks, its own words may be among them.
pub fn heading(is_room: bool) -> &'static str {
    if is_room { "(From the operator of this chat:)" } else { "(Instructions:)" }
}

/// The member `prompt` of `session/prompt`. Pictures go with it if the agent takes them; every other file is put into the
/// folder of the session, where the agent can work with it.
pub fn prompt_blocks(
    request: &PromptRequest,
    words: PromptWords<'_>,
    abilities: &AgentAbilities,
    files: &mut TurnFiles,
    cwd: &Path,
) -> io::Result<Vec<Value>> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let mut blocks = Vec::new();
    if !words.context.trim().is_empty() {
        blocks.push(text(&format!("{}\n{}", words.heading, words.context)));
    }
    if let Some(history) = history_text(words.history) {
        blocks.push(match abilities.takes_context {
            true => json!({ "type": "resource", "resource": {
                "uri": "talaria://conversation", "mimeType": "text/markdown", "text": history } }),
            false => text(&history),
        });
    }
    for part in &request.input {
        blocks.push(match part {
            PromptInput::Text { text: words } => text(words),
            PromptInput::ImageUrl { url } => text(&format!("(A picture: {url})")),
            PromptInput::Picture { mime, data } if abilities.takes_images => {
                json!({ "type": "image", "mimeType": mime, "data": data })
            }
            PromptInput::Picture { mime, data } => {
                let ending = mime.rsplit('/').next().unwrap_or("img");
                text(&kept_file(files, cwd, &format!("picture.{ending}"), data)?)
            }
            PromptInput::File { name, data } => text(&kept_file(files, cwd, name, data)?),
        });
    }
    Ok(blocks)
}

/// Puts a file into the folder of the session, and says where it is.
fn kept_file(files: &mut TurnFiles, cwd: &Path, name: &str, data: &str) -> io::Result<String> {
    Ok(match BASE64_STANDARD.decode(data) {
        Ok(content) => {
            let kept = files.add_attachment(cwd, name, &content)?;
            format!("(An attached file is in the working folder: {kept})")
        }
        Err(_) => "(An attached file cannot be read.)".to_owned(),
    })
}

/// The conversation so far in one text; `None` if there is none.
fn history_text(history: &[SessionMessage]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut bytes = 0;
    for line in history.iter().rev().filter_map(history_line) {
        bytes += line.len();
        if bytes > HISTORY {
            lines.push("[earlier messages are left out]".to_owned());
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    (!lines.is_empty()).then(|| format!("(The conversation so far:)\n{}", lines.join("\n\n")))
}

fn history_line(message: &SessionMessage) -> Option<String> {
    let content = message.content.trim();
    let line = match (message.role, &message.tools) {
        (MessageRole::User, _) => format!("User: {content}"),
        (MessageRole::Assistant, Some(ToolActivity::Calls { tool_calls })) => {
            let names = tool_calls.iter().map(|call| call["function"]["name"].as_str().unwrap_or("a tool"));
            let called = format!("[called {}]", names.collect::<Vec<_>>().join(", "));
            format!("Assistant: {content} {called}")
        }
        (MessageRole::Assistant, _) if content.is_empty() => return None,
        (MessageRole::Assistant, _) => format!("Assistant: {content}"),
        (MessageRole::Tool, Some(ToolActivity::Result { tool_name, .. })) => {
            format!("[result of {tool_name}: {}]", clip(content, RESULT))
        }
        (MessageRole::Tool, _) | (MessageRole::Note, _) => return None,
    };
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{AgentTurn, Attachment, PromptImage};
    use crate::ids::{AgentName, SessionId, TurnId};

    fn request() -> PromptRequest {
        let mut turn = AgentTurn::new(TurnId("t".into()), AgentName::local(), SessionId("s".into()));
        turn.prompt = "look".into();
        turn.images = vec![PromptImage { mime: "image/png", content: vec![1, 2, 3] }];
        turn.files = vec![Attachment { name: "a.txt".into(), mime: "text/plain", content: b"hello".into() }];
        PromptRequest::of(&turn)
    }

    fn blocks(words: PromptWords<'_>, abilities: &AgentAbilities, folder: &Path) -> Vec<Value> {
        let mut files = TurnFiles::new(folder.join("pictures"));
        let blocks = prompt_blocks(&request(), words, abilities, &mut files, folder).unwrap();
        files.keep_attachments();
        blocks
    }

    #[test]
    fn a_picture_goes_with_the_prompt_only_if_the_agent_takes_pictures() {
        let folder = tempfile::tempdir().unwrap();
        let able = AgentAbilities { takes_images: true, ..AgentAbilities::default() };
        let sent = blocks(PromptWords::default(), &able, folder.path());
        assert_eq!(sent[0], json!({ "type": "text", "text": "look" }));
        assert_eq!(sent[1], json!({ "type": "image", "mimeType": "image/png", "data": "AQID" }));
        assert!(sent[2]["text"].as_str().unwrap().ends_with("attachments/a.txt)"), "{sent:?}");
        assert_eq!(std::fs::read(folder.path().join("attachments/a.txt")).unwrap(), b"hello");

        let sent = blocks(PromptWords::default(), &AgentAbilities::default(), folder.path());
        assert!(sent[1]["text"].as_str().unwrap().ends_with("attachments/picture.png)"), "{sent:?}");
    }

    #[test]
    fn the_conversation_so_far_is_a_document_only_if_the_agent_takes_documents() {
        let folder = tempfile::tempdir().unwrap();
        let history = [
            SessionMessage::new(MessageRole::User, "hello"),
            SessionMessage::new(MessageRole::Note, "a plan"),
            SessionMessage::new(MessageRole::Assistant, "Hi."),
        ];
        let words = PromptWords { heading: "(Us:)", context: "Be kind.", history: &history };
        let able = AgentAbilities { takes_context: true, ..AgentAbilities::default() };
        let sent = blocks(words, &able, folder.path());
        assert_eq!(sent[0]["text"], "(Us:)\nBe kind.");
        let text = "(The conversation so far:)\nUser: hello\n\nAssistant: Hi.";
        assert_eq!(sent[1]["resource"]["text"], text);
        let sent = blocks(words, &AgentAbilities::default(), folder.path());
        assert_eq!(sent[1], json!({ "type": "text", "text": text }));
    }
}
