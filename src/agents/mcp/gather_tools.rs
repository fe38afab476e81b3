//! Collects the tools of several servers, each under a name of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::mcp_tool::McpTool;
use super::server_actor::McpServer;
use super::tool_list::{ListedTool, ToolList};
use super::{McpTools, tool_names};
use crate::agents::tools::AgentTool;
use crate::config::ToolPermission;

/// The tools that a caller may have.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolFilter {
    /// All that the configuration does not forbid. Each server has its own time limit for a start.
    All,
    /// Only those that need no question.
    Allowed {
        /// Longest wait for a server.
        patience: Duration,
    },
}

impl ToolFilter {
    fn includes(self, tool: &ListedTool) -> bool {
        match self {
            Self::All => true,
            Self::Allowed { .. } => tool.permission == ToolPermission::Allow,
        }
    }
}

/// The tools of these servers, in a stable order. Starts those that do not run, all at once.
pub(super) async fn gather(servers: Vec<Arc<McpServer>>, filter: ToolFilter) -> McpTools {
    let mut tools = McpTools::default();
    let mut found = Vec::new();
    for (server, list) in join_all(servers.into_iter().map(|server| list_tools(server, filter))).await {
        match list {
            Ok(list) => {
                let left_out = list.left_out.iter();
                tools.problems.extend(left_out.map(|why| format!("MCP server `{}`: {why}.", server.name)));
                let included = list.tools.iter().filter(|tool| filter.includes(tool));
                found.extend(included.map(|tool| (server.clone(), tool.clone())));
            }
            Err(why) => {
                tools
                    .problems
                    .push(format!("The MCP server `{}` {why}. Its tools are missing.", server.name));
            }
        }
    }
    let names = tool_names::model_names(
        found.iter().map(|(server, tool)| (server.name.as_str(), tool.name.as_str())),
    );
    let made = found.into_iter().zip(names);
    tools.tools = made
        .map(|((server, tool), name)| Arc::new(McpTool::new(server, tool, name)) as Arc<dyn AgentTool>)
        .collect();
    tools
}

/// The tools of one server, or why there are none.
async fn list_tools(
    server: Arc<McpServer>,
    filter: ToolFilter,
) -> (Arc<McpServer>, Result<Arc<ToolList>, String>) {
    let listing = async {
        let connection = server.connection().await?;
        Ok(connection.tools(&server.config).await)
    };
    let list = match filter {
        ToolFilter::All => listing.await,
        ToolFilter::Allowed { patience } => {
            let listed = tokio::time::timeout(patience, listing).await;
            listed.unwrap_or_else(|_| Err("is still starting".to_owned()))
        }
    };
    (server, list)
}
