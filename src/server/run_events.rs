//! `GET /v1/runs/{run_id}/events`: streams any run of the caller, running or finished.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::headers::TurnHeaders;
use super::notices::{self, NOTICE};
use super::path_params::RunName;
use super::runs::own_run;
use super::sse::SseBuffer;
use super::turn_result::{STOP_REASON, TurnResult};
use super::turn_stream::{END, StreamFormat, TurnReader};
use super::{ApiError, Caller, Server, approvals};
use crate::agent::{StepState, TurnEvent};
use crate::ids::TurnId;
use crate::rules::LiveRules;
use crate::turn_log::LogPosition;

/// Query string: the position from which to read.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub struct RunQuery {
    /// Id of the last event that was seen, like the header `Last-Event-ID`.
    after: Option<String>,
}

impl RunQuery {
    /// Parses the query string. Event ids contain no characters that need percent-encoding.
    fn read(query: &str) -> Self {
        let after = query.split('&').find_map(|pair| pair.strip_prefix("after="));
        Self { after: after.map(str::to_owned) }
    }
}

/// Streams a run from its beginning, or from behind the last event that the client has seen.
pub async fn read(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    RunName(run): RunName,
    turn_headers: TurnHeaders,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let turn = own_run(&server, &caller, run).await?;
    let query = query.unwrap_or_default();
    let RunQuery { after } = RunQuery::read(&query);
    // The header that a client sends when it reconnects is newer than the query string.
    let after = turn_headers.last_event.clone().or(after);
    let session = caller.name_of(&turn.session);
    let reader = TurnReader::open(&server, &caller, &turn.id, after.as_deref());
    let events = RunEvents {
        run: turn.id.clone(),
        session: session.clone(),
        live: server.live.clone(),
        started: HashSet::new(),
    };
    let answer = reader.map(|reader| reader.stream(events)).map_err(ApiError::from);
    Ok(turn_headers.name(answer, &session, &turn.id))
}

/// Writes a run as events. Their type stands in the data: clients of this surface look for it there, and
/// browser clients would not receive events with an SSE type of their own.
struct RunEvents {
    run: TurnId,
    session: String,
    /// Texts of notices.
    live: Arc<LiveRules>,
    /// Ids of the steps that this reader saw begin.
    started: HashSet<String>,
}

impl RunEvents {
    fn tell(&self, name: &str, id: &str, mut data: Value, out: &mut SseBuffer) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        data["event"] = json!(name);
        data["run_id"] = json!(self.run.0);
        data["timestamp"] = json!(now);
        out.event(None, Some(id), &data);
    }
}

impl StreamFormat for RunEvents {
    fn begin(&mut self, _out: &mut SseBuffer) {}

    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer) {
        let id = at.to_string();
        match event {
            TurnEvent::Text(text) => self.tell("message.delta", &id, json!({ "delta": text }), out),
            TurnEvent::Thought(text) => self.tell("reasoning.available", &id, json!({ "text": text }), out),
            TurnEvent::Step(step) => {
                let (tool, call, preview) = (&step.title, &step.id, &step.detail);
                let running = json!({ "tool": tool, "tool_call_id": call, "preview": preview });
                let ended = |error: bool| json!({ "error": error, "tool": tool, "tool_call_id": call });
                match step.state {
                    StepState::Running if self.started.insert(call.clone()) => {
                        self.tell("tool.started", &id, running, out);
                    }
                    StepState::Running => self.tell("tool.progress", &id, running, out),
                    StepState::Done => self.tell("tool.completed", &id, ended(false), out),
                    StepState::Failed => self.tell("tool.completed", &id, ended(true), out),
                }
            }
            TurnEvent::Asked(asked) => {
                self.tell(approvals::REQUEST, &id, approvals::requested(&self.run, &asked), out);
            }
            TurnEvent::Answered(answered) => {
                self.tell(approvals::RESPONDED, &id, approvals::responded(&self.run, &answered), out);
            }
            TurnEvent::Notice(notice) => {
                if let Some(data) = notices::told(&self.live, notice.as_ref()) {
                    self.tell(NOTICE, &id, data, out);
                }
            }
            TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Usage(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_) => {}
        }
    }

    fn end(&mut self, end: &TurnResult, is_told: bool, out: &mut SseBuffer) {
        let mut data = json!({ "session_id": self.session, "usage": end.usage_of_a_run() });
        data["finish_reason"] = json!(end.finish_reason());
        if let Some(reason) = end.fact(STOP_REASON) {
            data["stop_reason"] = json!(reason);
        }
        if !is_told {
            data["output"] = out.long(&end.text);
        }
        if let remarks @ [_, ..] = end.remarks() {
            data["remarks"] = json!(remarks);
        }
        if let Some(failure) = &end.failure {
            data["error"] = json!(failure);
            data["code"] = json!(end.code());
        }
        let name = match end.status() {
            "completed" => "run.completed",
            "cancelled" => "run.cancelled",
            _ => "run.failed",
        };
        self.tell(name, END, data, out);
    }

    fn close(&mut self, out: &mut SseBuffer) {
        out.comment("stream closed");
    }
}
