//! MCP servers as an agent's loop uses them: the tools of a turn, calls with a person who answers, and no process left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use talaria::agents::mcp::{McpPacing, McpServerState, McpServers, McpTools};
use talaria::agents::process::{ProcessHost, count_children};
use talaria::agents::tools::{AgentTool, ToolCall, ToolFailure};
use talaria::config::{BaseUrl, McpServerConfig, McpTransport, Secret, ToolPermission};
use tempfile::TempDir;

use super::person::{Person, turn};

/// Longest wait. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A state folder with servers.
pub struct McpScene {
    home: TempDir,
    pub servers: Arc<McpServers>,
}

impl McpScene {
    pub fn new<'a>(servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>) -> Self {
        Self::with_pacing(servers, McpPacing::default())
    }

    pub fn with_pacing<'a>(
        servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>,
        pacing: McpPacing,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let host = ProcessHost::new(home.path()).with_shim(env!("CARGO_BIN_EXE_talaria"));
        let config = named(servers);
        let servers = McpServers::with_pacing(&config, Arc::new(host), home.path().to_owned(), pacing);
        Self { home, servers }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Takes another configuration.
    pub fn reloads<'a>(&self, servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>) {
        self.servers.replace(&named(servers));
    }

    /// The tools of all these servers.
    pub async fn offers(&self, servers: &[&str]) -> McpTools {
        let servers: Vec<String> = servers.iter().map(|name| (*name).to_owned()).collect();
        tokio::time::timeout(PATIENCE, self.servers.tools_for(&servers)).await.expect("never an endless wait")
    }

    /// Calls a tool of the only server, `s`, with the approval of a person.
    pub async fn calls(&self, tool: &str, arguments: Value) -> Result<String, ToolFailure> {
        self.calls_with(tool, arguments, &Person::allowing()).await
    }

    /// Calls a tool of the server `s`; this person answers.
    pub async fn calls_with(
        &self,
        tool: &str,
        arguments: Value,
        person: &Person,
    ) -> Result<String, ToolFailure> {
        let offered = self.offers(&["s"]).await;
        let name = format!("mcp_s_{tool}");
        let Some(tool) = offered.tools.iter().find(|offered| offered.spec().name == name) else {
            panic!("{name} is not offered: {:?} {:?}", names(&offered), offered.problems);
        };
        tokio::time::timeout(PATIENCE, call(&**tool, arguments, person)).await.expect("the call ends")
    }

    /// State of the only server.
    pub fn state(&self) -> McpServerState {
        self.servers.status().remove(0).state
    }

    /// Number of processes that run, with their shims.
    pub fn children(&self) -> usize {
        count_children(self.home())
    }

    /// Waits until this holds.
    pub async fn comes_to(&self, wanted: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !wanted(self) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it comes to that");
    }

    /// Ends all servers; afterwards no process of them is left.
    pub async fn ends(&self) {
        self.servers.end().await;
        assert_eq!(self.children(), 0, "no process is left");
    }
}

fn named<'a>(
    servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>,
) -> BTreeMap<String, McpServerConfig> {
    servers.into_iter().map(|(name, config)| (name.to_owned(), config)).collect()
}

/// Names of tools for the model.
pub fn names(offered: &McpTools) -> Vec<String> {
    offered.tools.iter().map(|tool| tool.spec().name).collect()
}

/// A server that is a process.
pub fn stdio(command: impl Into<String>, args: &[&str], env: &[(&str, &str)]) -> McpServerConfig {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), Secret::from((*value).to_owned())));
    config(McpTransport::Stdio {
        command: command.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: env.collect(),
        cwd: None,
    })
}

/// A server behind an address.
pub fn http(url: &str, headers: &[(&str, &str)]) -> McpServerConfig {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::from((*value).to_owned())));
    config(McpTransport::Http { url: BaseUrl::parse(url).unwrap(), headers: headers.collect() })
}

fn config(transport: McpTransport) -> McpServerConfig {
    McpServerConfig {
        transport,
        enabled: true,
        connect_timeout: Duration::from_secs(30),
        timeout: Duration::from_secs(30),
        include: None,
        exclude: Vec::new(),
        permissions: BTreeMap::new(),
        origins: BTreeMap::new(),
    }
}

/// The configuration with this permission for a tool.
pub fn permits(mut config: McpServerConfig, tool: &str, permission: ToolPermission) -> McpServerConfig {
    config.permissions.insert(tool.to_owned(), permission);
    config
}

/// A server whose folder this is.
pub fn placed(mut config: McpServerConfig, folder: PathBuf) -> McpServerConfig {
    if let McpTransport::Stdio { cwd, .. } = &mut config.transport {
        *cwd = Some(folder);
    }
    config
}

/// Calls a tool as the loop does.
pub async fn call(tool: &dyn AgentTool, arguments: Value, person: &Person) -> Result<String, ToolFailure> {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).unwrap();
    let progress = |line: &str| person.progress.lock().push(line.to_owned());
    let call = ToolCall {
        arguments: &arguments,
        turn: &turn(),
        out: person,
        progress: &progress,
        stop: &person.stop,
    };
    tool.call(call).await
}
