//! Entries that config.toml should have, as the configuration wants them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::plugins::PluginListing;
use crate::config::McpServerConfig;

/// Name of our own tools server in config.toml.
pub const TOOLS_SERVER: &str = "talaria";

/// The permission profile that new threads begin with unless the configuration says otherwise: codex may write in the
/// folder of the thread, and asks for everything else.
pub const DEFAULT_PROFILE: &str = ":workspace";

/// Profiles that every codex has. A name that it does not know keeps it from starting.
pub(super) const BUILT_IN_PROFILES: [&str; 3] = [":read-only", DEFAULT_PROFILE, ":danger-full-access"];

/// The entries that config.toml should have. The caller leaves out what the configuration opts out of.
#[derive(Clone, Debug, Default)]
pub struct WantedEntries {
    /// MCP servers that codex may use, by name.
    pub servers: BTreeMap<String, McpServerConfig>,
    /// Our own tools server; `None` for `tools_server: false`.
    pub tools_server: Option<ToolsServer>,
    /// Plugins that codex has installed.
    pub plugins: PluginChoice,
    /// The permission profile; `None` for `profile: none`.
    pub profile: Option<String>,
}

/// The way in which codex starts our own tools server: `talaria mcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsServer {
    /// Our program.
    pub program: PathBuf,
    /// The state folder, which holds the control socket.
    pub home: PathBuf,
    /// The configuration file, if there is one.
    pub config: Option<PathBuf>,
}

/// Plugins for config.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PluginChoice {
    /// No plugins: `plugins: false`.
    #[default]
    Off,
    /// codex told its plugins.
    Listed(PluginListing),
    /// codex did not tell them in time. Those that we wrote before stay.
    Unknown,
}
