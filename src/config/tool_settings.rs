//! Settings of the tools that agents of kind `model` have, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{BaseUrl, Secret};
use crate::ids::AgentName;
// The rules stand below the configuration, and a reload changes the budget.
pub use crate::rules::BudgetConfig;

/// A tool of the small fixed set, by its name in the configuration and for models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuiltinTool {
    /// Reads a file of the workspace.
    ReadFile,
    /// Writes a whole file of the workspace.
    WriteFile,
    /// Replaces an exact text in a file of the workspace.
    EditFile,
    /// Searches the files of the workspace.
    SearchFiles,
    /// Runs a command in the workspace, if a person approves.
    Terminal,
    /// Keeps notes about a person or a room.
    Memory,
    /// Reads the operator's instructions for certain tasks.
    Skills,
}

impl BuiltinTool {
    /// All of them, in the order in which a model is told of them.
    pub const ALL: [Self; 7] = [
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::SearchFiles,
        Self::Terminal,
        Self::Memory,
        Self::Skills,
    ];

    /// The name in the configuration, on record and for models.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::SearchFiles => "search_files",
            Self::Terminal => "terminal",
            Self::Memory => "memory",
            Self::Skills => "skills",
        }
    }

    /// Whether the tool works in a workspace, and cannot be without one.
    pub fn needs_workspace(self) -> bool {
        match self {
            Self::ReadFile | Self::WriteFile | Self::EditFile | Self::SearchFiles | Self::Terminal => true,
            Self::Memory | Self::Skills => false,
        }
    }
}

impl fmt::Display for BuiltinTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The MCP servers whose tools an agent has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum McpSelection {
    /// No server.
    #[default]
    None,
    /// All configured servers.
    All,
    /// The servers with these names.
    Some(BTreeSet<String>),
}

impl McpSelection {
    /// Whether the agent has the tools of the server with this name.
    pub fn includes(&self, server: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(names) => names.contains(server),
        }
    }

    /// The servers of both.
    pub fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, only) | (only, Self::None) => only.clone(),
            (Self::Some(one), Self::Some(other)) => Self::Some(one | other),
        }
    }
}

/// `terminal:`, for the terminal of every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalConfig {
    /// Variables of our environment that commands get, beside the short list. Never a secret of ours.
    pub env_passthrough: Vec<String>,
    /// Whether a sandboxed command reaches the network.
    pub network: bool,
    /// Time limit of one command.
    pub timeout: Duration,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self { env_passthrough: Vec::new(), network: false, timeout: Duration::from_secs(120) }
    }
}

/// `mcp_servers.<name>:`, a server whose tools agents may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerConfig {
    /// The way to the server.
    pub transport: McpTransport,
    /// Whether the server may be started at all.
    pub enabled: bool,
    /// Time limit for starting the server and learning its tools.
    pub connect_timeout: Duration,
    /// Time limit of one tool call.
    pub timeout: Duration,
    /// Tools that are offered; `None` for all.
    pub include: Option<Vec<String>>,
    /// Tools that are never offered.
    pub exclude: Vec<String>,
    /// Whether each tool may be called, by its name at the server; tools that are not here are asked for.
    pub permissions: BTreeMap<String, ToolPermission>,
    /// Source of each value of `env` or `headers`, by its name: other programs are told where a secret is, and not
    /// the secret. Also has the variables that a server which is off lacks.
    pub origins: BTreeMap<String, ValueOrigin>,
}

/// Source of a value of `env` or `headers`, as the configuration file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The file holds the value.
    Literal,
    /// The file holds the value, and its name says that it is secret.
    SecretLiteral,
    /// A variable of our environment: `${NAME}`.
    Variable(String),
    /// A variable of our environment behind a word: `Bearer ${NAME}`.
    BearerVariable(String),
    /// Several parts, and a variable among them.
    Composed,
}

/// The way to an MCP server. `Debug` and `Display` count the arguments, because one may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A process of ours that speaks over its standard input and output.
    Stdio {
        /// The program: a path, or a name that is looked up in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it gets beside the short list.
        env: BTreeMap<String, Secret>,
        /// Its folder; `None` for the state folder's `mcp/<name>`.
        cwd: Option<PathBuf>,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// Its address.
        url: BaseUrl,
        /// Headers of every request.
        headers: BTreeMap<String, Secret>,
    },
}

/// Whether a tool may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolPermission {
    /// Without a question.
    Allow,
    /// If a person approves the call.
    #[default]
    Ask,
    /// Never; the model is not told of it.
    Deny,
}

/// `review:`, the background reviews of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewConfig {
    /// Turns of a session after which its conversation is reviewed for notes; 0 for never.
    pub memory: u32,
    /// Tool iterations of a session after which its conversation is reviewed for skills; 0 for never.
    pub skills: u32,
    /// The agent whose model does the review; `None` for the agent of the session itself.
    pub agent: Option<AgentName>,
}

impl Default for ReviewConfig {
    fn default() -> Self {
        Self { memory: 10, skills: 10, agent: None }
    }
}
