//! `POST …/chat` and `POST …/chat/stream`: runs a turn in an existing session.
//!
//! In the session of a room, the turn queues with the room's own turns, and its messages become part of the
//! room's history. The room itself is not shown any of it.

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
use crate::ids::TurnId;
use crate::server::body::JsonBody;
use crate::server::content::{ContentSchema, ParsedMessages, PromptContent};
use crate::server::headers::TurnHeaders;
use crate::server::path_params::SessionName;
use crate::server::sse::SseBuffer;
use crate::server::submit::{
    AnswerMode, SessionSelector, SubmittedTurn, TurnRequest, fingerprint, submit_turn,
};
use crate::server::turn_result::{RunTokens, TurnResult};
use crate::server::{ApiError, Caller, Server};

/// Body of a request for a turn. Other fields are ignored; other servers know them.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SessionChatRequest")]
pub struct ChatRequest {
    /// The prompt: text, or parts of which some are pictures.
    #[serde(default)]
    #[schemars(with = "ContentSchema", required)]
    pub message: Value,
    /// Other name of `message`, as some clients send it.
    #[serde(default)]
    #[schemars(with = "Option<ContentSchema>")]
    pub input: Value,
    /// Added to the system message of this turn; not stored in the history.
    #[serde(default)]
    pub system_message: Option<String>,
    /// Other name of `system_message`, as some clients send it.
    #[serde(default)]
    pub instructions: Option<String>,
    /// Name of the agent that answers; without it, the agent of the session. Any other name means the default agent.
    #[serde(default)]
    pub model: Option<String>,
}

/// The answer to a request without a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionCompletion")]
pub struct SessionCompletion {
    object: &'static str,
    session_id: String,
    run_id: String,
    message: SessionAnswer,
    /// Whether the agent finished its answer.
    completed: bool,
    usage: RunTokens,
    /// Why the turn failed, if the client accepts partial answers: `message` then has the partial text.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// The agent's message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionAnswer")]
struct SessionAnswer {
    role: &'static str,
    /// A long text is escaped while it is sent.
    #[schemars(with = "String")]
    content: Value,
}

/// `POST …/chat`: responds when the turn has ended.
pub async fn chat(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    turn_headers: TurnHeaders,
    body: JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let (SubmittedTurn { reader, session, .. }, _) =
        ask(&server, &caller, name, &turn_headers, AnswerMode::Whole, body).await?;
    let run = reader.run.clone();
    let answer = reader.until_the_end(|end| match end.problem(&turn_headers) {
        Some(problem) => problem.into_response(),
        None => {
            let mut frames = SseBuffer::default();
            let content = frames.long(&end.text);
            frames.into_json(&SessionCompletion::new(session.clone(), &run, &end, content))
        }
    });
    let answer = answer.await;
    Ok(turn_headers.name(answer, &session, &run))
}

/// `POST …/chat/stream`: responds with the turn as events.
pub async fn chat_stream(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
    turn_headers: TurnHeaders,
    body: JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let (SubmittedTurn { reader, session, .. }, asked) =
        ask(&server, &caller, name, &turn_headers, AnswerMode::Streamed, body).await?;
    let run = reader.run.clone();
    let events =
        SessionEvents::new(&session, &run, asked, server.live.clone(), turn_headers.last_event.as_deref());
    Ok(turn_headers.name(Ok(reader.stream(events)), &session, &run))
}

/// Submits the turn. Also returns the prompt as the history keeps it.
async fn ask(
    server: &Arc<Server>,
    caller: &Caller,
    name: String,
    turn_headers: &TurnHeaders,
    answer: AnswerMode,
    JsonBody { bytes, value }: JsonBody<ChatRequest>,
) -> Result<(SubmittedTurn, String), ApiError> {
    let session = SessionSelector::Existing(name.clone());
    let agent = server.agent_for(caller, value.model.as_deref(), &session).await;
    let spoken = spoken(value)?;
    let asked = spoken.now.remembered();
    let endpoint = if answer == AnswerMode::Streamed { "chat/stream" } else { "chat" };
    let turn_request = TurnRequest {
        fingerprint: fingerprint(&address(&name, endpoint), bytes),
        forge: None,
        session,
        agent,
        spoken,
        turn_headers: turn_headers.clone(),
        params: ModelParams::default(),
        answer,
    };
    Ok((submit_turn(server, caller, turn_request).await?, asked))
}

/// The session is part of the fingerprint: an equal body for another session is another request.
fn address(name: &str, endpoint: &str) -> String {
    format!("/api/sessions/{name}/{endpoint}")
}

fn spoken(request: ChatRequest) -> Result<ParsedMessages, ApiError> {
    let ChatRequest { message, input, system_message, instructions, model: _ } = request;
    let (message, at) = if message.is_null() { (input, "input") } else { (message, "message") };
    let now = PromptContent::read(&message, at)?;
    if now.is_blank() {
        return Err(ApiError::wrong("message", "There must be a message, and not an empty one"));
    }
    let system = system_text(system_message.or(instructions), "system_message")?;
    Ok(ParsedMessages { system, history: Vec::new(), now })
}

impl SessionCompletion {
    fn new(session: String, run: &TurnId, end: &TurnResult, content: Value) -> Self {
        Self {
            object: "hermes.session.chat.completion",
            session_id: session,
            run_id: run.0.clone(),
            completed: end.status() == "completed",
            usage: end.usage_of_a_run(),
            error: end.error(),
            message: SessionAnswer { role: "assistant", content },
        }
    }
}
