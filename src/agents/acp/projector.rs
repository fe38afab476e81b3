//! Makes messages of our transcript of a turn as it goes on. Pure.
//!
//! The text before a call is a message of its own, and so is the call with its result, and the text behind the last one.

use serde_json::Value;

use crate::agent::{MessageRole, SessionMessage};
use crate::agents::call_messages::{CallMessages, EndedCall};
use crate::agents::sorted_json::{list_field, text_field};
use crate::agents::tools::cap_result;
use crate::reply::spoken_text;

/// Bytes of a note. It is only read by people who look for a reason.
const NOTE_BYTES: usize = 4 * 1024;

/// Bytes of reasoning that are looked at before they are cut to size.
const REASONING: usize = 256 * 1024;

/// The transcript of one turn.
#[derive(Debug)]
pub struct Projector {
    calls: CallMessages,
    /// Text since the last message.
    text: String,
    /// Reasoning since the last message.
    reasoning: String,
}

impl Projector {
    /// A turn that begins in this conversation.
    pub fn new(session: &str) -> Self {
        Self { calls: CallMessages::new(session), text: String::new(), reasoning: String::new() }
    }

    /// More text of the answer.
    pub fn said(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// More reasoning.
    pub fn thought(&mut self, text: &str) {
        let room = REASONING.saturating_sub(self.reasoning.len());
        self.reasoning.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// The messages of a call that has ended, behind the text that came before it.
    pub fn call_ended(&mut self, id: &str, call: EndedCall) -> Vec<SessionMessage> {
        let mut messages: Vec<_> = self.spoken().into_iter().collect();
        let reasoning = self.take_reasoning();
        messages.extend(self.calls.of(id, call, reasoning));
        messages
    }

    /// The last plan, as a note.
    pub fn plan(plan: &Value) -> Option<SessionMessage> {
        let entries = list_field(plan, "entries").iter();
        let lines: Vec<_> = entries
            .map(|entry| format!("- [{}] {}", text_field(entry, "status"), text_field(entry, "content")))
            .collect();
        let text = lines.join("\n");
        let text = &text[..text.floor_char_boundary(NOTE_BYTES)];
        (!text.is_empty()).then(|| SessionMessage::new(MessageRole::Note, format!("[plan] {text}")))
    }

    /// The text since the last message, as a message. Taken at the end of the turn: an answer must be on record to its end.
    pub fn spoken(&mut self) -> Option<SessionMessage> {
        let text = spoken_text(&std::mem::take(&mut self.text));
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let reasoning = self.take_reasoning();
        Some(SessionMessage { reasoning, ..SessionMessage::new(MessageRole::Assistant, text) })
    }

    fn take_reasoning(&mut self) -> Option<String> {
        let reasoning = cap_result(std::mem::take(&mut self.reasoning));
        (!reasoning.trim().is_empty()).then_some(reasoning)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::ToolActivity;

    #[test]
    fn text_stands_before_the_call_that_followed_it_and_reasoning_beside_what_it_led_to() {
        let mut projector = Projector::new("s");
        projector.thought("hmm");
        projector.said("I look.");
        let call = || EndedCall { name: "read".into(), arguments: "{}".into(), result: "seen".into() };
        let messages = projector.call_ended("c", call());
        let [said, called, result] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!((said.content.as_str(), said.reasoning.as_deref()), ("I look.", Some("hmm")));
        assert!(matches!(called.tools, Some(ToolActivity::Calls { .. })) && called.reasoning.is_none());
        assert_eq!(result.content, "seen");
        assert_eq!(projector.call_ended("d", call()).len(), 2, "there is no text between them");
        projector.said("\n\nDone.");
        assert_eq!(projector.spoken().unwrap().content, "Done.");
        assert_eq!(projector.spoken(), None);
        let plan = json!({ "entries": [{ "content": "look", "status": "pending" }] });
        assert_eq!(Projector::plan(&plan).unwrap().content, "[plan] - [pending] look");
        assert_eq!(Projector::plan(&json!({})), None);
    }
}
