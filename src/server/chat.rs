//! `POST /v1/chat/completions`, the endpoint that every OpenAI client uses.

mod request;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::request::ChatRequest;
use super::body::JsonBody;
use super::content::read_messages;
use super::headers::TurnHeaders;
use super::parameters::AgentParams;
use super::sse::SseBuffer;
use super::submit::{AnswerMode, SessionSelector, SubmittedTurn, TurnRequest, fingerprint, submit_turn};
use super::turn_result::{ChatTokens, TurnResult};
use super::turn_stream::{END, START, StreamFormat};
use super::{ApiError, Caller, Server, approvals, notices};
use crate::agent::{StepState, TurnEvent};
use crate::ids::TurnId;
use crate::openai::wire::{DONE, TOOL_PROGRESS};
use crate::turn_log::LogPosition;

/// The answer to a request without a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Completion")]
pub struct ChatCompletion {
    id: String,
    object: &'static str,
    created: i64,
    model: String,
    choices: [CompletionChoice; 1],
    usage: ChatTokens,
    /// Status of the turn if it is incomplete, with its `error` if it failed. Not beside `choices`: LiteLLM
    /// takes an `error` there for a failed request, although the client asked for the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    hermes: Option<Value>,
}

/// The only choice.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Choice")]
struct CompletionChoice {
    index: u32,
    message: CompletionMessage,
    /// `stop`; `length` if the answer was cut or stopped; `error` if the turn failed and the client accepts
    /// partial answers with `X-Talaria-Partial: true`. Without that header a failed turn is a 502.
    finish_reason: &'static str,
}

/// The agent's message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
struct CompletionMessage {
    role: &'static str,
    /// A long text is escaped while it is sent.
    #[schemars(with = "String")]
    content: Value,
}

/// Handles the request: runs a turn, and responds with a stream or with the whole answer.
pub async fn complete(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    turn_headers: TurnHeaders,
    JsonBody { bytes, mut value }: JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let params = value.params()?;
    let ChatRequest { messages, model, stream, .. } = value;
    let session = turn_headers.session.clone().map_or(SessionSelector::Fresh, SessionSelector::Named);
    let agent = server.agent_for(&caller, model.as_deref(), &session).await;
    let chosen = agent.and_then(|agent| Ok((params.for_agent(&server.turns.about(&agent))?, agent)));
    let (mut params, agent) = match chosen {
        Ok((params, agent)) => (params, Ok(agent)),
        Err(problem) => (AgentParams::default(), Err(problem)),
    };
    let turn_request = TurnRequest {
        session,
        agent,
        spoken: read_messages(&messages)?,
        turn_headers: turn_headers.clone(),
        params: params.take(),
        answer: if stream.unwrap_or_default() { AnswerMode::Streamed } else { AnswerMode::Whole },
        fingerprint: fingerprint("/v1/chat/completions", bytes),
        forge: None,
    };
    // Freed early: the messages may be large, and the answer may take long.
    drop(messages);
    let submitted = submit_turn(&server, &caller, turn_request).await?;
    let created = submitted.asked_at(&server).await;
    let SubmittedTurn { reader, session, .. } = submitted;
    let run = reader.run.clone();
    let chunks = ChatChunks {
        id: format!("chatcmpl-{run}"),
        created,
        model: model.unwrap_or_else(|| server.settings.model.clone()),
        run: run.clone(),
        session: session.clone(),
        before: None,
    };
    let answer = match stream.unwrap_or_default() {
        true => Ok(reader.stream(chunks)),
        false => reader.until_the_end(|end| chunks.answer(&end, &turn_headers)).await,
    };
    Ok(params.tell(turn_headers.name(answer, &session, &run)))
}

/// JSON of a delta behind its text; [`ChatChunks::before`] is the JSON in front of it.
const AFTER: &str = r#"},"finish_reason":null}]}"#;

/// Writes a turn as chat completion chunks.
struct ChatChunks {
    id: String,
    created: i64,
    model: String,
    run: TurnId,
    session: String,
    /// JSON of a delta in front of its text. Built with the first delta.
    before: Option<String>,
}

impl ChatChunks {
    fn chunk(&self, choices: Value) -> Value {
        let Self { id, created, model, .. } = self;
        json!({ "id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices })
    }

    /// JSON of a delta in front of its text; [`AFTER`] is the JSON behind it.
    fn before(&mut self) -> &str {
        let Self { id, created, model, before, .. } = self;
        before.get_or_insert_with(|| {
            let (id, model) = (json!(id), json!(model));
            format!(
                r#"{{"id":{id},"object":"chat.completion.chunk","created":{created},"model":{model},"choices":[{{"index":0,"delta":{{"content":"#
            )
        })
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> Value {
        self.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]))
    }

