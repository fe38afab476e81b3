//! Resolves the sections about tools that all agents share: `skills_dir`, `review`, `terminal` and `budget`. Also checks
//! the folders that tools work in, once all settings are known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use talaria_platform::{AccountId, RoomId};

use super::agents::{AgentSettings, AgentsConfig};
use super::env;
use super::mcp_servers::{is_variable, shown_variable};
use super::resolve::{ConfigResolver, filled};
use super::tool_settings::{
    BudgetConfig, BuiltinTool, McpSelection, McpServerConfig, ReviewConfig, TerminalConfig,
};
use super::value::{TimeSpan, WholeNumber};
use super::workspace::{WorkspaceConflict, absolute_folder, workspace_conflict};
use super::{ConfigError, ModelConfig};
use crate::ids::AgentName;
use crate::rules::{AccountRules, AgentRuntime, Rules};

/// Most tokens of a budget. Far beyond use, and within a number of 32 bits.
const MOST_TOKENS: usize = 4_000_000_000;

/// `review:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReviewSection {
    /// Turns of a session after which its conversation is reviewed for notes; 0 for never. Default: 10.
    memory: Option<WholeNumber<0, 10_000>>,
    /// Tool iterations of a session after which its conversation is reviewed for skills; 0 for never. Default: 10.
    skills: Option<WholeNumber<0, 10_000>>,
    /// The agent whose model does the review. Default: the agent of the session itself.
    agent: Option<String>,
}

/// `terminal:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalSection {
    /// Variables of our environment that commands get, beside the short list. Default: none.
    env_passthrough: Option<Vec<String>>,
    /// Whether a sandboxed command reaches the network. Default: `false`.
    network: Option<bool>,
    /// Time limit of one command. Default: `120s`.
    timeout: Option<TimeSpan<1>>,
}

/// `budget:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSection {
    /// Most tokens a day of one person, or one app, with all agents together. Default: no limit.
    person: Option<WholeNumber<1, MOST_TOKENS>>,
    /// Most tokens a day of all people together with one agent. Default: no limit.
    agent: Option<WholeNumber<1, MOST_TOKENS>>,
}

impl BudgetSection {
    pub(super) fn resolve(self) -> BudgetConfig {
        let tokens = |written: Option<WholeNumber<1, MOST_TOKENS>>| {
            written.and_then(|tokens| u64::try_from(tokens.0).ok())
        };
        BudgetConfig { person: tokens(self.person), agent: tokens(self.agent) }
    }
}

