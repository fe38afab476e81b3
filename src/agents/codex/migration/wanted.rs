//! Entries that config.toml should have, as the configuration wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use super::plugins::PluginListing;
use super::report::SkipReason;
use super::tools_server::ToolsServer;
use crate::agents::codex::codex_environment;
use crate::config::{AgentSettings, CodexConfig, McpSelection, McpServerConfig, ProfileSetting, ValueOrigin};
use crate::ids::AgentName;

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
    /// Those of them that need a variable which no codex would give them, with the reason to leave them out.
    pub out_of_reach: BTreeMap<String, SkipReason>,
    /// Our own tools server; `None` for `tools_server: false`.
    pub tools_server: Option<ToolsServer>,
    /// MCP servers whose tools ours offers, unless they are migrated.
    pub offered: McpSelection,
    /// Plugins that codex has installed.
    pub plugins: PluginChoice,
    /// The permission profile; `None` for `profile: none`.
    pub profile: Option<String>,
}

/// An agent whose codex reads the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedAgent {
    /// Name of the agent.
    pub name: AgentName,
    /// Its codex.
    pub codex: CodexConfig,
    /// MCP servers that it has.
    pub servers: McpSelection,
    /// It is a model that was switched, and has no keys for codex.
    pub is_switched: bool,
}

impl MigratedAgent {
    /// The agent with these settings; `None` if codex cannot run its turns.
    pub fn of(name: &AgentName, settings: &AgentSettings) -> Option<Self> {
        let (codex, servers, is_switched) = match settings {
            AgentSettings::Codex(codex) => (codex, McpSelection::All, false),
            AgentSettings::Model(model) => {
                let switch = model.switch.as_ref()?;
                (&switch.codex, switch.servers.clone(), true)
            }
            AgentSettings::Proxy(_) | AgentSettings::Acp(_) => return None,
        };
        Some(Self { name: name.clone(), codex: codex.clone(), servers, is_switched })
    }
}

impl WantedEntries {
    /// The entries for agents that share the file: everything that one of them wants. Of their profiles the first one is
    /// taken. `plugins` is `None` if codex did not tell them in time; it need not be asked if no agent wants any.
    pub fn of_agents(
        agents: &[MigratedAgent],
        mut servers: BTreeMap<String, McpServerConfig>,
        tools_server: ToolsServer,
        plugins: Option<PluginListing>,
    ) -> Self {
        servers.retain(|name, _| agents.iter().any(|agent| agent.servers.includes(name)));
        let with_tools = || agents.iter().filter(|agent| agent.codex.tools_server);
        Self {
            out_of_reach: out_of_reach(agents, &servers),
            servers,
            tools_server: with_tools().next().map(|_| tools_server),
            offered: with_tools().fold(McpSelection::None, |all, agent| all.or(&agent.servers)),
            plugins: match plugins {
                _ if !agents.iter().any(|agent| agent.codex.plugins) => PluginChoice::Off,
                Some(listing) => PluginChoice::Listed(listing),
                None => PluginChoice::Unknown,
            },
            profile: agents.iter().find_map(|agent| profile(&agent.codex.profile)),
        }
    }
}

/// The profile that the migration writes.
fn profile(setting: &ProfileSetting) -> Option<String> {
    match setting {
        ProfileSetting::Default => Some(DEFAULT_PROFILE.to_owned()),
        ProfileSetting::None => None,
        // Threads of ours have it anyway. The codex that the user runs in a terminal must not get it by us.
        ProfileSetting::Named(name) if name == FULL_ACCESS => None,
        ProfileSetting::Named(name) => Some(name.clone()),
    }
}

/// The servers that need a variable which the codex of no agent with that server has.
fn out_of_reach(
    agents: &[MigratedAgent],
    servers: &BTreeMap<String, McpServerConfig>,
) -> BTreeMap<String, SkipReason> {
    let environments: Vec<(&MigratedAgent, BTreeMap<OsString, OsString>)> =
        agents.iter().map(|agent| (agent, codex_environment(&agent.codex))).collect();
    let reason = |name: &str, config: &McpServerConfig| {
        let variables = variables(config);
        let users = || environments.iter().filter(|(agent, _)| agent.servers.includes(name));
        let mut missing = users().map(|(_, environment)| {
            variables.iter().find(|variable| !environment.contains_key(OsStr::new(variable)))
        });
        let first = missing.next()??.to_string();
        // One codex that can start the server is enough.
        let is_missing_everywhere = missing.all(|variable| variable.is_some());
        is_missing_everywhere.then(|| match users().all(|(agent, _)| agent.is_switched) {
            true => SkipReason::UnpassedSwitched(first),
            false => SkipReason::Unpassed(first),
        })
    };
    let enabled = servers.iter().filter(|(_, config)| config.enabled);
    enabled.filter_map(|(name, config)| Some((name.clone(), reason(name, config)?))).collect()
}

/// The variables that a server takes from the environment of codex.
fn variables(config: &McpServerConfig) -> BTreeSet<&str> {
    let variables = config.origins.values().filter_map(|origin| match origin {
        ValueOrigin::Variable(name) | ValueOrigin::BearerVariable(name) => Some(name.as_str()),
        ValueOrigin::Literal | ValueOrigin::SecretLiteral | ValueOrigin::Composed => None,
    });
    variables.collect()
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