    /// Our own `hermes` object: status of the turn, and its whole text if that was not sent as deltas.
    fn hermes(&self, end: &TurnResult, text: Option<Value>) -> Value {
        let mut hermes = json!({ "run_id": self.run.0, "session_id": self.session, "status": end.status() });
        if let Some(text) = text {
            hermes["text"] = text;
        }
        if let Some(reason) = end.reason() {
            hermes["reason"] = json!(reason);
        }
        hermes["completed"] = json!(end.is_completed());
        hermes["partial"] = json!(end.is_partial());
        for (name, value) in &end.facts {
            hermes[name] = value.clone();
        }
        hermes
    }

    /// A chunk without choices and with these fields, so that a client that does not know our events skips it.
    fn aside(&self, fields: Value) -> Value {
        let mut chunk = self.chunk(json!([]));
        if let (Value::Object(chunk), Value::Object(fields)) = (&mut chunk, fields) {
            for (name, value) in fields {
                chunk.entry(name).or_insert(value);
            }
        }
        chunk
    }

    /// The response to a request without a stream.
    fn answer(self, end: &TurnResult, turn_headers: &TurnHeaders) -> Response {
        match end.problem(turn_headers) {
            Some(problem) => problem.into_response(),
            None => {
                let mut frames = SseBuffer::default();
                let completion = self.whole(end, frames.long(&end.text));
                frames.into_json(&completion)
            }
        }
    }

    fn whole(self, end: &TurnResult, content: Value) -> ChatCompletion {
        // Present for a stopped turn too, which is no error: a partial answer must not look complete.
        let hermes = (end.status() != "completed" || !end.facts.is_empty()).then(|| {
            let mut hermes = self.hermes(end, None);
            if let Some(error) = end.error() {
                hermes["error"] = error;
            }
            hermes
        });
        let message = CompletionMessage { role: "assistant", content };
        ChatCompletion {
            id: self.id,
            object: "chat.completion",
            created: self.created,
            model: self.model,
            choices: [CompletionChoice { index: 0, message, finish_reason: end.finish_reason() }],
            usage: end.tokens(),
            hermes,
        }
    }
}

impl StreamFormat for ChatChunks {
    fn begin(&mut self, out: &mut SseBuffer) {
        out.event(None, Some(START), &self.delta(json!({ "role": "assistant", "content": "" }), None));
    }

    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer) {
        let id = || at.to_string();
        match event {
            TurnEvent::Text(text) => out.text(at, self.before(), text, AFTER),
            TurnEvent::Thought(text) => {
                out.event(None, Some(&id()), &self.delta(json!({ "reasoning_content": text }), None));
            }
            TurnEvent::Step(step) => {
                let status = match step.state {
                    StepState::Running => "running",
                    StepState::Done => "completed",
                    StepState::Failed => "failed",
                };
                let (tool, call) = (&step.title, &step.id);
                let label = step.detail.as_ref().unwrap_or(tool);
                let data = json!({ "tool": tool, "label": label, "toolCallId": call, "status": status });
                out.event(Some(TOOL_PROGRESS), Some(&id()), &self.aside(data));
            }
            TurnEvent::Asked(asked) => {
                let asked = approvals::requested(&self.run, &asked);
                let mut data = self.aside(asked.clone());
                data["approval"] = asked;
                out.event(Some(approvals::REQUEST), Some(&id()), &data);
            }
            TurnEvent::Answered(answered) => {
                let answered = approvals::responded(&self.run, &answered);
                let mut data = self.aside(answered.clone());
                data["approval"] = answered;
                out.event(Some(approvals::RESPONDED), Some(&id()), &data);
            }
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

    fn end(&mut self, end: &TurnResult, is_told: bool, out: &mut SseBuffer) {
        let error = end.streamed_error();
        // No finish reason before an error: at `error` LiteLLM stops reading with words of its own, and clients with a
        // closed list of reasons do not know it.
        let finish = error.is_none().then(|| end.finish_reason());
        let mut last = self.delta(json!({}), finish);
        last["usage"] = end.usage();
        let text = (!is_told).then(|| out.long(&end.text));
        last["hermes"] = self.hermes(end, text);
        let Some(error) = error else { return out.event(None, Some(END), &last) };
        // The error is an event of its own: inside a chunk, the AI SDK drops it. Only the last of the two has an id, so
        // that a reader who lost the connection between them gets both again.
        out.event(None, None, &last);
        out.event(None, Some(END), &json!({ "error": error }));
    }

    fn close(&mut self, out: &mut SseBuffer) {
        out.raw(DONE);
    }
}
