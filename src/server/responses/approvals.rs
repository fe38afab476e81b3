//! Writes asks as items of a response.
//!
//! An ask is an output item, and its answer ends the item; the events are named `approval.request` and
//! `approval.responded` and carry everything that the events of a run carry. A request that a rule denied at
//! once is no item: it was never asked, and no later process would know of it.
//!
//! Asks of an earlier process, and their answers, are repeated at the positions where that process wrote them,
//! so that every item keeps its index; a client that has seen them gets them only once. A denial caused by a
//! restart is written behind all earlier asks and answers, so it waits for the position of the last of them:
//! all events before it keep their numbers. OpenAI's own clients need that: they read the whole stream again
//! and skip events whose number is not higher than the last they know. (If such a client received more text
//! while an ask was open, it sees the denial only in the last event; a client that sends `starting_after` gets
//! it.)

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::approvals;
use super::super::sse::SseBuffer;
use super::events::{AGENT, FinishedItem, NamedEvent, ResponseEvents, ResumePoint};
use crate::agent::{AskOpened, AskResolved, PriorAsk};
use crate::ids::AskId;

/// Asks of one response.
#[derive(Default)]
pub struct ResponseApprovals {
    /// Asks without an answer.
    open: Vec<OpenApproval>,
    /// Asks of earlier processes and their answers, in order.
    pub prior_asks: Arc<[PriorAsk]>,
    /// Asks and answers that were written: first those of earlier processes, then those of this one.
    pub emitted: usize,
}

/// An ask without an answer.
struct OpenApproval {
    index: usize,
    id: AskId,
    item: Value,
}

impl ResponseApprovals {
    /// The next ask or answer of an earlier process, if it belongs at or before position `emitted`.
    fn next(&self, emitted: usize) -> Option<PriorAsk> {
        self.prior_asks.get(self.emitted).filter(|left| left.emitted <= emitted).cloned()
    }

    /// Bytes from position `emitted` to the next ask or answer of an earlier process.
    fn ahead(&self, emitted: usize) -> usize {
        self.prior_asks.get(self.emitted).map_or(usize::MAX, |left| left.emitted.saturating_sub(emitted))
    }
}

impl ResponseEvents {
    /// Writes text or reasoning, with the asks of earlier processes in the middle of it.
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

    /// Writes the asks and answers of earlier processes that belong at or before position `emitted`.
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
            let mut arguments = json!({ "command": ask.detail, "cwd": ask.cwd });
            if let Some(reason) = &ask.reason {
                arguments["reason"] = json!(reason);
            }
            if let Some(gap) = &ask.gap {
                arguments["gap"] = json!(gap.to_string());
            }
            if !ask.form.is_approval() {
                arguments["options"] = json!(ask.form.options);
                arguments["text"] = json!(ask.form.takes_text);
            }
            let data = approvals::requested(&self.run, asked);
            self.add(id, &ask.title.to_string(), &arguments, data, approvals::REQUEST, out);
        }
    }

    /// Writes an answer. Skips asks of earlier processes, which [`catch_up`](Self::catch_up) writes, and those
    /// that were denied at once.
    pub(super) fn answer(&mut self, answered: &AskResolved, out: &mut SseBuffer) {
        let left = self.questions.prior_asks.iter().any(|left| left.id == answered.id);
        if !left && self.questions.open.iter().any(|open| open.id == answered.id) {
            self.come_out(answered, out);
        }
    }

    /// Closes the asks without an answer.
    pub(super) fn end_questions(&mut self) -> Vec<NamedEvent> {
        let open = std::mem::take(&mut self.questions.open).into_iter();
        open.map(|OpenApproval { index, item, .. }| {
            self.over.push((index, FinishedItem::Item(item.clone())));
            ("response.output_item.done", json!({ "output_index": index, "item": item }))
        })
        .collect()
    }

    /// Writes an ask. `data` are the fields beside its item.
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

    /// Writes an answer. It counts even if its ask is unknown: other readers count it too.
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

/// The item of an ask.
fn question(id: &AskId, title: &str, arguments: &Value) -> Value {
    json!({
        "id": id.0, "type": "mcp_approval_request", "name": title, "server_label": AGENT,
        "arguments": arguments.to_string(),
    })
}
