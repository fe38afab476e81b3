//! A turn as the events of a response.
//!
//! The whole text is one message, whatever comes between its pieces; each stretch of reasoning is an item of its own.
//! Reasoning is told to whoever reads along and kept nowhere: a response that is retrieved later has only its message.
//! Steps and approvals are events of ours, which other clients pass over.

use serde_json::{Value, json};

use super::super::ended::Ended;
use super::super::follow::{END, Shape};
use super::super::frames::Frames;
use super::object::{Answer, last_event, text_part};
use super::seen::{START, Seen, ends, happens, opens};
use crate::agent::{StepState, TurnEvent};
use crate::openai::wire::TOOL_PROGRESS;
use crate::session::TurnId;
use crate::turns::log::Position;

/// The events of one response for one reader.
pub struct Events {
    answer: Answer,
    run: String,
    seen: Seen,
    /// How much has happened.
    count: usize,
    /// How many items there are.
    items: usize,
    /// Which of them is the message, once there is one.
    message: Option<usize>,
    /// The reasoning that goes on.
    thinking: Option<Thinking>,
    /// Reasoning that is over, with its place.
    thought: Vec<(usize, Value)>,
}

struct Thinking {
    index: usize,
    id: String,
    text: String,
}

impl Events {
    /// The events of a response, without those that its reader has seen.
    pub fn new(answer: Answer, run: &TurnId, seen: Seen) -> Self {
        let (message, thinking, thought) = (None, None, Vec::new());
        Self { answer, run: run.0.clone(), seen, count: 0, items: 0, message, thinking, thought }
    }

    /// Writes an event, unless it was seen.
    fn write(&self, out: &mut Frames, number: u64, id: Option<&str>, name: &str, mut data: Value) {
        if !self.seen.has(number) {
            data["type"] = json!(name);
            data["sequence_number"] = json!(number);
            out.event(Some(name), id, &data);
        }
    }

    /// Opens the item that a piece belongs to, just before it.
    fn open(&mut self, out: &mut Frames, number: u64, item: Value, part: Value) -> usize {
        let (index, id) = (self.items, item["id"].clone());
        self.items += 1;
        let data = json!({ "output_index": index, "item": item });
        self.write(out, number, None, "response.output_item.added", data);
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        self.write(out, number + 1, None, "response.content_part.added", data);
        index
    }

    fn text(&mut self, text: &str, at: &Position, out: &mut Frames) {
        let mut number = opens(at.count().saturating_sub(text.len()));
        let index = match self.message {
            Some(index) => index,
            None => {
                number = self.stop_thinking(out, number);
                let item = json!({
                    "id": self.answer.message_id(), "type": "message", "role": "assistant",
                    "status": "in_progress", "content": [],
                });
                let index = self.open(out, number, item, text_part(""));
                *self.message.insert(index)
            }
        };
        let delta = unseen(text, self.seen.of_text(text, at));
        if !delta.is_empty() {
            let data = json!({
                "item_id": self.answer.message_id(), "output_index": index, "content_index": 0,
                "delta": delta, "logprobs": [],
            });
            let (number, id) = (self.seen.beyond(happens(at.count())), at.to_string());
            self.write(out, number, Some(&id), "response.output_text.delta", data);
        }
    }

    fn think(&mut self, text: &str, at: &Position, out: &mut Frames) {
        if self.thinking.is_none() {
            let id = self.answer.reasoning_id(self.items);
            let item = json!({
                "id": id, "type": "reasoning", "status": "in_progress", "summary": [], "content": [],
            });
            let number = opens(at.count().saturating_sub(text.len()));
            let index = self.open(out, number, item, reasoning_part(""));
            self.thinking = Some(Thinking { index, id, text: String::new() });
        }
        let Some(Thinking { index, id, text: whole }) = &mut self.thinking else { return };
        whole.push_str(text);
        let delta = unseen(text, self.seen.of(text, at));
        if !delta.is_empty() {
            let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": delta });
            let (number, place) = (self.seen.beyond(happens(at.count())), at.to_string());
            self.write(out, number, Some(&place), "response.reasoning_text.delta", data);
        }
    }

    /// Closes the reasoning that goes on, if any does; the next number that is free.
    fn stop_thinking(&mut self, out: &mut Frames, number: u64) -> u64 {
        let Some(Thinking { index, id, text }) = self.thinking.take() else { return number };
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "text": text });
        self.write(out, number, None, "response.reasoning_text.done", data);
        let part = reasoning_part(&text);
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        self.write(out, number + 1, None, "response.content_part.done", data);
        let item = json!({
            "id": id, "type": "reasoning", "status": "completed", "summary": [], "content": [part],
        });
        let data = json!({ "output_index": index, "item": item });
        self.write(out, number + 2, None, "response.output_item.done", data);
        self.thought.push((index, item));
        number + 3
    }

    /// Closes the message, if there is one; the next number that is free.
    fn finish_message(&self, end: &Ended, out: &mut Frames, number: u64) -> u64 {
        let Some(index) = self.message else { return number };
        let id = self.answer.message_id();
        let data = json!({
            "item_id": id, "output_index": index, "content_index": 0, "text": end.text, "logprobs": [],
        });
        self.write(out, number, None, "response.output_text.done", data);
        let part = text_part(&end.text);
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        self.write(out, number + 1, None, "response.content_part.done", data);
        let data = json!({ "output_index": index, "item": self.answer.message(end) });
        self.write(out, number + 2, None, "response.output_item.done", data);
        number + 3
    }
}

impl Shape for Events {
    fn begin(&mut self, out: &mut Frames) {
        let response = self.answer.running();
        self.write(out, 0, None, "response.created", json!({ "response": response }));
        self.write(out, 1, Some(START), "response.in_progress", json!({ "response": response }));
    }

    fn event(&mut self, event: TurnEvent<'_>, at: &Position, out: &mut Frames) {
        let (number, id) = (happens(at.count()), at.to_string());
        match event {
            TurnEvent::Text(text) => self.text(text, at, out),
            TurnEvent::Thought(text) => self.think(text, at, out),
            TurnEvent::Step(step) => {
                let status = match step.state {
                    StepState::Running => "running",
                    StepState::Done => "completed",
                    StepState::Failed => "failed",
                };
                let data = json!({
                    "response_id": self.answer.id, "run_id": self.run, "tool": step.title, "label": step.title,
                    "toolCallId": step.id, "status": status,
                });
                self.write(out, number, Some(&id), TOOL_PROGRESS, data);
            }
            TurnEvent::Asked(_) | TurnEvent::Answered(_) => {}
            TurnEvent::Notice(_) | TurnEvent::Usage(_) | TurnEvent::Record(_) => {}
        }
        self.count = at.count();
    }

    fn end(&mut self, end: &Ended, out: &mut Frames) {
        let number = self.stop_thinking(out, ends(self.count.max(self.seen.count())));
        let number = self.finish_message(end, out, number);
        let mut output = std::mem::take(&mut self.thought);
        output.extend(self.message.map(|index| (index, self.answer.message(end))));
        output.sort_by_key(|(index, _)| *index);
        let output: Vec<_> = output.into_iter().map(|(_, item)| item).collect();
        let response = self.answer.ended_with(&output, end);
        self.write(out, number, Some(END), last_event(end), json!({ "response": response }));
    }

    /// This protocol ends with its last event.
    fn close(&mut self, _: &mut Frames) {}
}

fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// A piece without what was seen of it.
fn unseen(text: &str, seen: usize) -> &str {
    text.get(text.floor_char_boundary(seen.min(text.len()))..).unwrap_or_default()
}
