//! The messages of a room as a client shows them: its events, with edits and deletions applied.

use serde_json::Value;

/// A message as it reads now.
#[derive(Clone, Debug)]
pub struct Shown {
    pub id: String,
    pub sender: String,
    /// `m.text`, `m.notice`, `m.image`…
    pub kind: String,
    /// Every text it has had, the newest last.
    pub texts: Vec<String>,
    /// The message it replies to; not the fallback reply of a thread.
    pub reply_to: Option<String>,
    /// The first message of its thread.
    pub thread: Option<String>,
    pub encrypted: bool,
    /// Whether the client had the key.
    pub readable: bool,
    pub deleted: bool,
    /// The whole content of the newest version.
    pub content: Value,
}

impl Shown {
    /// Its current text.
    pub fn text(&self) -> &str {
        self.texts.last().map_or("", String::as_str)
    }

    /// Number of edits.
    pub fn edits(&self) -> usize {
        self.texts.len() - 1
    }
}

/// The messages of a room, in order. An edit counts only if it is from the message's author.
pub fn messages(events: &[&Value]) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for event in events {
        let (id, sender, content) = (text(&event["id"]), text(&event["sender"]), &event["content"]);
        let relation = &content["m.relates_to"];
        match event["type"].as_str() {
            Some("m.room.redaction") => {
                let gone = text(&event["redacts"]);
                shown
                    .iter_mut()
                    .filter(|message| message.id == gone)
                    .for_each(|message| message.deleted = true);
            }
            Some("m.room.message") if relation["rel_type"] == "m.replace" => {
                let of = text(&relation["event_id"]);
                let edited = shown.iter_mut().find(|message| message.id == of && message.sender == sender);
                if let Some(message) = edited {
                    message.texts.push(text(&content["m.new_content"]["body"]));
                    message.content = content["m.new_content"].clone();
                    message.encrypted &= event["encrypted"] == true;
                }
            }
            Some("m.room.message" | "m.room.encrypted") => shown.push(Shown {
                id,
                sender,
                kind: text(&content["msgtype"]),
                texts: vec![text(&content["body"])],
                reply_to: relation["m.in_reply_to"]["event_id"]
                    .as_str()
                    .filter(|_| relation["is_falling_back"] != true)
                    .map(str::to_owned),
                thread: (relation["rel_type"] == "m.thread").then(|| text(&relation["event_id"])),
                encrypted: event["encrypted"] == true,
                readable: event["readable"] == true,
                deleted: false,
                content: content.clone(),
            }),
            _ => {}
        }
    }
    shown
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
