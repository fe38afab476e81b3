//! Tools of the running gateway for `talaria mcp`: lists them, and calls one.
//!
//! A call may take long, so these routes have time limits of their own. A client that goes away ends its call.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{HandlerResult, RawRequest, read};
use crate::agents::mcp::ServerFilter;
use crate::agents::outside_tools::{OutsideTool, OutsideTools};
use crate::agents::tools::{ToolFailure, ToolSpec};

/// Longest call. The limit of the tool's server (`mcp_servers.<name>.timeout`) is usually much shorter.
pub const CALL: Duration = Duration::from_secs(15 * 60);

/// Largest request in bytes: the arguments of a call, which may hold a file.
pub const CALL_BYTES: usize = 1024 * 1024;

/// Calls at a time, of all clients together. Fewer than the connections of the socket, so that commands and health
/// checks are answered beside them.
const CALLS: usize = super::CONNECTIONS / 2;

/// `POST /tools`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsRequest {
    /// MCP servers whose tools are offered.
    pub servers: ServerFilter,
}

/// Response to `POST /tools`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsList {
    /// In a stable order.
    pub tools: Vec<ToolView>,
}

/// A tool, in [`ToolsList`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolView {
    /// Name to call it by.
    pub name: String,
    /// Its job, for a model.
    pub description: String,
    /// JSON schema of the arguments, an object.
    pub parameters: Map<String, Value>,
    /// Whether it is known to change nothing.
    pub is_read_only: bool,
}

/// `POST /tools/call`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// Name of the tool.
    pub name: String,
    /// Arguments, as a model wrote them.
    pub arguments: Map<String, Value>,
    /// MCP servers whose tools are offered.
    pub servers: ServerFilter,
}

/// Response to `POST /tools/call`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// Result or reason of the failure, for a model.
    pub text: String,
    /// Whether the call failed.
    pub failed: bool,
}

/// Routes about tools.
pub(super) fn routes() -> Router<Arc<ControlState>> {
    Router::new()
        .route("/tools", post(list))
        .route("/tools/call", post(call))
        .layer(Extension(Arc::new(Semaphore::new(CALLS))))
        .layer(from_fn(in_time))
        .layer(DefaultBodyLimit::max(CALL_BYTES))
}

/// Handles a request in this task, unlike other commands: a call that nobody waits for ends.
async fn in_time(request: Request, next: Next) -> Response {
    let slow = || {
        let message = format!("the tool gave no answer within {} minutes", CALL.as_secs() / 60);
        CommandError::new(
            StatusCode::GATEWAY_TIMEOUT,
            message,
            "it is not known whether the call had an effect",
        )
    };
    let answered = tokio::time::timeout(CALL, next.run(request)).await;
    answered.unwrap_or_else(|_| slow().into_response())
}

async fn list(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<ToolsList> {
    let ToolsRequest { servers } = read(asked)?;
    let tools = match tools_of(&control)? {
        Some(tools) => tools.list(&servers).await,
        None => Vec::new(),
    };
    Ok(Json(ToolsList { tools: tools.into_iter().map(ToolView::from).collect() }))
}

async fn call(
    State(control): State<Arc<ControlState>>,
    Extension(free): Extension<Arc<Semaphore>>,
    asked: RawRequest,
) -> HandlerResult<CallResult> {
    let CallRequest { name, arguments, servers } = read(asked)?;
    let Ok(_permit) = free.try_acquire() else {
        return Err(CommandError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("talaria runs {CALLS} calls of tools already"),
            "try again when some of them have ended",
        ));
    };
    tracing::debug!(tool = name, "a tool is called from outside");
    let called = match tools_of(&control)? {
        Some(tools) => tools.call(&name, &arguments, &servers).await,
        None => Err(ToolFailure::failed("there are no tools")),
    };
    let (text, failed) = match called {
        Ok(text) => (text, false),
        Err(ToolFailure::Failed(words)) => (words, true),
        Err(ToolFailure::Halt(_) | ToolFailure::Stopped) => ("the call was stopped".to_owned(), true),
    };
    Ok(Json(CallResult { text, failed }))
}

/// The tools of the running gateway; `None` only in tests.
fn tools_of(control: &ControlState) -> Result<Option<OutsideTools>, CommandError> {
    let running = control.running()?;
    Ok(running.services.as_deref().map(OutsideTools::new))
}

impl From<OutsideTool> for ToolView {
    fn from(tool: OutsideTool) -> Self {
        let ToolSpec { name, description, parameters } = tool.spec;
        let parameters = match parameters {
            Value::Object(parameters) => parameters,
            // Every specification has an object; nothing else would be a schema of arguments.
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        Self { name, description, parameters, is_read_only: tool.is_read_only }
    }
}
