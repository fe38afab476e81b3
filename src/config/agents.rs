//! The agents by name, from the section `agents` and from the shorthands `gateway` and `agent`.
//!
//! A new kind of agent is a file beneath this one that reads its entry, a variant of [`AgentSettings`], and a line in
//! `KINDS`.

mod access;
mod acp;
mod codex;
mod entry;
mod model;
mod proxy;
mod runtime;
mod shorthand;
mod timeouts;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

pub use acp::{AcpConfig, HomeSetting};
pub use codex::{ApprovalMode, CodexConfig, CodexPermissions, PermissionPolicy, ProfileSetting, SandboxMode};
pub use model::ModelConfig;
pub use proxy::ProxyConfig;
pub use runtime::SwitchConfig;
pub use timeouts::UpstreamTimeouts;

use super::document::ConfigDocument;
use super::file;
use super::mcp_servers::masked_values;
use super::resolve::{ConfigResolver, GivenValue, filled};
use super::suggest::closest;
use super::yaml_lines::KeyedMapping;
use super::{BaseUrl, BuiltinTool, ConfigError, Secret};
use crate::access::AgentAccess;
use crate::ids::AgentName;
use crate::rules::{AgentPolicy, AgentRules, Rules};
pub(super) use access::AgentAccessSection;
pub(super) use runtime::RuntimeSetting;
pub(super) use timeouts::TimeoutsSection;
pub(super) use work::WorkSection;
#[cfg(test)]
pub(super) use {
    acp::AcpSection,
    codex::{CodexPermissionsSection, CodexSection},
    model::ModelSection,
    proxy::ProxySection,
};

/// The agents by name, and which of them answers where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsConfig {
    /// The agent that answers unless another is named; [`AgentName::guide`] while none is configured.
    pub default: AgentName,
    /// The configured agents.
    pub entries: BTreeMap<AgentName, AgentSettings>,
    /// The agent that answers while `proxy` is away.
    pub fallback: Option<AgentName>,
}

/// The settings of one agent, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSettings {
    /// A remote agent server.
    Proxy(ProxyConfig),
    /// A model behind a model server.
    Model(ModelConfig),
    /// A `codex app-server` of this machine.
    Codex(CodexConfig),
    /// A program of this machine that speaks the Agent Client Protocol.
    Acp(AcpConfig),
}

/// A kind of agent, as far as the configuration must know it.
struct EntryKind {
    /// The word after `kind:`.
    name: &'static str,
    /// Reads the keys of an entry that are its kind's own. `None` only with an error.
    read: fn(&mut ConfigResolver<'_>, &ConfigDocument, &str) -> Option<AgentSettings>,
}

/// The kinds that an entry can have.
const KINDS: &[EntryKind] = &[proxy::KIND, model::KIND, codex::KIND, acp::KIND];

impl AgentsConfig {
    /// The settings of the default agent; `None` if that is the guide.
    pub fn default_entry(&self) -> Option<&AgentSettings> {
        self.entries.get(&self.default)
    }

    /// The default agent in words, and who answers while it is away.
    pub fn describe_default(&self) -> String {
        self.describe(&self.default)
    }

    /// One agent in words, and who answers while it is away.
    pub fn describe(&self, name: &AgentName) -> String {
        let Some(settings) = self.entries.get(name) else {
            return "none configured: a built-in guide answers and says what to set".to_owned();
        };
        match self.fallback.as_ref().filter(|_| *name == AgentName::proxy()) {
            Some(other) => format!("{settings}; while it is away, {}", self.describe(other)),
            None => settings.to_string(),
        }
    }

    /// The addresses that the agents ask.
    pub fn urls(&self) -> impl Iterator<Item = &BaseUrl> {
        self.entries.values().filter_map(|settings| match settings {
            AgentSettings::Proxy(proxy) => Some(&proxy.url),
            AgentSettings::Model(model) => Some(&model.url),
            AgentSettings::Codex(_) | AgentSettings::Acp(_) => None,
        })
    }

    /// The keys that the agents send, and the values of variables that may be keys.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> {
        self.entries.values().flat_map(|settings| -> Vec<Secret> {
            match settings {
                AgentSettings::Proxy(proxy) => proxy.key.iter().cloned().collect(),
                AgentSettings::Model(model) => model.key.iter().cloned().collect(),
                AgentSettings::Codex(codex) => masked_values(&codex.env).collect(),
                AgentSettings::Acp(acp) => masked_values(&acp.env).collect(),
            }
        })
    }

    /// The configured names, for a hint.
    fn names(&self) -> String {
        let names: Vec<_> = self.entries.keys().map(|name| format!("`{name}`")).collect();
        match names.is_empty() {
            true => "no agent is configured".to_owned(),
            false => format!("the agents are {}", names.join(", ")),
        }
    }
}

impl AgentSettings {
    /// Settings for handing the agent to codex; `None` for an agent that cannot be switched.
    pub fn switch(&self) -> Option<&SwitchConfig> {
        match self {
            Self::Model(model) => model.switch.as_deref(),
            Self::Proxy(_) | Self::Codex(_) | Self::Acp(_) => None,
        }
    }

