//! The answer to a turn in one piece: its end, and its events, which are written from the log while they are sent.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::agent_lines::AgentLines;
use crate::agent::TurnEvent;
use crate::server::turn_result::TurnResult;
use crate::turn_log::{LogPosition, SLICE, TurnLog, slice};

/// Bytes to collect, about, before they are sent.
const PIECE: usize = 256 * 1024;

/// Most bytes of an answer. Clients take less than 64 MiB.
const LARGEST: usize = 60 * 1024 * 1024;

/// Bytes of an answer from which on the agent's own lines are left out. The rest is for its text, so that a flood of lines
/// never costs the answer itself.
const LARGEST_LINES: usize = 40 * 1024 * 1024;

/// The answer to a turn, for the OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename = "ForgeTurn")]
#[expect(dead_code, reason = "what is sent is written piece by piece")]
pub struct TurnAnswerSchema {
    ok: bool,
    session_id: String,
    /// Why the turn ended; never null.
    stop_reason: String,
    /// From 1.
    turn_index: u64,
    duration_ms: u64,
    /// What failed, if something did.
    error: Option<String>,
    /// What failed, in words.
    detail: Option<String>,
    /// The last words of the agent's process, without secrets, if something failed.
    stderr: Option<String>,
    /// The agent's own lines, or entries of the same form.
    events: Vec<Map<String, Value>>,
    /// Some events were left out, because the answer would be too large.
    truncated: Option<bool>,
}

/// Where the events come from.
pub enum EventSource {
    /// The log of the turn.
    Log(Arc<TurnLog>),
    /// The log is gone: what the store has of the turn.
    Stored(Box<TurnResult>),
}

/// An answer that is being written.
struct AnswerWriter {
    /// The fields before the events; written first.
    head: Option<Map<String, Value>>,
    lines: AgentLines,
    stop_reason: String,
    source: EventSource,
    position: LogPosition,
    /// An event was written, so the next one needs a comma.
    has_events: bool,
    written: usize,
    truncated: bool,
    is_over: bool,
}

