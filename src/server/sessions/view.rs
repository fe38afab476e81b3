//! JSON views of sessions and their messages. No other field of the store leaves the server.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::agent::{MessageRole, ToolActivity};
use crate::ids::HTTP;
use crate::server::sse::SseBuffer;
use crate::server::{Caller, Server};
use crate::store::{SeenSession, TranscriptRow};

/// `source` of sessions that programs began, as the reference implementation names it.
const PROGRAMS: &str = "api_server";

/// A page of sessions.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Sessions")]
pub struct SessionListing {
    pub object: &'static str,
    pub data: Vec<SessionView>,
    pub limit: usize,
    pub offset: usize,
    pub has_more: bool,
}

/// A single session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OneSession")]
pub struct SessionDetail {
    object: &'static str,
    session: SessionView,
}

/// A session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionView {
    id: String,
    /// Where it began: an account of a platform, or `api_server`.
    source: String,
    user_id: Option<String>,
    model: String,
    /// The title that was set, else the beginning of the first prompt; null while there is neither.
    title: Option<String>,
    started_at: i64,
    last_active: i64,
    ended_at: Option<i64>,
    end_reason: Option<String>,
    message_count: u64,
    tool_call_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// Always 0: our agents do not report these three.
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
    api_call_count: u64,
    parent_session_id: Option<String>,
    has_system_prompt: bool,
}

/// A page of messages.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionMessages")]
pub struct MessagePage {
    pub object: &'static str,
    pub session_id: String,
    pub data: Vec<MessageView>,
    pub offset: usize,
    /// Messages of the whole session.
    pub total: u64,
    pub has_more: bool,
}

/// One message of a session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionMessage")]
pub struct MessageView {
    /// Position in the session. The store's own number would reveal how much others write.
    id: usize,
    session_id: String,
    #[schemars(with = "String")]
    role: MessageRole,
    /// A long text is escaped while it is sent.
    #[schemars(with = "String")]
    content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<String>,
    /// The agent's reasoning before the message, if it told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    timestamp: Option<i64>,
}

/// Confirms that a session was deleted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionDeleted")]
pub struct DeletedSession {
    pub object: &'static str,
    pub id: String,
    pub deleted: bool,
}

impl SessionDetail {
    /// A session as this caller may see it.
    pub fn new(server: &Server, caller: &Caller, seen: SeenSession) -> Self {
        Self { object: "hermes.session", session: SessionView::new(server, caller, seen) }
    }
}

impl SessionView {
    /// A session as this caller may see it.
    pub fn new(server: &Server, caller: &Caller, seen: SeenSession) -> Self {
        Self {
            id: caller.name_of(&seen.id),
            source: if seen.account == HTTP { PROGRAMS.to_owned() } else { seen.account },
            user_id: None,
            model: seen.model.unwrap_or_else(|| server.settings.model.clone()),
            title: seen.title,
            started_at: seen.created,
            last_active: seen.used,
            ended_at: seen.ended,
            end_reason: seen.end_reason,
            message_count: seen.messages,
            tool_call_count: seen.tool_calls,
            input_tokens: seen.tokens.input,
            output_tokens: seen.tokens.output,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            reasoning_tokens: 0,
            api_call_count: seen.api_calls,
            parent_session_id: seen.parent.map(|parent| caller.name_of(&parent)),
            has_system_prompt: seen.has_system_prompt,
        }
    }
}

impl MessageView {
    /// The message at position `id`.
    pub fn new(session: &str, id: usize, said: TranscriptRow, frames: &mut SseBuffer) -> Self {
        let (mut tool_calls, mut tool_call_id, mut tool_name) = (None, None, None);
        match said.message.tools {
            Some(ToolActivity::Calls { tool_calls: calls }) => tool_calls = Some(calls),
            Some(ToolActivity::Result { tool_call_id: id, tool_name: name }) => {
                (tool_call_id, tool_name) = (Some(id), Some(name));
            }
            None => {}
        }
        Self {
            id,
            session_id: session.to_owned(),
            role: said.message.role,
            content: frames.long(&Arc::new(said.message.content)),
            tool_calls,
            tool_call_id,
            tool_name,
            reasoning: said.message.reasoning,
            timestamp: said.at,
        }
    }
}
