//! Joins the pieces of an agent's messages into one answer. Pure.

use serde_json::Value;

use crate::agents::sorted_json::text_field;

/// Stands between two messages.
const SEPARATOR: &str = "\n\n";

/// Place of the next piece in the answer.
#[derive(Debug, Default)]
pub struct TurnText {
    /// The message that the last piece belonged to, as far as the agent tells.
    message: String,
    /// Whether the answer has text.
    has_spoken: bool,
    /// Whether the last piece ended a line.
    has_ended_line: bool,
    /// Something else came since the last piece.
    was_interrupted: bool,
}

impl TurnText {
    /// A tool was called: what follows is another message.
    pub fn interrupt(&mut self) {
        self.was_interrupted = self.has_spoken;
    }

    /// The text to add for a piece of a message.
    pub fn push(&mut self, update: &Value) -> String {
        let piece = shown_content(&update["content"]);
        if piece.is_empty() {
            return piece;
        }
        let message = text_field(update, "messageId");
        let is_other = !message.is_empty() && !self.message.is_empty() && message != self.message;
        let needs_separator = self.has_spoken && (self.was_interrupted || is_other) && !self.has_ended_line;
        message.clone_into(&mut self.message);
        self.has_spoken = true;
        self.was_interrupted = false;
        self.has_ended_line = piece.ends_with('\n');
        if needs_separator { format!("{SEPARATOR}{}", piece.trim_start_matches('\n')) } else { piece }
    }
}

/// The text of a content block: its words, a picture in Markdown, or a link.
pub fn shown_content(content: &Value) -> String {
    match text_field(content, "type") {
        "text" => text_field(content, "text").to_owned(),
        "image" => match (text_field(content, "mimeType"), text_field(content, "data")) {
            (mime, data) if mime.starts_with("image/") && !data.is_empty() => {
                format!("\n![](data:{mime};base64,{data})\n")
            }
            _ => text_field(content, "uri").to_owned(),
        },
        "resource_link" => {
            let (name, uri) = (text_field(content, "name"), text_field(content, "uri"));
            if name.is_empty() {
                uri.to_owned()
            } else {
                format!("[{}]({uri})", name.replace(['[', ']'], ""))
            }
        }
        "resource" => text_field(&content["resource"], "text").to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn piece(message: &str, text: &str) -> Value {
        json!({ "messageId": message, "content": { "type": "text", "text": text } })
    }

    #[test]
    fn pieces_of_one_message_are_joined_and_messages_stand_apart() {
        let mut text = TurnText::default();
        text.interrupt();
        let mut whole = String::new();
        for (message, words) in [("a", "I "), ("a", "look."), ("b", "Then"), ("", "…")] {
            whole.push_str(&text.push(&piece(message, words)));
        }
        text.interrupt();
        whole.push_str(&text.push(&piece("b", "Done.\n")));
        text.interrupt();
        whole.push_str(&text.push(&piece("c", "Bye.")));
        assert_eq!(whole, "I look.\n\nThen…\n\nDone.\nBye.");
    }

    #[test]
    fn other_content_becomes_text_that_a_room_can_show() {
        for (content, shown) in [
            (
                json!({ "type": "image", "mimeType": "image/png", "data": "AQID" }),
                "\n![](data:image/png;base64,AQID)\n",
            ),
            (json!({ "type": "resource_link", "name": "a", "uri": "file:///a" }), "[a](file:///a)"),
            (json!({ "type": "resource", "resource": { "text": "words" } }), "words"),
            (json!({ "type": "audio", "data": "AQID" }), ""),
            (json!("odd"), ""),
        ] {
            assert_eq!(shown_content(&content), shown);
        }
    }
}
