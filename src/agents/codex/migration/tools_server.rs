//! Our own tools server in config.toml: its entry, and whether an entry is ours.
//!
//! Codex gets a tool once: of a server that stands in config.toml itself our tools server offers nothing. And it offers
//! only what the agents that read the file may have, also of servers that the configuration gets later.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toml_edit::{Document, Item, Table};

use super::config_file::ConfigFile;
use super::entry_name::{EntryName, SERVERS_KEY};
use super::managed_block::split_file;
use super::plain_value::{plain_item, plain_table};
use super::report::SkipReason;
use super::server_table::{inline_table, path_text, text_array};
use super::user_keys::UserKeys;
use crate::config::McpSelection;

/// Name of our own tools server in config.toml.
pub const TOOLS_SERVER: &str = "talaria";

/// The command of ours that is the server.
const COMMAND: &str = "mcp";

/// Argument that leaves out the tools of one MCP server.
const WITHOUT: &str = "--without-server=";

/// Argument that names the only MCP servers whose tools are offered, with commas between them.
const ONLY: &str = "--servers=";

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

impl ToolsServer {
    /// The arguments with which it offers the tools of these servers, but not of those that are `migrated`.
    pub(super) fn args(offered: &McpSelection, migrated: &[&str]) -> Vec<String> {
        let further = match offered {
            McpSelection::All => migrated.iter().map(|name| format!("{WITHOUT}{name}")).collect(),
            McpSelection::None => vec![ONLY.to_owned()],
            McpSelection::Some(names) => {
                let rest = names.iter().map(String::as_str).filter(|name| !migrated.contains(name));
                vec![format!("{ONLY}{}", rest.collect::<Vec<_>>().join(","))]
            }
        };
        [COMMAND.to_owned()].into_iter().chain(further).collect()
    }

    /// Its table, with these arguments. It finds the running gateway by the state folder.
    pub(super) fn table(&self, args: &[String]) -> Result<Table, SkipReason> {
        let mut table = Table::new();
        table["command"] = path_text(&self.program)?.into();
        table["args"] = text_array(args).into();
        let mut env = vec![("TALARIA_HOME", path_text(&self.home)?)];
        if let Some(config) = &self.config {
            env.push(("TALARIA_CONFIG", path_text(config)?));
        }
        table["env"] = inline_table(env).into();
        Ok(table)
    }

    /// The arguments with which our part of this folder's config.toml starts exactly this server; `None` if it does not,
    /// or if anything else of the file does under its name.
    pub fn written_args(&self, folder: &Path) -> Option<Vec<String>> {
        let file = ConfigFile::read(folder).ok()?;
        let split = split_file(str::from_utf8(&file.bytes).ok()?).ok()?;
        let entry = EntryName::Server(TOOLS_SERVER.to_owned());
        let theirs = Document::parse(split.rest).ok()?;
        if UserKeys::of(&theirs).clash(&entry).is_some() || !split.block.entries.contains(&entry) {
            return None;
        }
        let inner = Document::parse(split.block.inner).ok()?;
        let found = inner.as_table().get(SERVERS_KEY)?.get(TOOLS_SERVER)?;
        let args = found.get("args")?.as_array()?.iter().map(|value| value.as_str().map(str::to_owned));
        let args = args.collect::<Option<Vec<_>>>()?;
        let is_exact = plain_item(found) == plain_table(&self.table(&args).ok()?);
        (is_exact && are_own_args(&args)).then_some(args)
    }

    /// Whether codex' effective configuration, its result of `config/read`, starts exactly this server with these
    /// arguments. The file of a trusted project can replace the entry of ours.
    pub fn is_effective(&self, config_read: &Value, args: &[String]) -> bool {
        let Ok(table) = self.table(args) else { return false };
        let found = &config_read["config"][SERVERS_KEY][TOOLS_SERVER];
        let text = |key: &str| table.get(key).and_then(Item::as_str);
        let env = table.get("env").and_then(Item::as_inline_table);
        let env =
            env.into_iter().flatten().map(|(name, value)| (name.to_owned(), Value::from(value.as_str())));
        found["command"].as_str() == text("command")
            && found["args"] == Value::from(args)
            && found["env"] == Value::Object(env.collect())
            && found["url"].is_null()
    }
}

/// Whether these are arguments that we write.
fn are_own_args(args: &[String]) -> bool {
    match args {
        [command, further @ ..] if command == COMMAND => {
            further.iter().all(|arg| arg.starts_with(WITHOUT) || arg.starts_with(ONLY))
        }
        _ => false,
    }
}
