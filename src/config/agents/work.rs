//! Keys of an agent of kind `model` about its tools, its folder and its limits.
//!
//! An entry beside the shorthand `agent` has these keys too, so they are read apart from those of the server.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::RuntimeSetting;
use super::model::ModelConfig;
use super::runtime::SwitchConfig;
use crate::config::ConfigError;
use crate::config::document::ConfigDocument;
use crate::config::resolve::ConfigResolver;
use crate::config::suggest::closest;
use crate::config::tool_settings::{BuiltinTool, McpSelection};
use crate::config::value::{TimeSpan, WholeNumber};

/// Most rounds of tool calls in one turn, unless the entry says otherwise.
pub(super) const DEFAULT_ITERATIONS: u32 = 50;

/// Time limit of one turn, unless the entry says otherwise.
pub(super) const DEFAULT_TURN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Most models of one agent. `/model` lists them in one message.
const MOST_MODELS: usize = 50;

/// Most characters of a model's name.
const LONGEST_MODEL: usize = 128;

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct WorkSection {
    /// Further models that `/model` offers. Default: none.
    models: Option<Vec<String>>,
    /// The folder that its tools work in. Default: none.
    workspace: Option<String>,
    /// Its tools. Default: none.
    tools: Option<Vec<String>>,
    /// Tokens that the model can read at once. Default: not known.
    context_tokens: Option<WholeNumber<1_000, 100_000_000>>,
    /// Most rounds of tool calls in one turn. Default: 50.
    max_iterations: Option<WholeNumber<1, 500>>,
    /// Time limit of one turn. Default: `30m`.
    turn_timeout: Option<TimeSpan<1>>,
    /// What runs its turns: itself (`auto`) or `codex_app_server`. Default: `auto`.
    runtime: Option<RuntimeSetting>,
}

impl WorkSection {
    /// The keys, for readers that leave them out.
    pub(in crate::config) const KEYS: [&str; 7] =
        ["models", "workspace", "tools", "context_tokens", "max_iterations", "turn_timeout", "runtime"];
}

/// An entry of `tools`.
enum ToolEntry {
    Builtin(BuiltinTool),
    EveryServer,
    Server(String),
}

impl ConfigResolver<'_> {
    /// Adds these keys of `agents.<name>` to a model.
    pub(super) fn add_work(
        &mut self,
        document: &ConfigDocument,
        name: &str,
        written: WorkSection,
        config: &mut ModelConfig,
    ) {
        self.add_models(name, written.models, config);
        if written.runtime.is_some() {
            config.switch = SwitchConfig::of(name, &config.url, written.runtime, self.home).map(Box::new);
        }
        config.workspace = self.folder(&["agents", name, "workspace"], written.workspace.clone());
        let errors_before = self.errors.len();
        let has_tools = written.tools.is_some();
        for tool in written.tools.unwrap_or_default() {
            match self.tool_entry(name, &tool) {
                Some(ToolEntry::Builtin(tool)) => _ = config.tools.insert(tool),
                Some(ToolEntry::EveryServer) => config.mcp = McpSelection::All,
                Some(ToolEntry::Server(server)) => match &mut config.mcp {
                    McpSelection::All => {}
                    McpSelection::Some(servers) => _ = servers.insert(server),
                    McpSelection::None => config.mcp = McpSelection::Some([server].into()),
                },
                None => {}
            }
        }
        let tool = config.tools.iter().find(|tool| tool.needs_workspace());
        match (tool, written.workspace.is_some_and(|folder| !folder.trim().is_empty())) {
            (Some(tool), false) => {
                let place = document.place(&["agents", name, "tools"]);
                self.errors.push(
                    ConfigError::new(format!(
                        "`agents.{name}.tools` has `{tool}`, which needs a `workspace` {place}"
                    ))
                    .hint("add the folder that the agent may work in, such as `workspace: /srv/agent`"),
                );
            }
            // Codex works in it too.
            (None, true) if self.errors.len() == errors_before && config.switch.is_none() => {
                self.warnings.push(format!(
                    "`agents.{name}.workspace` has no effect, because no tool of the agent works in it"
                ))
            }
            (Some(_), true) | (None, true | false) => {}
        }
        config.context_tokens = written.context_tokens.and_then(|tokens| u64::try_from(tokens.0).ok());
        if let Some(iterations) = written.max_iterations {
            config.max_iterations = u32::try_from(iterations.0).unwrap_or(DEFAULT_ITERATIONS);
        }
        if let Some(span) = written.turn_timeout {
            config.turn_timeout = span.0;
        }
        if let Some(switch) = &mut config.switch {
            switch.codex.cwd.clone_from(&config.workspace);
            if has_tools {
                switch.servers.clone_from(&config.mcp);
            }
            switch.codex.turn_timeout = written.turn_timeout.map_or(switch.codex.turn_timeout, |span| span.0);
        }
    }

    fn add_models(&mut self, name: &str, written: Option<Vec<String>>, config: &mut ModelConfig) {
        let written = written.unwrap_or_default();
        let wrong = |model: &String| {
            let model = model.trim();
            model.is_empty() || model.chars().count() > LONGEST_MODEL || model.contains(char::is_control)
        };
        if written.len() > MOST_MODELS || written.iter().any(wrong) {
            let place = self.place(&["agents", name, "models"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`agents.{name}.models` must be at most {MOST_MODELS} names of at most {LONGEST_MODEL} \
                     characters{place}"
                ))
                .hint("write the names that the server knows its models by, such as `[llama3.2, qwen3]`"),
            );
        }
        for model in written {
            let model = model.trim();
            if !config.models.iter().any(|known| known == model) {
                config.models.push(model.to_owned());
            }
        }
    }

    /// Reads an entry of `tools`. `None` only with an error. An unknown name is not shown: it may be a key in the wrong
    /// place.
    fn tool_entry(&mut self, name: &str, written: &str) -> Option<ToolEntry> {
        let written = written.trim();
        if let Some(tool) = BuiltinTool::ALL.into_iter().find(|tool| tool.name() == written) {
            return Some(ToolEntry::Builtin(tool));
        }
        if written == "mcp" {
            if self.mcp_names.is_empty() {
                self.warnings.push(format!(
                    "`agents.{name}.tools` has `mcp`, but there are no servers in `mcp_servers`"
                ));
            }
            return Some(ToolEntry::EveryServer);
        }
        if let Some(server) = written.strip_prefix("mcp.")
            && self.mcp_names.contains(server)
        {
            return Some(ToolEntry::Server(server.to_owned()));
        }
        let known: BTreeSet<String> = (BuiltinTool::ALL.into_iter().map(|tool| tool.name().to_owned()))
            .chain(["mcp".to_owned()])
            .chain(self.mcp_names.iter().map(|server| format!("mcp.{server}")))
            .collect();
        let place = self.place(&["agents", name, "tools"]);
        let what = match written.strip_prefix("mcp.") {
            Some(_) => {
                format!("`agents.{name}.tools` names a server that `mcp_servers` does not have{place}")
            }
            None => format!("`agents.{name}.tools` names a tool that does not exist{place}"),
        };
        let near = closest(written, known.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let known: Vec<_> = known.iter().map(|tool| format!("`{tool}`")).collect();
                format!("the tools are {}; `mcp.NAME` stands for a server of `mcp_servers`", known.join(", "))
            }
        };
        self.errors.push(ConfigError::new(what).hint(hint));
        None
    }
}
