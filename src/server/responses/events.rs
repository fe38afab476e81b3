//! Writes a turn as the events of the Responses API.
//!
//! The whole text is one message item, even if other events interrupt it; each stretch of reasoning and each
//! step is an item of its own, up to a limit. A step is an `mcp_call` that ran on the agent's side, so that no
//! client tries to execute it. Reasoning and steps exist only in the stream and are not stored: a response that
//! is retrieved later has only its message. An ask is an item too, see `approvals`. An ask does not end a
//! stretch of reasoning, so that asks do not change the numbers of the other items.
//!
//! Clients reject types that they do not know, so every type here is one of the protocol's.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::notices;
use super::super::sse::SseBuffer;
use super::super::turn_result::{EndParts, TurnResult};
use super::super::turn_stream::{END, StreamFormat};
use super::approvals::ResponseApprovals;
use super::object::{ResponseInfo, last_event, text_part};
use super::sequence::{self, START, SeenSequence};
use crate::agent::{PriorAsk, Step, StepState, TurnEvent};
use crate::ids::TurnId;
use crate::turn_log::LogPosition;

/// `server_label` of all steps: the tools belong to the agent.
pub(super) const AGENT: &str = "agent";

/// Most steps that are written. Far more than an honest turn has; further ones are left out, because each step
/// is kept in memory as long as the stream is read.
const STEPS: usize = 256;

/// State of one stream of one response.
pub struct ResponseEvents {
    pub(super) answer: ResponseInfo,
    pub(super) run: TurnId,
    pub(super) seen: SeenSequence,
    /// Sequence so far: bytes of text and of reasoning, plus one for every other event. Asks have a counter of
    /// their own, because the next process has different ones; notices are not counted.
    count: usize,
    /// Position in the log: bytes of text and of reasoning, plus one for each step update.
    pub(super) place: usize,
    /// Bytes of text in `count`.
    text: usize,
    /// Steps that were written.
    emitted: usize,
    /// Output items so far.
    pub(super) items: usize,
    /// Index of the message item, once there is one.
    message: Option<usize>,
    /// Reasoning that has not ended.
    thinking: Option<OpenReasoning>,
    /// Steps that have not ended, by step id.
    steps: HashMap<String, OpenStep>,
    /// Asks of the turn.
    pub(super) questions: ResponseApprovals,
    /// Finished items with their index in the output.
    pub(super) over: Vec<(usize, FinishedItem)>,
}

/// A finished item, repeated in the last event.
pub(super) enum FinishedItem {
    Item(Value),
    /// Reasoning, which may be long.
    Thought {
        id: String,
        text: Arc<String>,
    },
}

struct OpenReasoning {
    index: usize,
    id: String,
    text: String,
}

struct OpenStep {
    index: usize,
    title: String,
}

