//! What people are asked, as items of a response.
//!
//! A question is an item, and how it came out is its end; the events are called `approval.request` and
//! `approval.responded`, and tell all that these tell elsewhere.
//!
//! A question that a restart denied is told where an earlier process asked it, so that every item keeps its index.
//! Whoever saw it there is told only that it was denied. Those that one restart denied are denied together, behind the
//! last of them: all that the earlier process told before has the same numbers as then. OpenAI's own clients need that:
//! they read the whole stream again and leave out what has no higher number than they know. (Such a one that was told
//! more text while a question was open does not hear of its denial, only the end has it; whoever says `starting_after`
//! does.)

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::super::approvals;
use super::super::frames::Frames;
use super::events::{AGENT, Id, Over, ResponseEvents};
use super::seen;
use crate::agent::{Answered, Asked, Spot};
use crate::session::AskId;

/// The questions of one response.
#[derive(Default)]
pub struct Questions {
    /// Those that nobody has answered.
    open: Vec<Asking>,
    /// Those that a restart denied and whose places have not come, oldest first.
    left: VecDeque<(Spot, Answered)>,
    /// Those whose places have come, to be denied with the others of the same restart.
    denying: Vec<(Asking, Answered)>,
    /// How many a restart denied so far.
    denied: usize,
    /// How many numbers are taken for questions, and where.
    taken: (usize, u64),
}

/// A question that was asked.
struct Asking {
    index: usize,
    id: AskId,
    item: Value,
}

impl Questions {
    /// How many a restart denied so far.
    pub fn denied(&self) -> usize {
        self.denied
    }

    /// Bytes until the next question of an earlier process, when so much has been told.
    fn ahead(&self, count: usize) -> usize {
        self.left.front().map_or(usize::MAX, |(spot, _)| spot.told.saturating_sub(count))
    }
}

impl ResponseEvents {
    /// Tells a text or reasoning with the questions that earlier processes asked in the middle of it.
    pub(super) fn in_pieces(&mut self, text: &str, out: &mut Frames, tell: fn(&mut Self, &str, &mut Frames)) {
        let mut rest = text;
        self.catch_up(self.count, out);
        while !rest.is_empty() {
            let ahead = self.questions.ahead(self.count).min(rest.len());
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(ahead));
            tell(self, piece, out);
            self.catch_up(self.count, out);
            rest = after;
        }
    }

    /// Tells the questions of earlier processes whose places have come when so much has been told.
    pub(super) fn catch_up(&mut self, count: usize, out: &mut Frames) {
        while self.questions.left.front().is_some_and(|(spot, _)| spot.told <= count)
            && let Some((spot, answered)) = self.questions.left.pop_front()
        {
            let number = self.number_behind_thoughts(out);
            let (index, item) = (self.items, question(&answered.id, "", &json!({})));
            self.items += 1;
            if !self.seen.has_asked(number, spot.denied) {
                let added = json!({ "output_index": index, "item": item });
                self.tell(out, number, Id::None, "response.output_item.added", added);
            }
            let asking = Asking { index, id: answered.id.clone(), item };
            self.questions.denying.push((asking, answered));
            let together = |(next, _): &(Spot, Answered)| next.denied == spot.denied;
            if !self.questions.left.front().is_some_and(together) {
                self.deny(number, out);
            }
        }
    }

    /// Says of the questions whose places have come that they were denied.
    fn deny(&mut self, number: u64, out: &mut Frames) {
        for (Asking { index, item, .. }, answered) in std::mem::take(&mut self.questions.denying) {
            self.questions.denied += 1;
            if !self.seen.has_denied(self.questions.denied) {
                let data = self.answered(&answered, index, &item);
                self.tell(out, number, Id::Place, approvals::RESPONDED, data);
            }
            self.over.push((index, Over::Item(item)));
        }
    }

    pub(super) fn ask(&mut self, asked: &Asked, out: &mut Frames) {
        let number = self.number_behind_thoughts(out);
        let (index, Asked { id, ask, .. }) = (self.items, asked);
        self.items += 1;
        let arguments = json!({ "command": ask.detail, "cwd": ask.cwd });
        let item = question(id, &ask.title, &arguments);
        let mut data = approvals::requested(&self.run, asked);
        data["type"] = json!("response.output_item.added");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.questions.open.push(Asking { index, id: id.clone(), item });
        if !self.seen.has_asked(number, self.questions.denied) {
            self.tell(out, number, Id::Place, approvals::REQUEST, data);
        }
    }

    pub(super) fn answer(&mut self, answered: Answered, out: &mut Frames) {
        if let Some(spot) = answered.left {
            self.questions.left.push_back((spot, answered));
            return;
        }
        let Some(known) = self.questions.open.iter().position(|open| open.id == answered.id) else { return };
        let Asking { index, item, .. } = self.questions.open.swap_remove(known);
        let number = self.number();
        let data = self.answered(&answered, index, &item);
        self.over.push((index, Over::Item(item)));
        if !self.seen.has_asked(number, self.questions.denied) {
            self.tell(out, number, Id::Place, approvals::RESPONDED, data);
        }
    }

    /// Closes what nobody has answered; the next number that is free.
    pub(super) fn end_questions(&mut self, out: &mut Frames, mut number: u64) -> u64 {
        for Asking { index, item, .. } in std::mem::take(&mut self.questions.open) {
            let data = json!({ "output_index": index, "item": item });
            number = self.write_all(out, number, vec![("response.output_item.done", data)]);
            self.over.push((index, Over::Item(item)));
        }
        number
    }

    /// The next number for what is asked or answered here.
    fn number(&mut self) -> u64 {
        let taken = match self.questions.taken {
            (count, taken) if count == self.count => taken,
            _ => 0,
        };
        self.questions.taken = (self.count, taken + 1);
        seen::asked(self.count, taken)
    }

    /// The same for a question: whatever was thought before it is over.
    fn number_behind_thoughts(&mut self, out: &mut Frames) -> u64 {
        let first = self.number();
        let number = self.stop_thinking(out, first);
        self.questions.taken.1 += number - first;
        number
    }

    fn answered(&self, answered: &Answered, index: usize, item: &Value) -> Value {
        let mut data = approvals::responded(&self.run, answered);
        data["type"] = json!("response.output_item.done");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        data
    }
}

/// What a person is asked.
fn question(id: &AskId, title: &str, arguments: &Value) -> Value {
    json!({
        "id": id.0, "type": "mcp_approval_request", "name": title, "server_label": AGENT,
        "arguments": arguments.to_string(),
    })
}
