//! `POST …/chat` and `POST …/chat/stream`: a turn in a session that is there.
//!
//! In the session of a room it waits behind the room's own turns, and they behind it; its words are remembered with
//! the room's. The room itself is shown nothing of it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::system_text;
use super::stream::SessionEvents;
use crate::agent::ModelParams;
use crate::server::begin::{AnswerMode, Asking, Begun, Which, begin, fingerprint};
use crate::server::body::Body;
use crate::server::content::{Content, Said, Spoken};
use crate::server::ended::{Ended, RunTokens};
use crate::server::frames::Frames;
use crate::server::heads::Heads;
use crate::server::path::SessionName;
use crate::server::{Caller, Problem, Server};
use crate::session::TurnId;

/// What is asked. Whatever else is sent is for other agents.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SessionChatRequest")]
pub struct ChatRequest {
    /// Text, or parts of which some are pictures.
    #[serde(default)]
    #[schemars(with = "Said", required)]
    pub message: Value,
    /// The same, as some clients call it.
    #[serde(default)]
    #[schemars(with = "Option<Said>")]
    pub input: Value,
    /// For the system message of this turn; not remembered.
    #[serde(default)]
    pub system_message: Option<String>,
    /// The same, as some clients call it.
    #[serde(default)]
    pub instructions: Option<String>,
}

/// The whole answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionCompletion")]
pub struct Completion {
    object: &'static str,
    session_id: String,
    run_id: String,
    message: Answer,
    /// Whether the agent said all it wanted.
    completed: bool,
    usage: RunTokens,
    /// Why the turn failed, if partial answers were asked for: `message` then has what there was of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// What the agent said.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionAnswer")]
struct Answer {
    role: &'static str,
    /// A long text is written while it is sent.
    #[schemars(with = "String")]
    content: Value,
}

/// The whole answer at once.
pub async fn chat(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    heads: Heads,
    body: Body<ChatRequest>,
) -> Result<Response, Problem> {
    let (Begun { follow, session }, _) = ask(&server, &caller, name, &heads, AnswerMode::Whole, body).await?;
    let run = follow.run.clone();
    let answer = follow.until_the_end(|end| match end.problem(&heads) {
        Some(problem) => problem.into_response(),
        None => {
            let mut frames = Frames::default();
            let content = frames.long(&end.text);
            frames.into_json(&Completion::new(session.clone(), &run, &end, content))
        }
    });
    let answer = answer.await;
    Ok(heads.name(answer, &session, &run))
}

/// The answer as it grows.
pub async fn chat_stream(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    heads: Heads,
    body: Body<ChatRequest>,
) -> Result<Response, Problem> {
    let (Begun { follow, session }, asked) =
        ask(&server, &caller, name, &heads, AnswerMode::Streamed, body).await?;
    let run = follow.run.clone();
    let events = SessionEvents::new(&session, &run, asked, server.live.clone(), heads.last_event.as_deref());
    Ok(heads.name(Ok(follow.stream(events)), &session, &run))
}

/// Begins the turn. Returns with it how the question is remembered.
async fn ask(
    server: &Arc<Server>,
    caller: &Caller,
    name: String,
    heads: &Heads,
    answer: AnswerMode,
    Body { bytes, value }: Body<ChatRequest>,
) -> Result<(Begun, String), Problem> {
    let spoken = spoken(value)?;
    let asked = spoken.now.remembered();
    let endpoint = if answer == AnswerMode::Streamed { "chat/stream" } else { "chat" };
    let asking = Asking {
        fingerprint: fingerprint(&address(&name, endpoint), bytes),
        session: Which::Existing(name),
        spoken,
        heads: heads.clone(),
        params: ModelParams::default(),
        answer,
    };
    Ok((begin(server, caller, asking).await?, asked))
}

/// The session is a part of what is asked: the same words elsewhere are another question.
fn address(name: &str, endpoint: &str) -> String {
    format!("/api/sessions/{name}/{endpoint}")
}

fn spoken(request: ChatRequest) -> Result<Spoken, Problem> {
    let ChatRequest { message, input, system_message, instructions } = request;
    let (message, at) = if message.is_null() { (input, "input") } else { (message, "message") };
    let now = Content::read(&message, at)?;
    if now.is_blank() {
        return Err(Problem::wrong("message", "There must be a message, and not an empty one"));
    }
    let system = system_text(system_message.or(instructions), "system_message")?;
    Ok(Spoken { system, history: Vec::new(), now })
}

impl Completion {
    fn new(session: String, run: &TurnId, end: &Ended, content: Value) -> Self {
        Self {
            object: "hermes.session.chat.completion",
            session_id: session,
            run_id: run.0.clone(),
            completed: end.status() == "completed",
            usage: end.usage_of_a_run(),
            error: end.error(),
            message: Answer { role: "assistant", content },
        }
    }
}