    /// Whether the agent can work in a folder that is made for a session. A model can while codex runs its turns.
    pub fn can_take_folder(&self) -> bool {
        match self {
            Self::Codex(_) | Self::Acp(_) => true,
            Self::Model(_) => self.switch().is_some(),
            Self::Proxy(_) => false,
        }
    }

    /// The codex that runs turns of the agent, or may be told to.
    pub fn codex(&self) -> Option<&CodexConfig> {
        match self {
            Self::Codex(codex) => Some(codex),
            Self::Model(model) => model.switch.as_ref().map(|switch| &switch.codex),
            Self::Proxy(_) | Self::Acp(_) => None,
        }
    }

    /// The folders that its tools work in, and the keys that name them.
    pub(super) fn workspaces(&self) -> Vec<(&'static str, &Path)> {
        match self {
            Self::Proxy(_) => Vec::new(),
            Self::Model(model) => {
                model.workspace.as_deref().map(|folder| ("workspace", folder)).into_iter().collect()
            }
            Self::Codex(codex) => {
                let own = codex.cwd.as_deref().map(|folder| ("cwd", folder));
                own.into_iter().chain([("workspace", codex.workspace.as_path())]).collect()
            }
            Self::Acp(acp) => {
                let own = acp.cwd.as_deref().map(|folder| ("cwd", folder));
                own.into_iter().chain([("workspace", acp.workspace.as_path())]).collect()
            }
        }
    }

    /// Access list of an agent whose entry has no `access`. An agent that runs commands acts on the machine, so it is for
    /// admins.
    fn default_access(&self) -> AgentAccess {
        match self {
            Self::Proxy(_) => AgentAccess::everybody(),
            Self::Model(model) if model.tools.contains(&BuiltinTool::Terminal) => AgentAccess::default(),
            Self::Model(_) => AgentAccess::everybody(),
            Self::Codex(_) | Self::Acp(_) => AgentAccess::default(),
        }
    }
}

impl fmt::Display for AgentSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(proxy) => proxy.fmt(f),
            Self::Model(model) => model.fmt(f),
            Self::Codex(codex) => codex.fmt(f),
            Self::Acp(acp) => acp.fmt(f),
        }
    }
}

