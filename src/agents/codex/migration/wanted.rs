//! Entries that config.toml should have, as the configuration wants them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::plugins::PluginListing;
use crate::config::{CodexConfig, McpServerConfig, ProfileSetting};

/// Name of our own tools server in config.toml.
pub const TOOLS_SERVER: &str = "talaria";

/// The permission profile that new threads begin with unless the configuration says otherwise: codex may write in the
/// folder of the thread, and asks for everything else.
pub const DEFAULT_PROFILE: &str = ":workspace";

/// Profiles that every codex has. A name that it does not know keeps it from starting.
pub(super) const BUILT_IN_PROFILES: [&str; 3] = [":read-only", DEFAULT_PROFILE, FULL_ACCESS];

/// The profile without a sandbox.
const FULL_ACCESS: &str = ":danger-full-access";

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

impl WantedEntries {
    /// The entries for an agent: these servers, and all else that its entry does not opt out of. `plugins` is `None` if
    /// codex did not tell them in time; it need not be asked if the entry wants none.
    pub fn of_agent(
        entry: &CodexConfig,
        servers: BTreeMap<String, McpServerConfig>,
        tools_server: ToolsServer,
        plugins: Option<PluginListing>,
    ) -> Self {
        Self {
            servers,
            tools_server: entry.tools_server.then_some(tools_server),
            plugins: match plugins {
                _ if !entry.plugins => PluginChoice::Off,
                Some(listing) => PluginChoice::Listed(listing),
                None => PluginChoice::Unknown,
            },
            profile: match &entry.profile {
                ProfileSetting::Default => Some(DEFAULT_PROFILE.to_owned()),
                ProfileSetting::None => None,
                // Threads of ours have it anyway. The codex that the user runs in a terminal must not get it by us.
                ProfileSetting::Named(name) if name == FULL_ACCESS => None,
                ProfileSetting::Named(name) => Some(name.clone()),
            },
        }
    }
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