impl ConfigResolver<'_> {
    /// A folder as a person wrote it, as an absolute path. A relative path begins in the current folder, as all paths of
    /// the file do. `None` if none is written, or with an error.
    pub(super) fn folder(&mut self, path: &[&str], written: Option<String>) -> Option<PathBuf> {
        let written = filled(written)?;
        match absolute_folder(&written) {
            Ok(folder) => Some(folder),
            Err((what, hint)) => {
                let place = self.place(path);
                self.errors.push(ConfigError::new(format!("`{}` {what}{place}", path.join("."))).hint(hint));
                None
            }
        }
    }

    /// The folder of the skills.
    pub(super) fn skills_dir(&mut self, written: Option<String>) -> PathBuf {
        let path = ["skills_dir"];
        let Some(folder) = self.folder(&path, written) else { return self.home.join("skills") };
        // It may lie in the state folder, as the default does, but not the other way round.
        let what = match workspace_conflict(self.home, [folder.as_path()]) {
            Some(WorkspaceConflict::Inside(_)) => "is the state folder or contains it".to_owned(),
            _ => match workspace_conflict(&folder, []) {
                Some(conflict) => conflict.to_string(),
                None => return folder,
            },
        };
        let place = self.place(&path);
        self.errors.push(
            ConfigError::new(format!("`skills_dir` {what}{place}"))
                .hint("name a folder of its own for the skills, or leave the key out"),
        );
        folder
    }

    /// `review`. The agent is looked up only if `is_complete`: otherwise one may be missing that has errors of its own.
    pub(super) fn review(
        &mut self,
        written: ReviewSection,
        agents: &AgentsConfig,
        is_complete: bool,
    ) -> ReviewConfig {
        let default = ReviewConfig::default();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        ReviewConfig {
            memory: written.memory.map_or(default.memory, |turns| count(turns.0)),
            skills: written.skills.map_or(default.skills, |turns| count(turns.0)),
            agent: filled(written.agent)
                .filter(|_| is_complete)
                .and_then(|name| self.review_agent(&name, agents)),
        }
    }

    fn review_agent(&mut self, written: &str, agents: &AgentsConfig) -> Option<AgentName> {
        let path = ["review", "agent"];
        let name = AgentName::new(written);
        match name.as_ref().and_then(|name| agents.entries.get(name)) {
            Some(AgentSettings::Model(model)) => {
                let keeps = [BuiltinTool::Memory, BuiltinTool::Skills];
                if !keeps.iter().any(|tool| model.tools.contains(tool)) {
                    self.warnings.push(format!(
                        "`review.agent` names `{written}`, which has neither `memory` nor `skills` in its `tools`: it can keep \
                         nothing, so no conversation is reviewed"
                    ));
                }
                name
            }
            Some(AgentSettings::Proxy(_) | AgentSettings::Codex(_) | AgentSettings::Acp(_)) => {
                let place = self.place(&path);
                let models: Vec<_> = models(agents).map(|(name, _)| format!("`{name}`")).collect();
                let hint = match models.is_empty() {
                    true => "leave the key out; there is no agent of kind `model`".to_owned(),
                    false => format!("agents of kind `model` are {}", models.join(", ")),
                };
                self.errors.push(
                    ConfigError::new(format!("`review.agent` names an agent without a model of ours{place}"))
                        .hint(hint),
                );
                None
            }
            None => {
                self.unknown_agent(&path, written, agents);
                None
            }
        }
    }

    /// `terminal`.
    pub(super) fn terminal(&mut self, written: TerminalSection) -> TerminalConfig {
        let default = TerminalConfig::default();
        TerminalConfig {
            env_passthrough: self.variable_names(&["terminal", "env_passthrough"], written.env_passthrough),
            network: written.network.unwrap_or(default.network),
            timeout: written.timeout.map_or(default.timeout, |span| span.0),
        }
    }

    /// Names of variables that a process gets.
    pub(super) fn variable_names(&mut self, path: &[&str], written: Option<Vec<String>>) -> Vec<String> {
        let key = path.join(".");
        let mut names: Vec<String> = Vec::new();
        for name in written.unwrap_or_default() {
            let name = name.trim();
            if !is_variable(name) {
                let place = self.place(path);
                self.errors.push(
                    ConfigError::new(format!("`{key}` holds what cannot be the name of a variable{place}")).hint(
                        "write names alone, such as `[LANG, HTTPS_PROXY]`; there are no patterns and no values",
                    ),
                );
                continue;
            }
            if env::table().any(|var| var.secret && var.name == name) {
                let name = shown_variable(name).unwrap_or("a variable");
                self.warnings.push(format!(
                    "`{key}` lists `{name}`, which never passes: it is a secret of Talaria's own"
                ));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Refuses workspaces that reach files of ours. Runs last, when all files that hold keys are known.
    pub(super) fn check_workspaces(&mut self, agents: &AgentsConfig, rules: &Rules, skills_dir: &Path) {
        let config = self.document.map(|document| document.path().to_owned());
        let mut ours = vec![self.home.to_owned(), skills_dir.to_owned()];
        ours.extend(config.into_iter().chain(self.secret_files.iter().cloned()));
        // Each session of an agent that is a program has a folder of its own in there, and writes nothing beside it.
        let own = [self.home.join("codex"), self.home.join("acp")];
        let of_agent = |(name, settings): (&AgentName, &AgentSettings)| {
            let folders = settings.workspaces().into_iter();
            let path = |key: &str| ["agents", name.as_str(), key].map(str::to_owned).to_vec();
            folders.map(|(key, folder)| (path(key), folder.to_owned())).collect::<Vec<_>>()
        };
        let of_account = |(account, rules): (&AccountId, &Arc<AccountRules>)| {
            let rooms: BTreeMap<_, _> = rules.places.iter().collect();
            let path = |room: &RoomId| {
                ["platforms", account.as_str(), "places", room.as_str(), "folder"].map(str::to_owned).to_vec()
            };
            let folders =
                rooms.into_iter().filter_map(|(room, place)| Some((path(room), place.folder.clone()?)));
            folders.collect::<Vec<_>>()
        };
        let accounts: BTreeMap<_, _> = rules.accounts.iter().collect();
        let of_accounts = accounts.into_iter().flat_map(of_account);
        let folders: Vec<_> = agents.entries.iter().flat_map(of_agent).chain(of_accounts).collect();
        for (path, folder) in folders {
            if own.iter().any(|own| folder.starts_with(own)) {
                continue;
            }
            let Some(conflict) = workspace_conflict(&folder, ours.iter().map(PathBuf::as_path)) else {
                continue;
            };
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            let (key, place) = (path.join("."), self.place(&path));
            self.errors.push(
                ConfigError::new(format!("`{key}` {conflict}{place}")).hint(match conflict {
                    WorkspaceConflict::Root | WorkspaceConflict::Inside(_) => {
                        "the tools of the agent could change Talaria itself; name a folder of its own, such as \
                         `/srv/agent`"
                    }
                    WorkspaceConflict::Contains(_) => {
                        "the tools of the agent could read it and change it; name another folder, or move that file"
                    }
                    WorkspaceConflict::BrokenLink | WorkspaceConflict::NoFolder => {
                        "name a folder; one that is missing is made at the start"
                    }
                }),
            );
        }
    }

    /// Warns about servers that no agent uses, and about agents that name a server that is off.
    pub(super) fn check_servers(
        &mut self,
        agents: &AgentsConfig,
        servers: &BTreeMap<String, McpServerConfig>,
    ) {
        for (server, config) in servers {
            if config.enabled && !agents.entries.values().any(|agent| has_server(agent, server)) {
                self.warnings.push(format!(
                    "`mcp_servers.{server}` is used by no agent; add `mcp.{server}` to the `tools` of one"
                ));
            }
            for (name, model) in models(agents).filter(|_| !config.enabled) {
                if let McpSelection::Some(names) = &model.mcp
                    && names.contains(server)
                {
                    self.warnings.push(format!(
                        "`agents.{name}.tools` has `mcp.{server}`, but that server is off (`enabled: false`)"
                    ));
                }
            }
        }
    }
}

/// Whether an agent has the tools of a server, as it is configured.
fn has_server(agent: &AgentSettings, server: &str) -> bool {
    match agent {
        AgentSettings::Model(model) => {
            let switch =
                model.switch.as_ref().filter(|switch| switch.runtime == AgentRuntime::CodexAppServer);
            model.mcp.includes(server) || switch.is_some_and(|switch| switch.servers.includes(server))
        }
        // `talaria codex on` gives it all of them.
        AgentSettings::Codex(_) => true,
        AgentSettings::Proxy(_) | AgentSettings::Acp(_) => false,
    }
}

/// The agents of kind `model`.
fn models(agents: &AgentsConfig) -> impl Iterator<Item = (&AgentName, &ModelConfig)> {
    agents.entries.iter().filter_map(|(name, settings)| match settings {
        AgentSettings::Model(model) => Some((name, model)),
        AgentSettings::Proxy(_) | AgentSettings::Codex(_) | AgentSettings::Acp(_) => None,
    })
}