impl ConfigResolver<'_> {
    /// Resolves all agents, and the rules about them. On errors the result is a stand-in that nobody sees.
    pub(super) fn agents(
        &mut self,
        gateway: file::GatewaySection,
        agent: file::AgentSection,
        written: BTreeMap<String, Option<KeyedMapping<file::AgentEntrySection>>>,
        default_agent: Option<String>,
    ) -> (AgentsConfig, AgentRules) {
        let errors_before = self.errors.len();
        let default_agent = filled(default_agent);
        let fallback = filled(gateway.fallback.clone()).filter(|name| name != "none");
        let local = AgentName::local();
        // An entry without a kind adds to the model of the shorthand.
        let has_addition = written.get(local.as_str()).is_some_and(|entry| {
            entry.as_ref().is_some_and(|KeyedMapping(entry)| filled(entry.kind.clone()).is_none())
        });
        let needs_local = has_addition
            || [&default_agent, &fallback].iter().any(|name| name.as_deref() == Some(local.as_str()));
        let mut entries = BTreeMap::new();
        let mut rules = AgentRules::default();
        for (name, settings) in self.shorthands(gateway, agent, needs_local) {
            let runtime = settings.switch().map(|switch| switch.runtime);
            rules.by_name.insert(name.clone(), AgentPolicy { runtime, ..AgentPolicy::default() });
            entries.insert(name, settings);
        }
        let absent = ConfigDocument::absent();
        let document = self.document.unwrap_or(&absent);
        for (name, written) in written {
            let written = written.unwrap_or_default().0;
            if let Some((name, settings, policy)) = self.entry(document, &name, written, &entries) {
                rules.by_name.insert(name.clone(), policy);
                entries.insert(name, settings);
            }
        }
        let mut agents = AgentsConfig { default: AgentName::guide(), entries, fallback: None };
        if self.errors.len() == errors_before {
            // With a faulty entry left out, these would report its name as unknown.
            agents.default = self.default_agent(default_agent.as_deref(), &agents);
            agents.fallback = fallback.and_then(|name| self.fallback(&name, &agents));
        }
        if agents.entries.is_empty() {
            rules.by_name.insert(AgentName::guide(), AgentPolicy::default());
        }
        (agents, rules)
    }

    /// The agent that answers unless another is named.
    fn default_agent(&mut self, written: Option<&str>, agents: &AgentsConfig) -> AgentName {
        let known = |name: &AgentName| agents.entries.contains_key(name);
        if let Some(written) = written {
            if let Some(name) = AgentName::new(written).filter(known) {
                return name;
            }
            self.unknown_agent(&["default_agent"], written, agents);
            return AgentName::guide();
        }
        if let Some(name) = [AgentName::proxy(), AgentName::local()].into_iter().find(known) {
            return name;
        }
        let mut names = agents.entries.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => only.clone(),
            (None, _) => AgentName::guide(),
            (Some(_), Some(_)) => {
                let place = self.place(&["agents"]);
                self.errors.push(
                    ConfigError::new(format!("`agents` does not say which agent is the default{place}"))
                        .hint(format!("write `default_agent: NAME`; {}", agents.names())),
                );
                AgentName::guide()
            }
        }
    }

    /// The agent that `gateway.fallback` names. It answers in place of the agent `proxy` only.
    fn fallback(&mut self, written: &str, agents: &AgentsConfig) -> Option<AgentName> {
        let path = ["gateway", "fallback"];
        if !agents.entries.contains_key(&AgentName::proxy()) {
            self.warnings.push(
                "`gateway.fallback` has no effect without the agent `proxy`; set `GATEWAY_PROXY_URL` or \
                 `gateway.proxy_url`"
                    .to_owned(),
            );
            return None;
        }
        let name = AgentName::new(written);
        match name {
            Some(name) if name == AgentName::proxy() => {
                let place = self.place(&path);
                self.errors.push(
                    ConfigError::new(format!("`gateway.fallback` is the agent itself{place}"))
                        .hint(format!("write `none` or another agent; {}", agents.names())),
                );
                None
            }
            Some(name) if agents.entries.contains_key(&name) => Some(name),
            Some(name) if name == AgentName::local() => {
                let place = self.place(&path);
                self.errors.push(
                    ConfigError::new(format!(
                        "`gateway.fallback` is `local`, but there is no model to fall back to{place}"
                    ))
                    .hint(
                        "set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`), for \
                         example to `http://localhost:11434/v1` and `llama3.2`",
                    ),
                );
                None
            }
            Some(_) | None => {
                self.unknown_agent(&path, written, agents);
                None
            }
        }
    }

    /// Checks the agents that rooms name, and points out people who may not talk to the agent of their place.
    pub(super) fn check_places(&mut self, agents: &AgentsConfig, rules: &Rules) {
        for (account, account_rules) in &rules.accounts {
            let rooms: BTreeMap<_, _> = account_rules.places.iter().collect();
            for (room, place) in rooms {
                let path = |key| ["platforms", account.as_str(), "places", room.as_str(), key];
                if let Some(agent) = place.agent.as_ref().filter(|agent| !agents.entries.contains_key(*agent))
                {
                    self.unknown_agent(&path("agent"), agent.as_str(), agents);
                }
                let takes_folder =
                    |name: &AgentName| agents.entries.get(name).is_some_and(AgentSettings::can_take_folder);
                if place.folder.is_some() && !agents.entries.keys().any(takes_folder) {
                    let key = path("folder").join(".");
                    self.warnings
                        .push(format!("`{key}` has no effect, because no agent is a codex or speaks ACP"));
                }
            }
        }
        self.warnings.extend(access::warnings(agents, rules));
    }

    /// Reports a name that no agent has. The name itself is not shown: it may be a key in the wrong place.
    pub(super) fn unknown_agent(&mut self, path: &[&str], written: &str, agents: &AgentsConfig) {
        let (key, place) = (path.join("."), self.place(path));
        let shorthand = match written {
            "proxy" => Some("set `GATEWAY_PROXY_URL` or `gateway.proxy_url`"),
            "local" => {
                Some("set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`)")
            }
            _ => None,
        };
        let error = match shorthand {
            Some(hint) => {
                ConfigError::new(format!("`{key}` is `{written}`, which is not configured{place}")).hint(hint)
            }
            None => {
                let names: BTreeSet<_> =
                    agents.entries.keys().map(AgentName::as_str).chain(["proxy", "local"]).collect();
                let near = closest(written, names).map(|near| format!("did you mean `{near}`? "));
                ConfigError::new(format!("`{key}` names no agent{place}")).hint(format!(
                    "{}{}",
                    near.unwrap_or_default(),
                    agents.names()
                ))
            }
        };
        self.errors.push(error);
    }

    /// Refuses to send a key in the clear over a public network. `permit` is the key that allows it.
    fn guard_key(
        &mut self,
        url: &BaseUrl,
        key: Option<&Secret>,
        allowed: bool,
        given: &GivenValue,
        permit: &str,
    ) {
        if url.is_encrypted() || url.is_near() {
            return;
        }
        let GivenValue { name, place, .. } = given;
        if key.is_none() {
            self.warnings.push(format!(
                "{name} is a public `http://` address, so everybody on the way can read what is said; use `https://`"
            ));
            return;
        }
        if allowed {
            self.warnings.push(format!(
                "{name} is a public `http://` address, so everybody on the way can read the key (`{permit}` permits it)"
            ));
        } else {
            self.errors.push(
                ConfigError::new(format!(
                    "{name} would carry the key unencrypted over a public network{place}"
                ))
                .hint(format!("use `https://`, a private address or a tunnel; or set `{permit}: true`")),
            );
        }
    }
}

/// A key in words.
fn key_words(key: Option<&Secret>) -> &'static str {
    match key {
        Some(_) => "with a key",
        None => "without a key",
    }
}
