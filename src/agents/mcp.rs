//! Tools of MCP servers, for agents of kind `model`.
//!
//! All agents share one [`McpServers`]. A server is started when a turn first needs its tools, is used by all turns over
//! one connection, and is ended when nobody has called it for a while. Its failure costs its tools and nothing else: the
//! model is told, operators see it as the server's state, and the next turn after a pause tries again.

mod connection;
mod gather_tools;
mod guarded_transport;
mod http_client;
mod mcp_tool;
mod open_link;
mod server_actor;
mod server_state;
mod tool_list;
mod tool_names;
mod tool_result;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use self::gather_tools::ToolFilter;
use self::server_actor::{McpServer, ServerContext};
use super::process::ProcessHost;
use super::tools::AgentTool;
use crate::config::{McpSelection, McpServerConfig};
use crate::i18n::LocalizedText;

pub use server_actor::McpPacing;
pub use server_state::{McpFailure, McpFailureKind, McpServerState, McpServerStatus};

/// Longest wait for the end of all servers: both pauses of an ordered end, and a moment.
const END: Duration = Duration::from_secs(6);

/// The MCP servers of the configuration. One per process.
pub struct McpServers {
    servers: RwLock<BTreeMap<String, Arc<McpServer>>>,
    context: ServerContext,
}

/// Tools for one turn.
#[derive(Default)]
pub struct McpTools {
    /// Tools that the model may call, each with a name of its own.
    pub tools: Vec<Arc<dyn AgentTool>>,
    /// Servers whose tools are missing, and why; one sentence each, for the model and the log.
    pub problems: Vec<String>,
}

/// The MCP servers whose tools a program outside is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFilter {
    /// Only these; `None` for all.
    pub only: Option<Vec<String>>,
    /// Not these.
    pub without: Vec<String>,
}

impl ServerFilter {
    fn offers(&self, server: &str) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| name == server);
        self.only.as_deref().is_none_or(is_named) && !is_named(&self.without)
    }
}

impl McpServers {
    /// The servers of a configuration. Starts none of them. `home` is the state folder.
    pub fn new(
        config: &BTreeMap<String, McpServerConfig>,
        host: Arc<ProcessHost>,
        home: PathBuf,
    ) -> Arc<Self> {
        Self::with_pacing(config, host, home, McpPacing::default())
    }

    /// The servers of a configuration, with times of the caller's choice.
    pub fn with_pacing(
        config: &BTreeMap<String, McpServerConfig>,
        host: Arc<ProcessHost>,
        home: PathBuf,
        pacing: McpPacing,
    ) -> Arc<Self> {
        let context = ServerContext { host, home, pacing, tasks: TaskTracker::new() };
        let servers = Self { servers: RwLock::default(), context };
        servers.replace(config);
        Arc::new(servers)
    }

    /// Takes another configuration, after a reload. Servers that did not change go on; the others are ended, and calls
    /// that run on them fail.
    pub fn replace(&self, config: &BTreeMap<String, McpServerConfig>) {
        let mut servers = self.servers.write();
        let next = config.iter().map(|(name, config)| {
            let before = servers.get(name);
            let server = match before {
                Some(before) if before.config == *config => before.clone(),
                Some(_) | None => {
                    let before = before.map(Arc::as_ref);
                    McpServer::new(name.clone(), config.clone(), self.context.clone(), before)
                }
            };
            (name.clone(), server)
        });
        let next: BTreeMap<_, _> = next.collect();
        for (name, before) in servers.iter() {
            if !next.get(name).is_some_and(|server| Arc::ptr_eq(server, before)) {
                before.stop();
            }
        }
        *servers = next;
    }

    /// Tools of these servers, in a stable order. Starts the servers that do not run, all at once, and waits for each at
    /// most for its `connect_timeout`. May be dropped at any time: a start goes on for the next turn.
    pub async fn tools_for(&self, servers: &[String]) -> McpTools {
        let mut tools = McpTools::default();
        let mut named = Vec::new();
        for name in servers {
            match self.servers.read().get(name) {
                Some(server) if named.iter().any(|other| Arc::ptr_eq(other, server)) => {}
                Some(server) => named.push(server.clone()),
                None => tools.problems.push(format!("There is no MCP server `{name}` in the configuration.")),
            }
        }
        let gathered = gather_tools::gather(named, ToolFilter::All).await;
        tools.problems.extend(gathered.problems);
        McpTools { tools: gathered.tools, ..tools }
    }

    /// Tools that may be called without a question, of all enabled servers that have some and that `filter` offers.
    /// With a `name`, only servers whose tools may be called so. Starts these servers, and leaves out the ones that are
    /// not ready within `patience`; their start goes on.
    pub async fn tools_without_asking(
        &self,
        name: Option<&str>,
        filter: &ServerFilter,
        patience: Duration,
    ) -> McpTools {
        let servers: Vec<_> = {
            let servers = self.servers.read();
            let chosen = servers.values().filter(|server| {
                server.allows_some()
                    && filter.offers(&server.name)
                    && name.is_none_or(|name| tool_names::may_be_of(name, &server.name))
            });
            chosen.cloned().collect()
        };
        gather_tools::gather(servers, ToolFilter::Allowed { patience }).await
    }

    /// Names of the enabled servers that an agent uses.
    pub fn selected(&self, selection: &McpSelection) -> Vec<String> {
        let servers = self.servers.read();
        let used =
            servers.values().filter(|server| server.config.enabled && selection.includes(&server.name));
        used.map(|server| server.name.clone()).collect()
    }

    /// Names of the servers that [`replace`](Self::replace) would add, change or remove.
    pub fn changes(&self, config: &BTreeMap<String, McpServerConfig>) -> Vec<String> {
        let servers = self.servers.read();
        let names: BTreeSet<_> = servers.keys().chain(config.keys()).collect();
        let differs = |name: &&String| servers.get(*name).map(|server| &server.config) != config.get(*name);
        names.into_iter().filter(differs).cloned().collect()
    }

    /// One line about each server that an agent uses, for a room.
    pub fn state_lines(&self, selection: &McpSelection) -> Vec<LocalizedText> {
        let used = self.status().into_iter().filter(|status| selection.includes(&status.name));
        used.map(|status| status.room_line()).collect()
    }

    /// The state of every server, by name. Must not wait.
    pub fn status(&self) -> Vec<McpServerStatus> {
        self.servers.read().values().map(|server| server.status()).collect()
    }

    /// Ends every server in order, and waits for that. Nothing can be started afterwards.
    pub async fn end(&self) {
        self.servers.read().values().for_each(|server| server.stop());
        self.context.tasks.close();
        if tokio::time::timeout(END, self.context.tasks.wait()).await.is_err() {
            tracing::warn!("not every MCP server ended in time");
        }
    }
}
