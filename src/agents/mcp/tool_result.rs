//! Turns the result of a call into text for a model. Pure.
//!
//! A model gets the text parts. Pictures, sounds and files are named with their size: their bytes mean nothing to it as
//! text, and would fill its window.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::Value;

use crate::util::one_line;

/// The answer of a server to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolAnswer {
    /// Text for the model.
    pub text: String,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

/// Reads the answer. `None` if it is no result of a tool.
pub(super) fn read_answer(result: ServerResult) -> Option<ToolAnswer> {
    match result {
        ServerResult::CallToolResult(result) => Some(read_result(result)),
        // A result with a part that the library does not know: the parts that we know are worth having.
        ServerResult::CustomResult(custom) => read_loosely(&custom.0),
        ServerResult::EmptyResult(_) => Some(ToolAnswer { text: NOTHING.to_owned(), is_error: false }),
        _ => None,
    }
}

/// Result of a tool that has nothing to say.
const NOTHING: &str = "(the tool returned nothing)";

fn read_result(result: CallToolResult) -> ToolAnswer {
    let parts = result.content.into_iter().map(|part| match part {
        ContentBlock::Text(text) => ToolPart::Text(text.text),
        ContentBlock::Image(image) => named("picture", Some(&image.mime_type), base64_size(&image.data)),
        ContentBlock::Audio(audio) => named("sound", Some(&audio.mime_type), base64_size(&audio.data)),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => ToolPart::Text(text),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                named(&format!("file {}", one_line(&uri, 200)), mime_type.as_deref(), base64_size(&blob))
            }
            _ => ToolPart::Named("[a file of a kind that is not known here]".to_owned()),
        },
        ContentBlock::ResourceLink(link) => {
            ToolPart::Named(format!("[link to {}: {}]", one_line(&link.name, 200), one_line(&link.uri, 500)))
        }
        _ => ToolPart::Named("[a part of a kind that is not known here]".to_owned()),
    });
    join(parts.collect(), result.structured_content, result.is_error.unwrap_or_default())
}

fn read_loosely(result: &Value) -> Option<ToolAnswer> {
    let parts = result.get("content")?.as_array()?.iter().map(|part| {
        match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => ToolPart::Text(text.to_owned()),
            (kind, _) => ToolPart::Named(format!("[a part of kind {}]", one_line(kind.unwrap_or("?"), 40))),
        }
    });
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
    Some(join(parts.collect(), result.get("structuredContent").cloned(), is_error))
}

/// A part of a result.
enum ToolPart {
    Text(String),
    /// Stands for a part that is no text.
    Named(String),
}

fn join(parts: Vec<ToolPart>, structured: Option<Value>, is_error: bool) -> ToolAnswer {
    let has_text = parts.iter().any(|part| matches!(part, ToolPart::Text(text) if !text.trim().is_empty()));
    let lines = parts.into_iter().map(|part| match part {
        ToolPart::Text(text) | ToolPart::Named(text) => text,
    });
    let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    if !has_text && let Some(structured) = structured {
        lines.push(structured.to_string());
    }
    let text = if lines.is_empty() { NOTHING.to_owned() } else { lines.join("\n") };
    ToolAnswer { text, is_error }
}

fn named(thing: &str, kind: Option<&str>, bytes: usize) -> ToolPart {
    let kind = kind.map(|kind| format!(", {}", one_line(kind, 60))).unwrap_or_default();
    ToolPart::Named(format!("[{thing}{kind}, {bytes} bytes, not shown]"))
}

/// Size of the bytes that the text encodes.
fn base64_size(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> ToolAnswer {
        read_answer(serde_json::from_value(result).unwrap()).unwrap()
    }

    #[test]
    fn text_is_joined_and_everything_else_is_named() {
        let answer = read(json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "audio", "data": "AAA=", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "file:///a", "blob": "AAAAAAAA" } },
            { "type": "resource", "resource": { "uri": "file:///b", "text": "in it" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c" },
            { "type": "text", "text": "two" },
        ] }));
        assert!(!answer.is_error);
        insta::assert_snapshot!(answer.text, @r"
        one
        [picture, image/png, 3 bytes, not shown]
        [sound, audio/wav, 2 bytes, not shown]
        [file file:///a, 6 bytes, not shown]
        in it
        [link to c: file:///c]
        two
        ");
    }

    #[test]
    fn structured_content_is_used_only_where_there_is_no_text() {
        let structured = json!({ "degrees": 21 });
        let both = json!({ "content": [{ "type": "text", "text": "21" }], "structuredContent": structured });
        assert_eq!(read(both).text, "21");
        assert_eq!(read(json!({ "content": [], "structuredContent": structured })).text, r#"{"degrees":21}"#);
        assert_eq!(read(json!({ "content": [] })).text, NOTHING);
        let failed = json!({ "content": [{ "type": "text", "text": "no such file" }], "isError": true });
        assert_eq!(read(failed), ToolAnswer { text: "no such file".to_owned(), is_error: true });
    }

    #[test]
    fn a_part_of_the_future_does_not_hide_the_text() {
        let answer = read(json!({ "content": [
            { "type": "text", "text": "here" }, { "type": "hologram", "data": "x" },
        ], "isError": true }));
        assert_eq!(answer, ToolAnswer { text: "here\n[a part of kind hologram]".to_owned(), is_error: true });
        assert_eq!(read_answer(serde_json::from_value(json!({ "odd": 1 })).unwrap()), None);
    }
}
