//! What people are asked, as items of a response.
//!
//! A question is an item, and how it came out is its end; the events are called `approval.request` and
//! `approval.responded`, and tell all that these tell elsewhere. What was refused at once is no item: nobody was asked,
//! and no later process would know of it.
//!
//! What an earlier process asked, and how it came out, is told again where that one told it, so that every item keeps
//! its index; whoever heard it then is left in peace. What a restart denied comes behind all that was told of questions
//! before it, so it waits for the place of the last of them: all that comes before has the same numbers as then.
//! OpenAI's own clients need that: they read the whole stream again and leave out what has no higher number than they
//! know. (Such a one that was told more text while a question was open does not hear of its denial, only the end has it;
//! whoever says `starting_after` does.)

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::approvals;
use super::super::frames::Frames;
use super::events::{AGENT, Event, Id, Over, ResponseEvents};
use crate::agent::{Answered, Asked, Left};
use crate::session::AskId;

/// The questions of one response.
#[derive(Default)]
pub struct Questions {
    /// Those that nobody has answered.
    open: Vec<Asking>,
    /// What earlier processes asked, and how it came out, in order.
    pub left: Arc<[Left]>,
    /// How many questions and answers were told: first those that are left, then those of this process.
    pub told: usize,
}

/// A question that was asked.
struct Asking {
    index: usize,
    id: AskId,
    item: Value,
}

impl Questions {
    /// The next that is left, if its place comes when no more than this has been told.
    fn next(&self, told: usize) -> Option<Left> {
        self.left.get(self.told).filter(|left| left.told <= told).cloned()
    }

    /// Bytes until that, when so much has been told.
    fn ahead(&self, told: usize) -> usize {
        self.left.get(self.told).map_or(usize::MAX, |left| left.told.saturating_sub(told))
    }
}

impl ResponseEvents {
    /// Tells a text or reasoning with the questions that earlier processes asked in the middle of it.
    pub(super) fn in_pieces(&mut self, text: &str, out: &mut Frames, tell: fn(&mut Self, &str, &mut Frames)) {
        let mut rest = text;
        self.catch_up(self.place, out);
        while !rest.is_empty() {
            let ahead = self.questions.ahead(self.place).min(rest.len());
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(ahead));
            tell(self, piece, out);
            self.catch_up(self.place, out);
            rest = after;
        }
    }

    /// Tells the questions and answers of earlier processes whose places come when no more than this has been told.
    pub(super) fn catch_up(&mut self, told: usize, out: &mut Frames) {
        while let Some(Left { id, answered, .. }) = self.questions.next(told) {
            match answered {
                None => self.add(&id, "", &json!({}), json!({}), "response.output_item.added", out),
                Some(answered) => self.come_out(&answered, out),
            }
        }
    }

    pub(super) fn ask(&mut self, asked: &Asked, out: &mut Frames) {
        let Asked { id, ask, refused, .. } = asked;
        if !refused {
            let arguments = json!({ "command": ask.detail, "cwd": ask.cwd });
            let data = approvals::requested(&self.run, asked);
            self.add(id, &ask.title, &arguments, data, approvals::REQUEST, out);
        }
    }

    /// What an earlier process left is told in its place, and what was refused is not told.
    pub(super) fn answer(&mut self, answered: &Answered, out: &mut Frames) {
        let left = self.questions.left.iter().any(|left| left.id == answered.id);
        if !left && self.questions.open.iter().any(|open| open.id == answered.id) {
            self.come_out(answered, out);
        }
    }

    /// Closes what nobody has answered.
    pub(super) fn end_questions(&mut self) -> Vec<Event> {
        let open = std::mem::take(&mut self.questions.open).into_iter();
        open.map(|Asking { index, item, .. }| {
            self.over.push((index, Over::Item(item.clone())));
            ("response.output_item.done", json!({ "output_index": index, "item": item }))
        })
        .collect()
    }

    /// Tells a question with this beside its item.
    fn add(
        &mut self,
        id: &AskId,
        title: &str,
        arguments: &Value,
        mut data: Value,
        name: &str,
        out: &mut Frames,
    ) {
        let (index, item) = (self.items, question(id, title, arguments));
        self.items += 1;
        data["type"] = json!("response.output_item.added");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.questions.open.push(Asking { index, id: id.clone(), item });
        self.count_and_tell(name, data, out);
    }

    /// Tells how a question came out. It counts also where nobody knows the question: others count it too.
    fn come_out(&mut self, answered: &Answered, out: &mut Frames) {
        let Some(known) = self.questions.open.iter().position(|open| open.id == answered.id) else {
            self.questions.told += 1;
            return;
        };
        let Asking { index, item, .. } = self.questions.open.remove(known);
        let mut data = approvals::responded(&self.run, answered);
        data["type"] = json!("response.output_item.done");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.over.push((index, Over::Item(item)));
        self.count_and_tell(approvals::RESPONDED, data, out);
    }

    fn count_and_tell(&mut self, name: &str, data: Value, out: &mut Frames) {
        self.questions.told += 1;
        if !self.seen.has_asked(self.questions.told) {
            self.tell(out, Id::Place, name, data);
        }
    }
}

/// What a person is asked.
fn question(id: &AskId, title: &str, arguments: &Value) -> Value {
    json!({
        "id": id.0, "type": "mcp_approval_request", "name": title, "server_label": AGENT,
        "arguments": arguments.to_string(),
    })
}
