//! A turn as the events of a response.
//!
//! The whole text is one message, whatever comes between its pieces; each stretch of reasoning and each step is an item
//! of its own, as long as there are not too many. A step is told as a call that is made where the agent is, so that no client tries to make it. Reasoning
//! and steps are told to whoever reads along and kept nowhere: a response that is retrieved later has only its message.
//!
//! What a person is asked is an item too, and how it came out is its end; the events are called `approval.request` and
//! `approval.responded`, and tell all that these tell elsewhere.
//!
//! Clients refuse what they have no name for, so there is no type here that the protocol does not have.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::approvals;
use super::super::ended::Ended;
use super::super::follow::{END, Shape};
use super::super::frames::Frames;
use super::super::notices;
use super::object::{Answer, last_event, text_part};
use super::seen::{START, Seen, ends, happens, opens};
use crate::agent::{Answered, Asked, Step, StepState, TurnEvent};
use crate::session::{AskId, TurnId};
use crate::turns::RESTART;
use crate::turns::log::Position;

/// Whose tools they are.
const AGENT: &str = "agent";

/// Steps that are told. Far more than an honest turn has; what comes beyond is left out, because each of them is kept
/// for as long as somebody reads.
const STEPS: usize = 256;

/// The events of one response for one reader.
pub struct ResponseEvents {
    answer: Answer,
    run: TurnId,
    seen: Seen,
    /// How much was told: bytes of text and of reasoning, and everything else once. Notices are not counted, because
    /// the next process has others.
    count: usize,
    /// Bytes of text among that.
    text: usize,
    /// Questions among that which a restart denied.
    denied: usize,
    /// The lowest number that the next event can have. Where the log is another one, or gone, less may have happened
    /// than the reader saw.
    next: u64,
    /// Steps that were told.
    told: usize,
    /// How many items there are.
    items: usize,
    /// Which of them is the message, once there is one.
    message: Option<usize>,
    /// The reasoning that goes on.
    thinking: Option<Thinking>,
    /// The steps that go on, by their ids.
    steps: HashMap<String, Stepping>,
    /// What a person was asked and has not answered.
    asks: Vec<Asking>,
    /// Items that are over, with their places.
    over: Vec<(usize, Over)>,
}

/// An item that is over, to be told once more at the end.
enum Over {
    Item(Value),
    /// Reasoning, which may be long.
    Thought {
        id: String,
        text: Arc<str>,
    },
}

struct Thinking {
    index: usize,
    id: String,
    text: String,
}

struct Stepping {
    index: usize,
    title: String,
}

struct Asking {
    index: usize,
    id: AskId,
    item: Value,
}

