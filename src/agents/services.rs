//! Parts of the process that its agents share, beside the configuration of each.

use std::sync::Arc;

use super::acp::pool::AcpPool;
use super::codex::CodexServers;
use super::mcp::McpServers;
use super::process::{HiddenFiles, ProcessHost, memory_of};
use super::skills::SkillLibrary;
use super::tools::terminal::CommandSlots;
use crate::config::{Config, TerminalConfig};
use crate::store::Store;

/// Everything that agents with tools need of the process. One per process.
pub struct AgentServices {
    /// The database, for notes.
    pub store: Store,
    /// Starts processes.
    pub host: Arc<ProcessHost>,
    /// Servers whose tools agents may call.
    pub mcp: Arc<McpServers>,
    /// Codex processes of agents.
    pub codex: Arc<CodexServers>,
    /// Processes of agents of kind `acp`.
    pub acp: Arc<AcpPool>,
    /// The skills, shared with the chat command and the server.
    pub skills: Arc<SkillLibrary>,
    /// Settings of every terminal.
    pub terminal: TerminalConfig,
    /// Files and folders of ours that no command may see.
    pub hidden: HiddenFiles,
    /// Limits the commands of all agents together.
    pub command_slots: CommandSlots,
}

impl AgentServices {
    /// The parts for a configuration. Starts nothing.
    pub fn new(config: &Config, store: Store) -> Self {
        let host = Arc::new(ProcessHost::new(&config.home));
        let mcp = McpServers::new(&config.mcp_servers, host.clone(), config.home.clone());
        let services = Self {
            store,
            codex: CodexServers::new(host.clone(), &config.home, config.file.as_deref()),
            acp: AcpPool::new(host.clone(), config.forge.max_processes),
            host,
            mcp,
            skills: SkillLibrary::new(config.skills_dir.clone()),
            terminal: config.terminal.clone(),
            hidden: HiddenFiles::default(),
            command_slots: CommandSlots::default(),
        };
        services.hide_files_of(config);
        services
    }

    /// Hides everything of ours that a configuration names from the commands of all agents. Called again with each
    /// configuration that is read.
    pub fn hide_files_of(&self, config: &Config) {
        let ours = [Some(&config.home), config.file.as_ref()].into_iter().flatten();
        self.hidden.add(ours.chain(&config.secret_files).cloned());
    }
}

/// Number of processes of agents that are programs, and bytes of their memory with everything that they started. Looks at
/// every process of this user, so it may take some milliseconds.
pub fn count_agent_processes(acp: &AcpPool, codex: &CodexServers) -> (usize, i64) {
    let mut markers = acp.markers();
    markers.extend(codex.markers());
    (markers.len(), memory_of(&markers))
}
