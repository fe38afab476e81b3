//! Builds the agents that a configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::acp::AcpAgent;
use super::codex::CodexAgent;
use super::fallback::FallbackAgent;
use super::guide::GuideAgent;
use super::model::{AgentTools, ModelAgent};
use super::proxy::ProxyAgent;
use super::runtime_switch::RuntimeSwitch;
use super::services::AgentServices;
use crate::agent::{AgentTable, NamedAgent, SharedAgent};
use crate::config::{AgentSettings, AgentsConfig, SwitchConfig};
use crate::ids::AgentName;
use crate::rules::LiveRules;

/// Agents that were built before, and the configuration that they were built from.
#[derive(Clone, Copy)]
pub struct BuiltAgents<'a> {
    /// Configuration of the agents.
    pub config: &'a AgentsConfig,
    /// The agents.
    pub table: &'a AgentTable,
}

/// Why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum AgentBuildError {
    /// No HTTP client can be made.
    #[error("no HTTP client could be made for an agent")]
    Client(#[from] reqwest::Error),
    /// The workspace cannot be made or opened.
    #[error("the workspace of the agent `{agent}` cannot be used: {error}")]
    Workspace {
        /// The agent.
        agent: AgentName,
        /// The system's reason.
        error: std::io::Error,
    },
}

/// Builds the agents of `config`. An agent whose configuration has not changed since it was built is taken over from
/// `before`, with its connections and its knowledge of its server.
pub fn build(
    config: &AgentsConfig,
    live: &Arc<LiveRules>,
    services: &AgentServices,
    before: Option<BuiltAgents<'_>>,
) -> Result<AgentTable, AgentBuildError> {
    let mut agents: BTreeMap<AgentName, SharedAgent> = BTreeMap::new();
    for (name, settings) in &config.entries {
        let kept = before.and_then(|before| before.unchanged(name, config));
        let agent = match kept {
            Some(agent) => agent,
            None => build_one(name, settings, live, services)?,
        };
        agents.insert(name.clone(), agent);
    }
    let proxy = AgentName::proxy();
    if let Some(other) = &config.fallback
        && before.and_then(|before| before.unchanged(&proxy, config)).is_none()
        && let (Some(first), Some(second)) = (agents.get(&proxy), agents.get(other))
    {
        let named =
            |name: &AgentName, agent: &SharedAgent| NamedAgent { name: name.clone(), agent: agent.clone() };
        let both = FallbackAgent::new(named(&proxy, first), named(other, second));
        agents.insert(proxy, Arc::new(both));
    }
    let default = match agents.remove(&config.default) {
        Some(agent) => agent,
        None => Arc::new(GuideAgent::new(live.clone())),
    };
    let table = AgentTable::new(config.default.clone(), default);
    Ok(agents.into_iter().fold(table, |table, (name, agent)| table.with(name, agent)))
}

fn build_one(
    name: &AgentName,
    settings: &AgentSettings,
    live: &Arc<LiveRules>,
    services: &AgentServices,
) -> Result<SharedAgent, AgentBuildError> {
    Ok(match settings {
        AgentSettings::Proxy(config) => Arc::new(ProxyAgent::new(config.clone())?),
        AgentSettings::Model(config) => {
            let tools = AgentTools::new(config, services)
                .map_err(|error| AgentBuildError::Workspace { agent: name.clone(), error })?;
            let model: SharedAgent = Arc::new(ModelAgent::new(config.clone(), tools)?);
            match &config.switch {
                Some(SwitchConfig { codex, .. }) => {
                    let codex =
                        Arc::new(CodexAgent::with_tools(codex.clone(), model.about().learns, services));
                    let own = NamedAgent { name: name.clone(), agent: model };
                    Arc::new(RuntimeSwitch::new(own, codex, live.clone()))
                }
                None => model,
            }
        }
        AgentSettings::Codex(config) => Arc::new(CodexAgent::new(config.clone(), services)),
        AgentSettings::Acp(config) => Arc::new(AcpAgent::new(config.clone(), services)),
    })
}

impl BuiltAgents<'_> {
    /// The agent with this name, if it and the agent that answers while it is away are configured as before.
    pub fn unchanged(&self, name: &AgentName, config: &AgentsConfig) -> Option<SharedAgent> {
        let same = |name: &AgentName| self.config.entries.get(name) == config.entries.get(name);
        let same_fallback = *name != AgentName::proxy()
            || (self.config.fallback == config.fallback && config.fallback.as_ref().is_none_or(same));
        (same(name) && same_fallback).then(|| self.table.get(name).cloned()).flatten()
    }
}