/// Name and data of an event that has no sequence number yet.
pub(super) type NamedEvent = (&'static str, Value);

/// Event id to write, which says where a client that saw the event resumes.
#[derive(Clone, Copy)]
pub(super) enum ResumePoint {
    /// No id: a client cannot resume here.
    None,
    Named(&'static str),
    /// Resume behind everything so far.
    Place,
}

impl ResponseEvents {
    /// Creates the stream of a response, leaving out events that the client has seen.
    pub fn new(answer: ResponseInfo, run: &TurnId, seen: SeenSequence) -> Self {
        Self {
            answer,
            run: run.clone(),
            seen,
            count: 0,
            place: 0,
            text: 0,
            emitted: 0,
            items: 0,
            message: None,
            thinking: None,
            steps: HashMap::new(),
            questions: ResponseApprovals::default(),
            over: Vec::new(),
        }
    }

    /// Counts an event, and writes it unless the client has seen it.
    fn write(&mut self, out: &mut SseBuffer, id: ResumePoint, name: &str, data: Value) {
        self.count += 1;
        if !self.seen.has(self.count) {
            self.tell(out, id, name, data);
        }
    }

    /// Writes an event that the client has not seen. Its number is never below the client's last, even if this
    /// log is shorter than the one that the client read.
    pub(super) fn tell(&self, out: &mut SseBuffer, id: ResumePoint, name: &str, data: Value) {
        let questions = self.questions.emitted.max(self.seen.questions());
        let number = sequence::number(self.count.max(self.seen.count()), questions);
        self.tell_as(out, number, id, name, data);
    }

    fn tell_as(&self, out: &mut SseBuffer, number: u64, id: ResumePoint, name: &str, mut data: Value) {
        if data.get("type").is_none() {
            data["type"] = json!(name);
        }
        data["sequence_number"] = json!(number);
        match id {
            ResumePoint::None => out.event(Some(name), None, &data),
            ResumePoint::Named(id) => out.event(Some(name), Some(id), &data),
            ResumePoint::Place => {
                let id = self.seen.id(number, self.text, self.count);
                out.event(Some(name), id.as_deref(), &data);
            }
        }
    }

    /// Counts and writes events that belong together; a client cannot resume between them.
    fn write_all(&mut self, out: &mut SseBuffer, events: Vec<NamedEvent>) {
        for (name, data) in events {
            self.write(out, ResumePoint::None, name, data);
        }
    }

    /// Opens a new item with one content part; returns its index.
    fn open(&mut self, out: &mut SseBuffer, item: Value, part: Value) -> usize {
        let (index, id) = (self.items, item["id"].clone());
        self.items += 1;
        let place = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        let item = json!({ "output_index": index, "item": item });
        let events = vec![("response.output_item.added", item), ("response.content_part.added", place)];
        self.write_all(out, events);
        index
    }

    fn text(&mut self, text: &str, out: &mut SseBuffer) {
        // Text ends a stretch of reasoning; reasoning after it is a new item.
        let thought = self.stop_thinking(out);
        self.write_all(out, thought);
        let index = match self.message {
            Some(index) => index,
            None => {
                let item = json!({
                    "id": self.answer.message_id(), "type": "message", "role": "assistant",
                    "status": "in_progress", "content": [],
                });
                let index = self.open(out, item, text_part(json!("")));
                *self.message.insert(index)
            }
        };
        self.count += text.len();
        self.place += text.len();
        self.text += text.len();
        let delta = unseen(text, self.seen.of_text(text, self.text, self.count));
        if !delta.is_empty() {
            let data = json!({
                "item_id": self.answer.message_id(), "output_index": index, "content_index": 0,
                "delta": delta, "logprobs": [],
            });
            self.tell(out, ResumePoint::Place, "response.output_text.delta", data);
        }
    }

    fn think(&mut self, text: &str, out: &mut SseBuffer) {
        if self.thinking.is_none() {
            let id = self.answer.reasoning_id(self.items);
            let item = json!({
                "id": id, "type": "reasoning", "status": "in_progress", "summary": [], "content": [],
            });
            let index = self.open(out, item, reasoning_part(json!("")));
            self.thinking = Some(OpenReasoning { index, id, text: String::new() });
        }
        let Some(thinking) = &mut self.thinking else { return };
        thinking.text.push_str(text);
        self.count += text.len();
        self.place += text.len();
        let delta = unseen(text, self.seen.of(text, self.count));
        if !delta.is_empty() {
            let OpenReasoning { index, id, .. } = thinking;
            let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": delta });
            self.tell(out, ResumePoint::Place, "response.reasoning_text.delta", data);
        }
    }

    /// Closes the current stretch of reasoning, if there is one.
    fn stop_thinking(&mut self, out: &mut SseBuffer) -> Vec<NamedEvent> {
        let Some(OpenReasoning { index, id, text }) = self.thinking.take() else { return Vec::new() };
        let text = Arc::new(text);
        let told = out.long(&text);
        let item = reasoning(&id, told.clone());
        self.over.push((index, FinishedItem::Thought { id: id.clone(), text }));
        let place = |name: &str, value: Value| {
            let mut place = json!({ "item_id": id, "output_index": index, "content_index": 0 });
            place[name] = value;
            place
        };
        vec![
            ("response.reasoning_text.done", place("text", told.clone())),
            ("response.content_part.done", place("part", reasoning_part(told))),
            ("response.output_item.done", json!({ "output_index": index, "item": item })),
        ]
    }

    fn step(&mut self, step: Step, out: &mut SseBuffer) {
        self.place += 1;
        let mut events = Vec::new();
        let open = match self.steps.remove(&step.id) {
            Some(OpenStep { index, .. }) => OpenStep { index, title: step.title },
            None if self.emitted >= STEPS => return,
            None => {
                events = self.stop_thinking(out);
                let open = OpenStep { index: self.items, title: step.title };
                self.items += 1;
                self.emitted += 1;
                let item =
                    json!({ "output_index": open.index, "item": open.item(&self.answer, "in_progress") });
                events.push(("response.output_item.added", item));
                events.push(("response.mcp_call.in_progress", open.place(&self.answer)));
                open
            }
        };
        match step.state {
            StepState::Running => {
                self.steps.insert(step.id, open);
            }
            StepState::Done => events.extend(self.end_step(&open, "completed")),
            StepState::Failed => events.extend(self.end_step(&open, "failed")),
        }
        if let Some((name, data)) = events.pop() {
            self.write_all(out, events);
            self.write(out, ResumePoint::Place, name, data);
        }
    }

    /// Closes a step.
    fn end_step(&mut self, open: &OpenStep, status: &str) -> [NamedEvent; 2] {
        let item = open.item(&self.answer, status);
        self.over.push((open.index, FinishedItem::Item(item.clone())));
        let name =
            if status == "completed" { "response.mcp_call.completed" } else { "response.mcp_call.failed" };
        let done = json!({ "output_index": open.index, "item": item });
        [(name, open.place(&self.answer)), ("response.output_item.done", done)]
    }

    /// Closes the message, if there is one.
    fn finish_message(&mut self, end: &TurnResult, out: &mut SseBuffer) -> Vec<NamedEvent> {
        let Some(index) = self.message else { return Vec::new() };
        let told = out.long(&end.text);
        let item = self.answer.message(end, told.clone());
        self.over.push((index, FinishedItem::Item(item.clone())));
        let id = self.answer.message_id();
        let text = json!({
            "item_id": id, "output_index": index, "content_index": 0, "text": told, "logprobs": [],
        });
        let part = text_part(told);
        let place = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        vec![
            ("response.output_text.done", text),
            ("response.content_part.done", place),
            ("response.output_item.done", json!({ "output_index": index, "item": item })),
        ]
    }
}

impl OpenStep {
    /// The step as an item of the protocol. We know only the tool's name; its arguments and output stay with
    /// the agent.
    fn item(&self, answer: &ResponseInfo, status: &str) -> Value {
        json!({
            "id": answer.step_id(self.index), "type": "mcp_call", "status": status, "name": self.title,
            "server_label": AGENT, "arguments": "{}", "output": null, "error": null,
            "approval_request_id": null,
        })
    }

    fn place(&self, answer: &ResponseInfo) -> Value {
        json!({ "item_id": answer.step_id(self.index), "output_index": self.index })
    }
}

impl StreamFormat for ResponseEvents {
    // The last event contains the whole response.
    fn end_parts(_read: usize) -> EndParts {
        EndParts::Text
    }

    fn begin(&mut self, out: &mut SseBuffer) {
        let response = self.answer.running();
        let data = json!({ "response": response });
        // The only event with sequence number 0.
        if !self.seen.has(0) {
            self.tell(out, ResumePoint::None, "response.created", data.clone());
        }
        self.write(out, ResumePoint::Named(START), "response.in_progress", data);
    }

    fn event(&mut self, event: TurnEvent<'_>, _: &LogPosition, out: &mut SseBuffer) {
        match event {
            TurnEvent::Text(text) => self.in_pieces(text, out, Self::text),
            TurnEvent::Thought(text) => self.in_pieces(text, out, Self::think),
            TurnEvent::Step(step) => {
                self.catch_up(self.place, out);
                self.step(step, out);
            }
            TurnEvent::Asked(asked) => {
                // Asks of an earlier process come before those of this one.
                self.catch_up(usize::MAX, out);
                self.ask(&asked, out);
            }
            TurnEvent::Answered(answered) => self.answer(&answered, out),
            TurnEvent::Notice(Some(_)) => out.comment(notices::WAITING),
            TurnEvent::Notice(None)
            | TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Usage(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_) => {}
        }
    }

    fn prior_asks(&mut self, prior_asks: &Arc<[PriorAsk]>) {
        self.questions.prior_asks = prior_asks.clone();
    }

    fn so_far(&mut self, out: &mut SseBuffer) {
        self.catch_up(self.place, out);
    }

    fn text_replaced(&mut self) {
        // The message is opened by two events.
        self.seen = self.seen.of_another_text(self.count + 2);
    }

    fn end(&mut self, end: &TurnResult, _: bool, out: &mut SseBuffer) {
        // Asks that are no longer in the log came before the end too.
        self.catch_up(usize::MAX, out);
        let mut events = self.stop_thinking(out);
        let mut open: Vec<_> = std::mem::take(&mut self.steps).into_values().collect();
        open.sort_by_key(|step| step.index);
        for step in open {
            events.extend(self.end_step(&step, "incomplete"));
        }
        events.extend(self.end_questions());
        events.extend(self.finish_message(end, out));
        let count = self.count.max(self.seen.count());
        for (told, (name, data)) in events.into_iter().enumerate() {
            let number = sequence::ends(count, told);
            if !self.seen.has_end(number) {
                self.tell_as(out, number, ResumePoint::None, name, data);
            }
        }
        let mut output = std::mem::take(&mut self.over);
        output.sort_by_key(|(index, _)| *index);
        let item = |(_, over): (usize, FinishedItem)| match over {
            FinishedItem::Item(item) => item,
            FinishedItem::Thought { id, text } => reasoning(&id, out.long(&text)),
        };
        let output: Vec<_> = output.into_iter().map(item).collect();
        let response = self.answer.ended_with(output, end);
        let data = json!({ "response": response });
        let number = sequence::last(count);
        if !self.seen.has_end(number) {
            self.tell_as(out, number, ResumePoint::Named(END), last_event(end), data);
        }
    }

    /// Writes nothing: the protocol ends with its last event.
    fn close(&mut self, _: &mut SseBuffer) {}
}

/// A finished stretch of reasoning.
fn reasoning(id: &str, text: Value) -> Value {
    let part = reasoning_part(text);
    json!({ "id": id, "type": "reasoning", "status": "completed", "summary": [], "content": [part] })
}

fn reasoning_part(text: Value) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// The part of a delta that the client has not seen.
fn unseen(text: &str, seen: usize) -> &str {
    text.get(text.floor_char_boundary(seen.min(text.len()))..).unwrap_or_default()
}
