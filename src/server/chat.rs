//! `POST /v1/chat/completions`: what every client of this protocol asks.

mod request;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::request::ChatRequest;
use super::begin::{AnswerMode, Asking, Begun, Which, begin, fingerprint};
use super::body::Body;
use super::content::read_messages;
use super::ended::{Ended, Tokens};
use super::follow::{END, START, Shape};
use super::frames::Frames;
use super::heads::Heads;
use super::{Caller, Problem, Server, approvals, notices};
use crate::agent::{StepState, TurnEvent};
use crate::openai::wire::{DONE, TOOL_PROGRESS};
use crate::session::TurnId;
use crate::turns::log::Position;

/// The answer when it has not been asked for as it grows.
#[derive(Serialize, JsonSchema)]
pub struct Completion {
    id: String,
    object: &'static str,
    created: i64,
    model: String,
    choices: [Choice; 1],
    usage: Tokens,
    /// What became of the turn, if it is not whole; with its `error`, if it failed. Not beside `choices`: LiteLLM takes an
    /// `error` there for a failed request, and the client asked for the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    hermes: Option<Value>,
}

/// The one answer there is.
#[derive(Serialize, JsonSchema)]
struct Choice {
    index: u32,
    message: Answer,
    /// `stop`; `length` if it was cut or somebody stopped it; `error` if it failed and partial answers were asked for by
    /// `X-Talaria-Partial: true`. Otherwise a turn that failed is a 502.
    finish_reason: &'static str,
}

/// What the agent said.
#[derive(Serialize, JsonSchema)]
struct Answer {
    role: &'static str,
    /// A long text is written while it is sent.
    #[schemars(with = "String")]
    content: Value,
}

/// Runs a turn.
pub async fn complete(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    heads: Heads,
    Body { bytes, mut value }: Body<ChatRequest>,
) -> Result<Response, Problem> {
    let mut params = value.params()?.for_agent(&server.turns.agent())?;
    let ChatRequest { messages, model, stream, .. } = value;
    let asking = Asking {
        session: heads.session.clone().map_or(Which::Fresh, Which::Named),
        spoken: read_messages(&messages)?,
        heads: heads.clone(),
        params: params.take(),
        answer: if stream.unwrap_or_default() { AnswerMode::Streamed } else { AnswerMode::Whole },
        fingerprint: fingerprint("/v1/chat/completions", bytes),
    };
    // It may be large, and the answer may take long.
    drop(messages);
    let begun = begin(&server, &caller, asking).await?;
    let created = begun.asked_at(&server).await;
    let Begun { follow, session } = begun;
    let run = follow.run.clone();
    let chunks = Chunks {
        id: format!("chatcmpl-{run}"),
        created,
        model: model.unwrap_or_else(|| server.settings.model.clone()),
        run: run.clone(),
        session: session.clone(),
        before: None,
    };
    let answer = match stream.unwrap_or_default() {
        true => Ok(follow.stream(chunks)),
        false => follow.until_the_end(|end| chunks.answer(&end, &heads)).await,
    };
    Ok(params.tell(heads.name(answer, &session, &run)))
}

/// What stands in a delta after its text; before it stands what [`Chunks::before`] says.
const AFTER: &str = r#"},"finish_reason":null}]}"#;

/// The answer as the protocol has it.
struct Chunks {
    id: String,
    created: i64,
    model: String,
    run: TurnId,
    session: String,
    /// Made with the first delta.
    before: Option<String>,
}

impl Chunks {
    fn chunk(&self, choices: Value) -> Value {
        let Self { id, created, model, .. } = self;
        json!({ "id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices })
    }

    /// A delta up to its text; what comes after it is [`AFTER`].
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

    /// What became of the turn; with its whole text where that did not come as deltas.
    fn hermes(&self, end: &Ended, text: Option<Value>) -> Value {
        let mut hermes = json!({ "run_id": self.run.0, "session_id": self.session, "status": end.status() });
        if let Some(text) = text {
            hermes["text"] = text;
        }
        if let Some(reason) = end.reason() {
            hermes["reason"] = json!(reason);
        }
        hermes
    }

    /// A chunk without choices, so that a client that knows no such events does not stumble; with these fields.
    fn aside(&self, fields: Value) -> Value {
        let mut chunk = self.chunk(json!([]));
        if let (Value::Object(chunk), Value::Object(fields)) = (&mut chunk, fields) {
            for (name, value) in fields {
                chunk.entry(name).or_insert(value);
            }
        }
        chunk
    }

    /// The whole answer at once.
    fn answer(self, end: &Ended, heads: &Heads) -> Response {
        match end.problem(heads) {
            Some(problem) => problem.into_response(),
            None => {
                let mut frames = Frames::default();
                let completion = self.whole(end, frames.long(&end.text));
                frames.into_json(&completion)
            }
        }
    }

    fn whole(self, end: &Ended, content: Value) -> Completion {
        // Also of one that was stopped, which is no error: half an answer must not pass for a whole one.
        let hermes = (end.status() != "completed").then(|| {
            let mut hermes = self.hermes(end, None);
            if let Some(error) = end.error() {
                hermes["error"] = error;
            }
            hermes
        });
        let message = Answer { role: "assistant", content };
        Completion {
            id: self.id,
            object: "chat.completion",
            created: self.created,
            model: self.model,
            choices: [Choice { index: 0, message, finish_reason: end.finish_reason() }],
            usage: end.tokens(),
            hermes,
        }
    }
}

impl Shape for Chunks {
    fn begin(&mut self, out: &mut Frames) {
        out.event(None, Some(START), &self.delta(json!({ "role": "assistant", "content": "" }), None));
    }

    fn event(&mut self, event: TurnEvent<'_>, at: &Position, out: &mut Frames) {
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
                let data = json!({ "tool": tool, "label": tool, "toolCallId": call, "status": status });
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
            TurnEvent::Notice(None) | TurnEvent::Usage(_) | TurnEvent::Record(_) => {}
        }
    }

    fn end(&mut self, end: &Ended, is_told: bool, out: &mut Frames) {
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

    fn close(&mut self, out: &mut Frames) {
        out.raw(DONE);
    }
}
