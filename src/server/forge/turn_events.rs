//! A turn as a stream: first `event: turn` with its number, then each entry of `events` as it happens, last `event: done` with
//! the end. Notices for people come as `event: notice`.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::agent_lines::AgentLines;
use super::turn_clock::TurnClock;
use super::turn_outcome::ForgeEnd;
use crate::agent::TurnEvent;
use crate::ids::TurnId;
use crate::rules::LiveRules;
use crate::server::notices;
use crate::server::sse::SseBuffer;
use crate::server::turn_result::TurnResult;
use crate::server::turn_stream::{END, START, StreamFormat};
use crate::turn_log::LogPosition;

/// Called with the end of a turn.
pub type OnTurnEnd = Box<dyn FnOnce(&ForgeEnd) + Send>;

/// Writes the events of one turn.
pub struct TurnEvents {
    pub session: String,
    pub run: TurnId,
    pub turn_index: u64,
    pub began: Instant,
    pub clock: TurnClock,
    pub lines: AgentLines,
    /// Texts of notices.
    pub live: Arc<LiveRules>,
    /// Told of the end, so that a lost session is closed.
    pub on_end: Option<OnTurnEnd>,
}

impl StreamFormat for TurnEvents {
    fn begin(&mut self, out: &mut SseBuffer) {
        let turn = json!({ "session_id": self.session, "run_id": self.run.0, "turn_index": self.turn_index });
        out.event(Some("turn"), Some(START), &turn);
    }

    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer) {
        let id = at.to_string();
        if let TurnEvent::Notice(notice) = &event {
            if let Some(data) = notices::told(&self.live, notice.as_ref()) {
                out.event(Some("notice"), Some(&id), &data);
            }
            return;
        }
        if let Some(entry) = self.lines.entry(&event) {
            out.json(None, Some(&id), &entry);
        }
    }

    fn end(&mut self, end: &TurnResult, _is_told: bool, out: &mut SseBuffer) {
        let ended = ForgeEnd::of(Some(end), self.clock.has_timed_out());
        if let Some(on_end) = self.on_end.take() {
            on_end(&ended);
        }
        if let Some(entry) = self.lines.end(&ended.stop_reason) {
            out.json(None, None, &entry);
        }
        let duration = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut fields = ended.fields(&self.session, self.turn_index, duration);
        if self.lines.is_cut() {
            fields.insert("truncated".to_owned(), Value::Bool(true));
        }
        if let Some(retry_after) = end.unavailable().and_then(|unavailable| unavailable.retry_after) {
            // What a client without a stream is told in `Retry-After`.
            fields.insert("retry_after".to_owned(), retry_after.as_secs().into());
        }
        if end.text_replaced {
            // The last word of the agent is another one than what was streamed.
            fields.insert("text".to_owned(), Value::String(end.text.to_string()));
        }
        out.event(Some("done"), Some(END), &Value::Object(fields));
    }

    fn close(&mut self, out: &mut SseBuffer) {
        out.comment("stream closed");
    }
}
