//! One tool of an MCP server, as the loop of an agent calls it.

use std::sync::Arc;

use serde_json::{Map, Value};
use talaria_platform::BoxFuture;

use super::connection::{ConnectionUse, RequestFailure};
use super::server_actor::McpServer;
use super::tool_list::ListedTool;
use crate::agent::{AnswerForm, Ask};
use crate::agents::tools::approval::approve;
use crate::agents::tools::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result};
use crate::config::ToolPermission;
use crate::util::one_line;

/// Characters of the line that shows a call.
const SUBJECT: usize = 120;

/// A tool of a server.
pub(super) struct McpTool {
    server: Arc<McpServer>,
    tool: ListedTool,
    spec: ToolSpec,
}

impl McpTool {
    /// `model_name` is unique among the tools of the agent.
    pub(super) fn new(server: Arc<McpServer>, tool: ListedTool, model_name: String) -> Self {
        let about = match tool.description.trim() {
            "" => String::new(),
            description => format!(" {description}"),
        };
        let spec = ToolSpec {
            name: model_name,
            // The words after the first sentence are the server's own.
            description: format!("Tool `{}` of the MCP server `{}`.{about}", tool.name, server.name),
            parameters: tool.schema.clone(),
        };
        Self { server, tool, spec }
    }

    async fn run(&self, call: ToolCall<'_>) -> Result<String, ToolFailure> {
        match self.tool.permission {
            ToolPermission::Allow => {}
            ToolPermission::Ask => self.ask(&call).await?,
            ToolPermission::Deny => return Err(self.failed("may not be called; the operator forbids it")),
        }
        let connection = tokio::select! {
            connection = self.connection() => connection?,
            () = call.stop.cancelled() => return Err(ToolFailure::Stopped),
        };
        let progress = |line: &str| (call.progress)(&self.server.mask.hide(line));
        let called = connection.call(
            &self.tool.name,
            call.arguments,
            self.server.config.timeout,
            &progress,
            call.stop,
        );
        match called.await {
            Ok(answer) if answer.is_error => {
                Err(ToolFailure::failed(cap_result(self.server.mask.hide(&answer.text))))
            }
            Ok(answer) => Ok(cap_result(self.server.mask.hide(&answer.text))),
            Err(RequestFailure::Stopped) => Err(ToolFailure::Stopped),
            Err(RequestFailure::Failed(words)) => Err(self.failed(&self.server.mask.hide(&words))),
            Err(RequestFailure::Gone) => {
                let why = self.server.lost_reason().await.map(|why| format!(" ({why})")).unwrap_or_default();
                let words =
                    format!("was lost during the call{why}. It is not known whether the call had an effect");
                Err(self.failed(&words))
            }
        }
    }

    /// A connection on which a call has begun.
    async fn connection(&self) -> Result<ConnectionUse, ToolFailure> {
        // The second round is for a connection that was ended, because nobody used it, at this very moment.
        for _ in 0..2 {
            let connection = self.server.connection().await.map_err(|why| self.failed(&why))?;
            if let Some(begun) = connection.begin() {
                return Ok(begun);
            }
        }
        Err(self.failed("was just ended; try again"))
    }

    async fn ask(&self, call: &ToolCall<'_>) -> Result<(), ToolFailure> {
        let arguments = serde_json::to_string_pretty(call.arguments).unwrap_or_default();
        let ask = Ask {
            title: format!("{}: {}", one_line(&self.server.name, 60), one_line(&self.tool.name, 60)).into(),
            // Quoted, so that no name can pass for the next line.
            detail: format!("MCP {} {}\n{arguments}", quoted(&self.server.name), quoted(&self.tool.name)),
            cwd: None,
            is_elsewhere: false,
            reason: None,
            form: AnswerForm::default(),
            gap: None,
        };
        approve(call, ask, "The call").await
    }

    /// A failure in words that follow the server's name.
    fn failed(&self, words: &str) -> ToolFailure {
        ToolFailure::failed(format!("The MCP server `{}` {words}.", self.server.name))
    }
}

fn quoted(name: &str) -> Value {
    Value::String(name.to_owned())
}

impl AgentTool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        let values = arguments.values().map(|value| match value {
            Value::String(text) => one_line(text, SUBJECT),
            other => one_line(&other.to_string(), SUBJECT),
        });
        one_line(&values.collect::<Vec<_>>().join(" "), SUBJECT)
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(self.run(call))
    }
}