/// An event that waits for its number.
type Event = (&'static str, Value);

/// Where a reader goes on who has seen an event.
#[derive(Clone, Copy)]
enum Id {
    /// Not behind it.
    None,
    Named(&'static str),
    /// Behind what has happened so far.
    Place,
}

impl ResponseEvents {
    /// The events of a response, without those that its reader has seen.
    pub fn new(answer: Answer, run: &TurnId, seen: Seen) -> Self {
        Self {
            answer,
            run: run.clone(),
            seen,
            count: 0,
            text: 0,
            denied: 0,
            next: seen.next(),
            told: 0,
            items: 0,
            message: None,
            thinking: None,
            steps: HashMap::new(),
            asks: Vec::new(),
            over: Vec::new(),
        }
    }

    /// Writes an event, unless it was seen.
    fn write(&mut self, out: &mut Frames, number: u64, id: Id, name: &str, mut data: Value) {
        if self.seen.has(number) {
            return;
        }
        let number = number.max(self.next);
        self.next = number.saturating_add(1);
        if data.get("type").is_none() {
            data["type"] = json!(name);
        }
        data["sequence_number"] = json!(number);
        match id {
            Id::None => out.event(Some(name), None, &data),
            Id::Named(id) => out.event(Some(name), Some(id), &data),
            Id::Place => {
                let id = self.seen.id(number, self.text, self.count, self.denied);
                out.event(Some(name), id.as_deref(), &data);
            }
        }
    }

    /// The same for something behind which a reader can go on.
    fn write_place(&mut self, out: &mut Frames, number: u64, name: &str, data: Value) {
        self.write(out, number, Id::Place, name, data);
    }

    /// Writes events that belong together. The next number that is free.
    fn write_all(&mut self, out: &mut Frames, number: u64, events: Vec<Event>) -> u64 {
        let mut number = number;
        for (name, data) in events {
            self.write(out, number, Id::None, name, data);
            number = number.saturating_add(1);
        }
        number
    }

    /// Opens the item that a piece belongs to, just before it.
    fn open(&mut self, out: &mut Frames, number: u64, item: Value, part: Value) -> usize {
        let (index, id) = (self.items, item["id"].clone());
        self.items += 1;
        let place = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        let item = json!({ "output_index": index, "item": item });
        let events = vec![("response.output_item.added", item), ("response.content_part.added", place)];
        self.write_all(out, number, events);
        index
    }

    fn text(&mut self, text: &str, out: &mut Frames) {
        // Whatever was thought before it is over, and what is thought after it is something else.
        let number = self.stop_thinking(out, opens(self.count));
        let index = match self.message {
            Some(index) => index,
            None => {
                let item = json!({
                    "id": self.answer.message_id(), "type": "message", "role": "assistant",
                    "status": "in_progress", "content": [],
                });
                let index = self.open(out, number, item, text_part(json!("")));
                *self.message.insert(index)
            }
        };
        self.count += text.len();
        self.text += text.len();
        let delta = unseen(text, self.seen.of_text(text, self.text, self.count));
        if !delta.is_empty() {
            let data = json!({
                "item_id": self.answer.message_id(), "output_index": index, "content_index": 0,
                "delta": delta, "logprobs": [],
            });
            let number = happens(self.count).max(self.next);
            self.write_place(out, number, "response.output_text.delta", data);
        }
    }

    fn think(&mut self, text: &str, out: &mut Frames) {
        if self.thinking.is_none() {
            let id = self.answer.reasoning_id(self.items);
            let item = json!({
                "id": id, "type": "reasoning", "status": "in_progress", "summary": [], "content": [],
            });
            let index = self.open(out, opens(self.count), item, reasoning_part(json!("")));
            self.thinking = Some(Thinking { index, id, text: String::new() });
        }
        let Some(thinking) = &mut self.thinking else { return };
        thinking.text.push_str(text);
        self.count += text.len();
        let delta = unseen(text, self.seen.of(text, self.count));
        if !delta.is_empty() {
            let Thinking { index, id, .. } = thinking;
            let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": delta });
            let number = happens(self.count).max(self.next);
            self.write_place(out, number, "response.reasoning_text.delta", data);
        }
    }

    /// Closes the reasoning that goes on, if any does; the next number that is free.
    fn stop_thinking(&mut self, out: &mut Frames, number: u64) -> u64 {
        let Some(Thinking { index, id, text }) = self.thinking.take() else { return number };
        let text = Arc::<str>::from(text);
        let told = out.long(&text);
        let item = reasoning(&id, told.clone());
        self.over.push((index, Over::Thought { id: id.clone(), text }));
        let place = |name: &str, value: Value| {
            let mut place = json!({ "item_id": id, "output_index": index, "content_index": 0 });
            place[name] = value;
            place
        };
        let events = vec![
            ("response.reasoning_text.done", place("text", told.clone())),
            ("response.content_part.done", place("part", reasoning_part(told))),
            ("response.output_item.done", json!({ "output_index": index, "item": item })),
        ];
        self.write_all(out, number, events)
    }

    fn step(&mut self, step: Step, out: &mut Frames) {
        self.count += 1;
        let (mut number, mut events) = (happens(self.count), Vec::new());
        let open = match self.steps.remove(&step.id) {
            Some(Stepping { index, .. }) => Stepping { index, title: step.title },
            None if self.told >= STEPS => return,
            None => {
                number = self.stop_thinking(out, number);
                let open = Stepping { index: self.items, title: step.title };
                self.items += 1;
                self.told += 1;
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
            let number = self.write_all(out, number, events);
            self.write_place(out, number, name, data);
        }
    }

    fn ask(&mut self, asked: &Asked, out: &mut Frames) {
        self.count += 1;
        let number = self.stop_thinking(out, happens(self.count));
        let (index, Asked { id, ask, .. }) = (self.items, asked);
        self.items += 1;
        let arguments = json!({ "command": ask.detail, "cwd": ask.cwd });
        let item = question(id, &ask.title, &arguments);
        let mut data = approvals::requested(&self.run, asked);
        data["type"] = json!("response.output_item.added");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.asks.push(Asking { index, id: id.clone(), item });
        self.write_place(out, number, approvals::REQUEST, data);
    }

    fn answer(&mut self, answered: &Answered, out: &mut Frames) {
        self.count += 1;
        let known = self.asks.iter().position(|open| open.id == answered.id);
        let Some(known) = known else { return self.deny(answered, out) };
        let Asking { index, item, .. } = self.asks.swap_remove(known);
        let data = self.answered(answered, index, &item);
        self.over.push((index, Over::Item(item)));
        self.write_place(out, happens(self.count), approvals::RESPONDED, data);
    }

    /// An earlier process had asked, and a restart denied it: the question is not known any more.
    fn deny(&mut self, answered: &Answered, out: &mut Frames) {
        if answered.rule != RESTART {
            return;
        }
        self.denied += 1;
        let (index, item) = (self.items, question(&answered.id, "", &json!({})));
        self.items += 1;
        if !self.seen.has_denied(self.denied) {
            let number = happens(self.count).max(self.next);
            let added = json!({ "output_index": index, "item": item });
            let number = self.write_all(out, number, vec![("response.output_item.added", added)]);
            let data = self.answered(answered, index, &item);
            self.write_place(out, number, approvals::RESPONDED, data);
        }
        self.over.push((index, Over::Item(item)));
    }

    fn answered(&self, answered: &Answered, index: usize, item: &Value) -> Value {
        let mut data = approvals::responded(&self.run, answered);
        data["type"] = json!("response.output_item.done");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        data
    }

    /// The end of a step.
    fn end_step(&mut self, open: &Stepping, status: &str) -> [Event; 2] {
        let item = open.item(&self.answer, status);
        self.over.push((open.index, Over::Item(item.clone())));
        let name =
            if status == "completed" { "response.mcp_call.completed" } else { "response.mcp_call.failed" };
        let done = json!({ "output_index": open.index, "item": item });
        [(name, open.place(&self.answer)), ("response.output_item.done", done)]
    }

    /// Closes the message, if there is one; the next number that is free.
    fn finish_message(&mut self, end: &Ended, out: &mut Frames, number: u64) -> u64 {
        let Some(index) = self.message else { return number };
        let told = out.long(&end.text);
        let item = self.answer.message(end, told.clone());
        self.over.push((index, Over::Item(item.clone())));
        let id = self.answer.message_id();
        let text = json!({
            "item_id": id, "output_index": index, "content_index": 0, "text": told, "logprobs": [],
        });
        let part = text_part(told);
        let place = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
        let events = vec![
            ("response.output_text.done", text),
            ("response.content_part.done", place),
            ("response.output_item.done", json!({ "output_index": index, "item": item })),
        ];
        self.write_all(out, number, events)
    }
}

impl Stepping {
    /// As the protocol has it. Only the tool's name is known; what it is told and says is the agent's.
    fn item(&self, answer: &Answer, status: &str) -> Value {
        json!({
            "id": answer.step_id(self.index), "type": "mcp_call", "status": status, "name": self.title,
            "server_label": AGENT, "arguments": "{}", "output": null, "error": null,
            "approval_request_id": null,
        })
    }

    fn place(&self, answer: &Answer) -> Value {
        json!({ "item_id": answer.step_id(self.index), "output_index": self.index })
    }
}

impl Shape for ResponseEvents {
    fn begin(&mut self, out: &mut Frames) {
        let response = self.answer.running();
        let data = json!({ "response": response });
        self.write(out, 0, Id::None, "response.created", data.clone());
        self.write(out, 1, Id::Named(START), "response.in_progress", data);
    }

    fn event(&mut self, event: TurnEvent<'_>, _: &Position, out: &mut Frames) {
        match event {
            TurnEvent::Text(text) => self.text(text, out),
            TurnEvent::Thought(text) => self.think(text, out),
            TurnEvent::Step(step) => self.step(step, out),
            TurnEvent::Asked(asked) => self.ask(&asked, out),
            TurnEvent::Answered(answered) => self.answer(&answered, out),
            TurnEvent::Notice(Some(_)) => out.comment(notices::WAITING),
            TurnEvent::Notice(None) | TurnEvent::Usage(_) | TurnEvent::Record(_) => {}
        }
    }

    fn retold(&mut self) {
        self.seen = self.seen.of_another_text();
    }

    fn end(&mut self, end: &Ended, out: &mut Frames) {
        let mut number = self.stop_thinking(out, ends(self.count.max(self.seen.count())));
        let mut open: Vec<_> = std::mem::take(&mut self.steps).into_values().collect();
        open.sort_by_key(|step| step.index);
        for step in open {
            let events = self.end_step(&step, "incomplete").into();
            number = self.write_all(out, number, events);
        }
        for Asking { index, item, .. } in std::mem::take(&mut self.asks) {
            let data = json!({ "output_index": index, "item": item });
            number = self.write_all(out, number, vec![("response.output_item.done", data)]);
            self.over.push((index, Over::Item(item)));
        }
        let number = self.finish_message(end, out, number);
        let mut output = std::mem::take(&mut self.over);
        output.sort_by_key(|(index, _)| *index);
        let item = |(_, over): (usize, Over)| match over {
            Over::Item(item) => item,
            Over::Thought { id, text } => reasoning(&id, out.long(&text)),
        };
        let output: Vec<_> = output.into_iter().map(item).collect();
        let response = self.answer.ended_with(output, end);
        let data = json!({ "response": response });
        self.write(out, number, Id::Named(END), last_event(end), data);
    }

    /// This protocol ends with its last event.
    fn close(&mut self, _: &mut Frames) {}
}

/// What a person is asked.
fn question(id: &AskId, title: &str, arguments: &Value) -> Value {
    json!({
        "id": id.0, "type": "mcp_approval_request", "name": title, "server_label": AGENT,
        "arguments": arguments.to_string(),
    })
}

/// A stretch of reasoning that is over.
fn reasoning(id: &str, text: Value) -> Value {
    let part = reasoning_part(text);
    json!({ "id": id, "type": "reasoning", "status": "completed", "summary": [], "content": [part] })
}

fn reasoning_part(text: Value) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// A piece without what was seen of it.
fn unseen(text: &str, seen: usize) -> &str {
    text.get(text.floor_char_boundary(seen.min(text.len()))..).unwrap_or_default()
}
