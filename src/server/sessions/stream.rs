//! Writes a turn of a session as events, in the order and form that clients of the reference implementation
//! know.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::agent::{StepState, TurnEvent};
use crate::ids::TurnId;
use crate::reply::TurnOutcome;
use crate::rules::LiveRules;
use crate::server::approvals;
use crate::server::notices::{self, NOTICE};
use crate::server::sse::SseBuffer;
use crate::server::turn_result::{EndParts, TranscriptEntry, TurnResult, message};
use crate::server::turn_stream::{END, START, StreamFormat};
use crate::turn_log::LogPosition;

/// Id of the very first event. A client that has seen only this one starts from the beginning.
const FIRST: &str = "0";

/// Sequence numbers before those of the turn's own events.
const BEFORE: usize = 2;

/// Sequence number of the closing event for a client that has seen the end and so names no position: the
/// largest integer that every JSON client reads exactly.
const LAST: usize = (1 << 53) - 1;

/// State of one stream of one turn.
pub struct SessionEvents {
    session: String,
    run: TurnId,
    /// Id of the only message of the agent.
    message: String,
    /// The prompt as the history keeps it.
    asked: String,
    /// Texts of notices.
    live: Arc<LiveRules>,
    /// Position of the reader; `None` at the end.
    at: Option<LogPosition>,
    /// Ids of the steps that this reader saw begin.
    started: HashSet<String>,
}

impl SessionEvents {
    /// Creates the stream of a turn, from its beginning or from behind the last event that the client has seen.
    pub fn new(
        session: &str,
        run: &TurnId,
        asked: String,
        live: Arc<LiveRules>,
        after: Option<&str>,
    ) -> Self {
        let position = |id: &str| id.parse().unwrap_or_default();
        let at = (after != Some(END)).then(|| after.map(position).unwrap_or_default());
        // Equal for every reader of the turn.
        let message = format!("msg_{}", run.0.trim_start_matches("run_"));
        let started = HashSet::new();
        Self { session: session.to_owned(), run: run.clone(), message, asked, live, at, started }
    }

    /// Writes an event with the fields that all have. `seq` grows from event to event, also for a client that
    /// reconnects.
    fn send(&self, out: &mut SseBuffer, name: &str, id: &str, seq: usize, mut data: Value) {
        data["session_id"] = json!(self.session);
        data["run_id"] = json!(self.run.0);
        data["seq"] = json!(seq);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        data["ts"] = json!(now.as_secs_f64());
        out.event(Some(name), Some(id), &data);
    }

    /// Sequence number of the turn's last event so far.
    fn seq(&self) -> usize {
        self.at.map_or(LAST - 3, |at| BEFORE.saturating_add(at.count()))
    }
}

impl StreamFormat for SessionEvents {
    fn end_parts(_read: usize) -> EndParts {
        EndParts::TextAndTranscript
    }

    fn begin(&mut self, out: &mut SseBuffer) {
        // Written once, and it may be large.
        let asked = std::mem::take(&mut self.asked);
        let asked = json!({ "user_message": { "role": "user", "content": asked } });
        self.send(out, "run.started", FIRST, 1, asked);
        let message = json!({ "message": { "id": self.message, "role": "assistant" } });
        self.send(out, "message.started", START, 2, message);
    }

    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer) {
        self.at = Some(*at);
        let message = &self.message;
        let (name, data) = match event {
            TurnEvent::Text(text) => ("assistant.delta", json!({ "message_id": message, "delta": text })),
            TurnEvent::Thought(text) => {
                let data = json!({ "message_id": message, "tool_name": "_thinking", "delta": text });
                ("tool.progress", data)
            }
            TurnEvent::Step(step) => {
                let name = match step.state {
                    StepState::Running if self.started.insert(step.id.clone()) => "tool.started",
                    StepState::Running => "tool.progress",
                    StepState::Done => "tool.completed",
                    StepState::Failed => "tool.failed",
                };
                // The whole arguments stay with the agent.
                let data = json!({
                    "message_id": message, "tool_name": step.title, "tool_call_id": step.id,
                    "preview": step.detail, "args": null,
                });
                (name, data)
            }
            TurnEvent::Asked(asked) => (approvals::REQUEST, approvals::requested(&self.run, &asked)),
            TurnEvent::Answered(answered) => {
                (approvals::RESPONDED, approvals::responded(&self.run, &answered))
            }
            TurnEvent::Notice(notice) => match notices::told(&self.live, notice.as_ref()) {
                Some(data) => (NOTICE, data),
                None => return,
            },
            TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Usage(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_) => {
                return;
            }
        };
        self.send(out, name, &at.to_string(), self.seq(), data);
    }

    fn end(&mut self, end: &TurnResult, _: bool, out: &mut SseBuffer) {
        let completed = end.status() == "completed";
        let interrupted = match &end.outcome {
            TurnOutcome::Stopped
            | TurnOutcome::Cancelled { .. }
            | TurnOutcome::Interrupted
            | TurnOutcome::Unknown { .. } => true,
            TurnOutcome::Done
            | TurnOutcome::Limit
            | TurnOutcome::CutShort { .. }
            | TurnOutcome::Failed { .. }
            | TurnOutcome::Unavailable { .. } => false,
        };
        let content = out.long(&end.text);
        let said = json!({
            "message_id": self.message, "content": content,
            "completed": completed, "partial": !completed && !end.text.is_empty(), "interrupted": interrupted,
        });
        // A client that has seen only this event gets both again, because the next one is the real end.
        self.send(out, "assistant.completed", &self.at.unwrap_or_default().to_string(), self.seq() + 1, said);
        let name = match end.status() {
            "completed" => "run.completed",
            "cancelled" => "run.cancelled",
            _ => "run.failed",
        };
        let mut data = json!({
            "message_id": self.message, "completed": completed, "content": content,
            "messages": transcript(end, out), "usage": end.usage_of_a_run(),
        });
        if let remarks @ [_, ..] = end.remarks() {
            data["remarks"] = json!(remarks);
        }
        if let Some(error) = end.error() {
            data["error"] = error;
        }
        self.send(out, name, END, self.seq() + 2, data);
    }

    fn close(&mut self, out: &mut SseBuffer) {
        self.send(out, "done", END, self.seq() + 3, json!({}));
    }
}

/// Messages of this turn. A turn without recorded messages, because it said nothing or because they were taken
/// back since, still has its text.
fn transcript(end: &TurnResult, out: &mut SseBuffer) -> Vec<Value> {
    if end.transcript.is_empty() {
        return vec![json!({ "role": "assistant", "content": out.long(&end.text) })];
    }
    let told = |said: &TranscriptEntry| message(&said.message, out.long_part(&said.text, said.range.clone()));
    end.transcript.iter().map(told).collect()
}
