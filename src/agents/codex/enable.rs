//! Prepares codex for an agent that is switched to it: brings its config.toml up to date.
//!
//! A failure is part of the report and never keeps the agent from being switched: codex works without our entries.

mod plugin_list;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::binary::CodexBinary;
use super::environment::codex_environment;
use super::migration::{
    FileProblem, FinishedMigration, MigrationError, MigrationMode, MigrationReport, ToolsServer,
    WantedEntries, find_codex_home, migrate,
};
use crate::agents::process::ProcessHost;
use crate::config::{CodexConfig, Config, McpServerConfig};

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
}

/// A request to prepare codex for an agent.
#[derive(Clone, Debug)]
pub struct EnableRequest {
    /// The codex of the agent.
    pub codex: CodexConfig,
    /// Its program, which was found.
    pub binary: CodexBinary,
    /// Settings of ours that codex is given.
    pub sources: EnableSources,
    /// Whether codex' config.toml is written.
    pub mode: MigrationMode,
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
}

impl EnableSources {
    /// The settings of a configuration.
    pub fn new(config: &Config, host: Option<Arc<ProcessHost>>) -> Self {
        let (mcp_servers, home, file) =
            (config.mcp_servers.clone(), config.home.clone(), config.file.clone());
        Self { mcp_servers, home, file, host }
    }
}

/// Prepares codex for an agent. Takes a few seconds at most.
pub async fn enable(request: EnableRequest) -> EnableReport {
    let EnableRequest { codex, binary, sources, mode } = request;
    let Some(folder) = codex_folder(&codex) else {
        let errors = vec![MigrationError::File(FileProblem::NotAFile)];
        let migration = MigrationReport { errors, ..MigrationReport::default() };
        return EnableReport { file: None, block: String::new(), migration };
    };
    let plugins = match (&sources.host, codex.plugins) {
        (Some(host), true) => plugin_list::ask(host, &codex, &binary, &sources.home).await,
        (None, _) | (_, false) => None,
    };
    let tools_server = own_tools_server(&sources.home, sources.file.as_deref());
    let wanted = WantedEntries::of_agent(&codex, sources.mcp_servers, tools_server, plugins);
    let FinishedMigration { block, report } = migrate(folder.clone(), wanted, mode).await;
    EnableReport { file: Some(folder.join("config.toml")), block, migration: report }
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
    ToolsServer { program, home: home.to_owned(), config: file.map(Path::to_owned) }
}