/// Makes the answer.
pub fn answer(
    status: StatusCode,
    head: Map<String, Value>,
    lines: AgentLines,
    stop_reason: &str,
    source: EventSource,
) -> Response {
    let mut writer = AnswerWriter {
        head: Some(head),
        lines,
        stop_reason: stop_reason.to_owned(),
        source,
        position: LogPosition::default(),
        has_events: false,
        written: 0,
        truncated: false,
        is_over: false,
    };
    let first = writer.next_piece();
    let body = match writer.is_over {
        // Most answers are short, and then their length is known.
        true => Body::from(first),
        false => {
            let rest = futures_util::stream::unfold(writer, |mut writer| async {
                let is_over = writer.is_over;
                (!is_over).then(|| (Ok::<_, Infallible>(Bytes::from(writer.next_piece())), writer))
            });
            Body::from_stream(futures_util::StreamExt::chain(
                futures_util::stream::iter([Ok::<_, Infallible>(Bytes::from(first))]),
                rest,
            ))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

impl AnswerWriter {
    fn next_piece(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(head) = self.head.take() {
            let head = Value::Object(head).to_string();
            out.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
            out.extend_from_slice(b",\"events\":[");
        }
        let has_all = self.write_events(&mut out);
        self.written += out.len();
        if has_all || self.truncated {
            self.finish(&mut out);
        }
        out
    }

    /// Writes more events; whether those were all.
    fn write_events(&mut self, out: &mut Vec<u8>) -> bool {
        let Self { lines, source, position, has_events, written, truncated, .. } = self;
        let mut write = |event: &TurnEvent<'_>, out: &mut Vec<u8>| {
            let so_far = *written + out.len();
            if matches!(event, TurnEvent::Raw(line) if so_far + 2 * line.len() > LARGEST_LINES) {
                lines.cut();
            }
            let Some(entry) = lines.entry(event) else { return };
            // No entry comes behind a gap.
            if *truncated || so_far + entry.len() > LARGEST {
                *truncated = true;
                lines.cut();
                return;
            }
            if std::mem::replace(has_events, true) {
                out.push(b',');
            }
            out.extend_from_slice(entry.as_bytes());
        };
        match source {
            EventSource::Log(log) => {
                // The log is locked meanwhile, so it is read in parts.
                let mut read = 0;
                log.read_all(position, |event, _| {
                    read += 1;
                    write(&event, out);
                    match out.len() >= PIECE || read >= 4_096 {
                        true => std::ops::ControlFlow::Break(()),
                        false => std::ops::ControlFlow::Continue(()),
                    }
                })
            }
            EventSource::Stored(result) => {
                let mut at = 0;
                while at < result.text.len() && out.len() <= LARGEST {
                    let piece = slice(&result.text, at);
                    debug_assert!(piece.len() <= SLICE);
                    if piece.is_empty() {
                        break;
                    }
                    at += piece.len();
                    write(&TurnEvent::Text(piece), out);
                }
                true
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.is_over = true;
        if let Some(end) = self.lines.end(&self.stop_reason) {
            if self.has_events {
                out.push(b',');
            }
            out.extend_from_slice(end.as_bytes());
        }
        out.push(b']');
        if self.truncated || self.lines.is_cut() {
            out.extend_from_slice(b",\"truncated\":true");
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TurnId;

    async fn written(log: TurnLog) -> Value {
        let lines = AgentLines::new("s", &TurnId("run_1".to_owned()), log.has_raw());
        let head = serde_json::json!({ "ok": true }).as_object().cloned().unwrap();
        let response = answer(StatusCode::OK, head, lines, "end_turn", EventSource::Log(Arc::new(log)));
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(bytes.len() < 64 * 1024 * 1024, "{}", bytes.len());
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn an_answer_has_every_event_in_order_however_many_there_are() {
        let log = TurnLog::for_readers(1024 * 1024);
        let empty = written(TurnLog::for_readers(1_000)).await;
        assert_eq!(empty["events"].as_array().unwrap().len(), 1, "only its end");
        for number in 0..20_000 {
            log.append(TurnEvent::Raw(&format!("{{\"n\":{number}}}"))).unwrap();
        }
        log.end();
        let answer = written(log).await;
        let events = answer["events"].as_array().unwrap();
        assert!(events.iter().enumerate().all(|(at, event)| event["n"] == at) && events.len() == 20_000);
        assert_eq!(answer["truncated"], Value::Null);
    }

    /// A line that says `text`, with this many bytes beside it, as an agent sends it before the text.
    fn says(log: &TurnLog, text: &str, beside: usize) {
        let update =
            serde_json::json!({ "sessionUpdate": "agent_message_chunk", "content": { "text": text } });
        let params = serde_json::json!({ "update": update, "beside": "x".repeat(beside) });
        let line = serde_json::json!({ "method": "session/update", "params": params });
        log.append(TurnEvent::Raw(&line.to_string())).unwrap();
        log.append(TurnEvent::Text(text)).unwrap();
    }

    #[tokio::test]
    async fn a_flood_of_lines_costs_neither_the_text_nor_the_end() {
        // Lines that the log leaves out, and lines that only the answer has no space for.
        for (lines, text, beside) in [(80, "short", 1_000_000), (15, "x".repeat(1_500_000).as_str(), 0)] {
            let log = TurnLog::for_readers(32 * 1024 * 1024);
            (0..lines).for_each(|_| says(&log, text, beside));
            log.append(TurnEvent::Raw(r#"{"id":1,"result":{"stopReason":"end_turn"}}"#)).unwrap();
            log.end();
            let answer = written(log).await;
            assert_eq!(answer["truncated"], true);
            let events = answer["events"].as_array().unwrap();
            let said = events.iter().filter(|event| event["type"] == "text");
            let said: usize = said.map(|event| event["content"].as_str().unwrap().len()).sum();
            assert_eq!(said, lines * text.len());
            let end = events.last().unwrap();
            assert_eq!(end["result"]["stopReason"], "end_turn");
        }
    }

    #[tokio::test]
    async fn an_answer_is_bounded_and_says_that_it_was_cut() {
        let log = TurnLog::for_readers(1024 * 1024 * 1024);
        for number in 0..80 {
            log.append(TurnEvent::Text(&format!("{number:03}\u{1}").repeat(256 * 1024))).unwrap();
            log.append(TurnEvent::Notice(None)).unwrap();
        }
        let answer = written(log).await;
        assert_eq!(answer["truncated"], true);
        let events = answer["events"].as_array().unwrap();
        assert!(events.len() > 20 && events.last().unwrap()["result"]["stopReason"] == "end_turn");
    }
}
