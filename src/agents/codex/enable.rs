//! Prepares codex for an agent: brings its config.toml up to date, which other agents may share.
//!
//! A failure is part of the report and never keeps the agent from being switched: codex works without our entries.

mod login;
mod plugin_list;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::binary::CodexBinary;
use super::environment::codex_environment;
use super::migration::{
    FileProblem, FinishedMigration, MigratedAgent, MigrationError, MigrationMode, MigrationOutcome,
    MigrationReport, PluginListing, ToolsServer, WantedEntries, find_codex_home, is_unmigrated, migrate,
};
use super::servers::CodexServers;
use crate::agents::process::ProcessHost;
use crate::config::{CodexConfig, Config, McpServerConfig};

pub use login::{lacks_login, read_config};

/// Ending of the path of a running program whose file was replaced, as Linux writes it.
const REPLACED: &str = " (deleted)";

/// Settings of ours that codex is given, and the means to ask it.
#[derive(Clone, Debug, Default)]
pub struct EnableSources {
    /// MCP servers whose tools agents have.
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The state folder.
    pub home: PathBuf,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Starts codex to ask for its plugins; without it they are not known.
    pub host: Option<Arc<ProcessHost>>,
    /// Codex processes that read the file again once it is written.
    pub running: Option<Arc<CodexServers>>,
}

/// A config.toml of codex, by the agents that read it.
#[derive(Clone, Debug)]
pub struct SharedCodexHome {
    /// The agent that is asked about.
    pub agent: MigratedAgent,
    /// The other agents whose turns codex runs with the same folder.
    pub others: Vec<MigratedAgent>,
    /// Settings of ours that codex is given.
    pub sources: EnableSources,
}

/// Report about codex' configuration.
#[derive(Clone, Debug)]
pub struct EnableReport {
    /// Path of codex' config.toml; `None` if codex has no folder.
    pub file: Option<PathBuf>,
    /// Our part of that file, with its markers.
    pub block: String,
    /// The result for each entry of ours.
    pub migration: MigrationReport,
    /// Codex says that it has no login, and it would answer with its own account.
    pub is_logged_out: bool,
}

impl EnableSources {
    /// The settings of a configuration.
    pub fn new(config: &Config, host: Option<Arc<ProcessHost>>) -> Self {
        let (mcp_servers, home, file) =
            (config.mcp_servers.clone(), config.home.clone(), config.file.clone());
        Self { mcp_servers, home, file, host, running: None }
    }
}

impl SharedCodexHome {
    /// The file of `agent`. `others` may have agents with another file, and the agent itself.
    pub fn new(
        agent: MigratedAgent,
        others: impl IntoIterator<Item = MigratedAgent>,
        sources: EnableSources,
    ) -> Self {
        let folder = codex_folder(&agent.codex);
        let shares = |other: &MigratedAgent| other.name != agent.name && codex_folder(&other.codex) == folder;
        let others = others.into_iter().filter(shares).collect();
        Self { agent, others, sources }
    }

    /// Brings the file up to date for its agents; `binary` is the codex that was found. Takes a few seconds at most.
    pub async fn enable(self, binary: &CodexBinary, mode: MigrationMode) -> EnableReport {
        let Some(folder) = codex_folder(&self.agent.codex) else {
            let errors = vec![MigrationError::File(FileProblem::NotAFile)];
            let migration = MigrationReport { errors, ..MigrationReport::default() };
            return EnableReport { file: None, block: String::new(), migration, is_logged_out: false };
        };
        let wants_plugins = self.agents().any(|agent| agent.codex.plugins);
        let plugins = match &self.sources.host {
            Some(host) if wants_plugins => {
                plugin_list::ask(host, &self.agent.codex, binary, &self.sources.home).await
            }
            Some(_) | None => None,
        };
        let FinishedMigration { block, report } = migrate(folder.clone(), self.wanted(plugins), mode).await;
        if let (MigrationOutcome::Written, Some(running)) = (report.outcome, &self.sources.running) {
            running.reload_configuration().await;
        }
        // Of the file as it is now.
        let is_logged_out = lacks_login(&self.agent.codex, binary).await;
        EnableReport { file: Some(folder.join("config.toml")), block, migration: report, is_logged_out }
    }

    /// Whether the file has nothing of ours yet, although there is something for it.
    pub async fn is_unmigrated(self) -> bool {
        match codex_folder(&self.agent.codex) {
            Some(folder) => is_unmigrated(folder, self.wanted(None)).await,
            None => false,
        }
    }

    /// The agents, first the one that is asked about.
    fn agents(&self) -> impl Iterator<Item = &MigratedAgent> {
        std::iter::once(&self.agent).chain(&self.others)
    }

    fn wanted(&self, plugins: Option<PluginListing>) -> WantedEntries {
        let EnableSources { mcp_servers, home, file, host: _, running: _ } = &self.sources;
        let agents: Vec<_> = self.agents().cloned().collect();
        let tools_server = own_tools_server(home, file.as_deref());
        WantedEntries::of_agents(&agents, mcp_servers.clone(), tools_server, plugins)
    }
}

/// The folder of codex' configuration, which the process of the agent uses too.
pub fn codex_folder(codex: &CodexConfig) -> Option<PathBuf> {
    let environment = codex_environment(codex);
    let variable = |name: &str| environment.get(OsStr::new(name)).map(|value| value.as_os_str());
    find_codex_home(codex.codex_home.as_deref(), variable("CODEX_HOME"), variable("HOME"))
}

/// Our tools server, as codex starts it.
pub fn own_tools_server(home: &Path, file: Option<&Path>) -> ToolsServer {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("talaria"));
    // An update replaces the file while we run; the next start of codex finds the new one there.
    let program = match program.to_str().and_then(|path| path.strip_suffix(REPLACED)) {
        Some(path) => PathBuf::from(path),
        None => program,
    };
    // codex starts it in another folder than ours.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    ToolsServer { program, home: absolute(home), config: file.map(absolute) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codex_finds_our_folder_from_any_other_one() {
        let ours = own_tools_server(Path::new("state"), Some(Path::new("talaria.yaml")));
        let here = std::env::current_dir().unwrap();
        assert_eq!((ours.home, ours.config), (here.join("state"), Some(here.join("talaria.yaml"))));
        let ours = own_tools_server(Path::new("/var/lib/talaria"), None);
        assert_eq!((ours.home, ours.config), (PathBuf::from("/var/lib/talaria"), None));
    }
}
