//! The configuration: read and checked completely before anything starts.
//!
//! `ConfigFile` is the file as written. [`Config`] is the result: every value is present, every address is in its
//! normal form, and the default agent is chosen. Between the two, the environment (a variable wins over its `_FILE`,
//! that over the file, and blank counts as unset) and the defaults are applied.
//!
//! Each fault is a [`ConfigError`] that names a key or a line and says what to do. Secrets never appear in errors or in
//! `Debug` output.

mod access_lint;
mod access_rules;
mod agents;
pub mod api_key;
mod client;
mod describe;
pub mod env;
mod file;
mod forge;
mod language;
mod mcp_servers;
mod paths;
mod platform;
mod resolve;
mod retention;
mod server;
mod tool_sections;
mod tool_settings;
mod workspace;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use talaria_platform::AccountId;

pub use agents::{
    AcpConfig, AgentSettings, AgentsConfig, ApprovalMode, CodexConfig, CodexPermissions, HomeSetting,
    ModelConfig, PermissionPolicy, ProfileSetting, ProxyConfig, SandboxMode, SwitchConfig, UpstreamTimeouts,
};
pub use client::ClientConfig;
pub use file::{StepsSetting, UpstreamSetting};
pub use forge::ForgeConfig;
pub use platform::PlatformConfig;
pub use retention::Retention;
pub use server::{NetworkReach, ServerConfig, WebOrigin};
pub use talaria_platform::config::url::{BaseUrl, UrlHost, is_private};
pub use talaria_platform::config::{ConfigError, Secret};
pub use tool_settings::{
    BudgetConfig, BuiltinTool, McpSelection, McpServerConfig, McpTransport, ReviewConfig, TerminalConfig,
    ToolPermission, ValueOrigin,
};
pub use workspace::{WorkspaceConflict, make_workspace, workspace_conflict};
// Kinds of platforms read their entries with these parts, too.
use talaria_platform::config::{document, secret, secret_sources, setting, suggest, url, value, yaml_lines};

use crate::rules::Rules;
use env::EnvReader;

/// Sources of a configuration, besides the environment.
#[derive(Clone, Debug)]
pub struct ConfigSources {
    /// The file named on the command line. It must exist.
    pub config: Option<PathBuf>,
    /// The folder that is looked into last; `.` but in tests, which have folders of their own.
    pub folder: PathBuf,
    /// Whether the command line asks for the agent server, which overrides `server.enabled`.
    pub serve: bool,
}

impl Default for ConfigSources {
    fn default() -> Self {
        Self { config: None, folder: PathBuf::from("."), serve: false }
    }
}

/// The complete configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it was read from; `None` when the embedded defaults hold.
    pub file: Option<PathBuf>,
    /// The state folder. It need not exist yet.
    pub home: PathBuf,
    /// The agents that answer.
    pub agents: AgentsConfig,
    /// MCP servers by name, whose tools agents may call.
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The folder of the skills. It need not exist yet.
    pub skills_dir: PathBuf,
    /// The background reviews of conversations.
    pub review: ReviewConfig,
    /// The terminal of every agent that has it.
    pub terminal: TerminalConfig,
    /// Settings that every turn uses, for all agents.
    pub turns: TurnConfig,
    /// The chat accounts. Empty: a chat in the terminal.
    pub platforms: BTreeMap<AccountId, PlatformConfig>,
    /// The agent server, if there is to be one.
    pub server: Option<ServerConfig>,
    /// Sessions with agents that other programs run over HTTP.
    pub forge: ForgeConfig,
    /// Look of answers in rooms.
    pub display: DisplayConfig,
    /// Retention of stored conversations.
    pub store: Retention,
    /// The part that a reload may change: access, budgets, and the texts for rooms.
    pub rules: Rules,
    /// The filter of the log, checked.
    pub log: String,
    /// Files that keys were read from. Tools of agents must not reach them.
    pub secret_files: Vec<PathBuf>,
    /// Settings that are allowed but probably not meant; one sentence each, for the log and for `talaria check`.
    pub warnings: Vec<String>,
}

/// Settings that every turn uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnConfig {
    /// The operator's text for the system message; empty for none.
    pub context_prompt: String,
    /// Whether the system message also says where the agent is and with whom.
    pub names: bool,
    /// Whether the agent gets files that are neither text nor pictures.
    pub files: bool,
    /// Most earlier messages that are sent with a prompt.
    pub history_messages: usize,
    /// Most bytes of earlier messages that are sent with a prompt.
    pub history_bytes: usize,
    /// Time for which a turn that provably did not run is tried again; zero for never.
    pub retry_for: Duration,
    /// Time for which a prompt that was piped in is tried again. Short, because the script waits for each answer.
    pub retry_scripts_for: Duration,
}

/// Look of answers in rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayConfig {
    /// Display of running tools.
    pub steps: StepsSetting,
    /// Most edits of one answer while it grows.
    pub edits: usize,
    /// Whether a reaction on each question shows its progress.
    pub reactions: bool,
}

/// Finds only the state folder, for commands that must work even if the configuration file is wrong.
pub fn home(env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
    paths::home(EnvReader::new(env), std::env::consts::OS)
}

impl Config {
    /// Finds, reads and checks everything. `env` looks a variable up, usually [`env::process`]; only
    /// those of [`env::table`] are asked for. The list of errors is never empty.
    pub fn load(
        sources: &ConfigSources,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigError>> {
        let env = EnvReader::new(env);
        let mut errors = Vec::new();
        let home = paths::home(env, std::env::consts::OS).map_err(|error| errors.push(error)).ok();
        let read = paths::document(sources, env, home.as_deref()).and_then(|document| {
            let file =
                document.as_ref().map(document::ConfigDocument::parse).transpose()?.unwrap_or_default();
            Ok((document, file))
        });
        // A file that cannot be read hides what it says, so the rest would be judged wrongly.
        let (document, file) = match read {
            Ok(read) => read,
            Err(error) => {
                errors.push(error);
                return Err(errors);
            }
        };
        // Without one there is an error already, and nobody sees what is resolved.
        let folder = home.clone().unwrap_or_default();
        let resolved = resolve::resolve(file, document.as_ref(), env, &folder, sources.serve)
            .map_err(|more| errors.extend(more))
            .ok();
        match (home, resolved) {
            (Some(home), Some(resolved)) => Ok(Self {
                file: document.map(|document| document.path().to_owned()),
                home,
                agents: resolved.agents,
                mcp_servers: resolved.mcp_servers,
                skills_dir: resolved.skills_dir,
                review: resolved.review,
                terminal: resolved.terminal,
                turns: resolved.turns,
                platforms: resolved.platforms,
                server: resolved.server,
                forge: resolved.forge,
                display: resolved.display,
                store: resolved.store,
                rules: resolved.rules,
                log: resolved.log,
                secret_files: resolved.secret_files,
                warnings: resolved.warnings,
            }),
            _ => Err(errors),
        }
    }

    /// Secrets that the log masks, except those of platforms.
    pub fn secrets(&self) -> Vec<Secret> {
        let server = self.server.as_ref().and_then(|server| server.key.clone());
        let keys = self.agents.secrets().chain(server).chain(self.forge.admin_token.clone());
        keys.chain(self.mcp_servers.values().flat_map(McpServerConfig::secrets)).collect()
    }
}
