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
use super::super::sse::SseBuffer;
use super::events::{AGENT, FinishedItem, NamedEvent, ResponseEvents, ResumePoint};
use crate::agent::{AskOpened, AskResolved, PriorAsk};
use crate::ids::AskId;

/// The questions of one response.
#[derive(Default)]
pub struct ResponseApprovals {
    /// Those that nobody has answered.
    open: Vec<OpenApproval>,
    /// What earlier processes asked, and how it came out, in order.
    pub prior_asks: Arc<[PriorAsk]>,
    /// How many questions and answers were told: first those that are left, then those of this process.
    pub emitted: usize,
}

/// A question that was asked.
struct OpenApproval {
    index: usize,
    id: AskId,
    item: Value,
}

impl ResponseApprovals {
    /// The next that is left, if its place comes when no more than this has been told.
    fn next(&self, emitted: usize) -> Option<PriorAsk> {
        self.prior_asks.get(self.emitted).filter(|left| left.emitted <= emitted).cloned()
    }

    /// Bytes until that, when so much has been told.
    fn ahead(&self, emitted: usize) -> usize {
        self.prior_asks.get(self.emitted).map_or(usize::MAX, |left| left.emitted.saturating_sub(emitted))
    }
}

impl ResponseEvents {
    /// Tells a text or reasoning with the questions that earlier processes asked in the middle of it.
    pub(super) fn in_pieces(
        &mut self,
        text: &str,
        out: &mut SseBuffer,
        tell: fn(&mut Self, &str, &mut SseBuffer),
    ) {
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
    pub(super) fn catch_up(&mut self, emitted: usize, out: &mut SseBuffer) {
        while let Some(PriorAsk { id, answered, .. }) = self.questions.next(emitted) {
            match answered {
                None => self.add(&id, "", &json!({}), json!({}), "response.output_item.added", out),
                Some(answered) => self.come_out(&answered, out),
            }
        }
    }

    pub(super) fn ask(&mut self, asked: &AskOpened, out: &mut SseBuffer) {
        let AskOpened { id, ask, refused, .. } = asked;
        if !refused {
            let arguments = json!({ "command": ask.detail, "cwd": ask.cwd });
            let data = approvals::requested(&self.run, asked);
            self.add(id, &ask.title, &arguments, data, approvals::REQUEST, out);
        }
    }

    /// What an earlier process left is told in its place, and what was refused is not told.
    pub(super) fn answer(&mut self, answered: &AskResolved, out: &mut SseBuffer) {
        let left = self.questions.prior_asks.iter().any(|left| left.id == answered.id);
        if !left && self.questions.open.iter().any(|open| open.id == answered.id) {
            self.come_out(answered, out);
        }
    }

    /// Closes what nobody has answered.
    pub(super) fn end_questions(&mut self) -> Vec<NamedEvent> {
        let open = std::mem::take(&mut self.questions.open).into_iter();
        open.map(|OpenApproval { index, item, .. }| {
            self.over.push((index, FinishedItem::Item(item.clone())));
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
        out: &mut SseBuffer,
    ) {
        let (index, item) = (self.items, question(id, title, arguments));
        self.items += 1;
        data["type"] = json!("response.output_item.added");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.questions.open.push(OpenApproval { index, id: id.clone(), item });
        self.count_and_tell(name, data, out);
    }

    /// Tells how a question came out. It counts also where nobody knows the question: others count it too.
    fn come_out(&mut self, answered: &AskResolved, out: &mut SseBuffer) {
        let Some(known) = self.questions.open.iter().position(|open| open.id == answered.id) else {
            self.questions.emitted += 1;
            return;
        };
        let OpenApproval { index, item, .. } = self.questions.open.remove(known);
        let mut data = approvals::responded(&self.run, answered);
        data["type"] = json!("response.output_item.done");
        data["output_index"] = json!(index);
        data["item"] = item.clone();
        self.over.push((index, FinishedItem::Item(item)));
        self.count_and_tell(approvals::RESPONDED, data, out);
    }

    fn count_and_tell(&mut self, name: &str, data: Value, out: &mut SseBuffer) {
        self.questions.emitted += 1;
        if !self.seen.has_asked(self.questions.emitted) {
            self.tell(out, ResumePoint::Place, name, data);
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
