//! Builds the agents that a configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fallback::FallbackAgent;
use super::guide::GuideAgent;
use super::model::ModelAgent;
use super::proxy::ProxyAgent;
use crate::agent::{AgentTable, NamedAgent, SharedAgent};
use crate::config::{AgentSettings, AgentsConfig};
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

/// Builds the agents of `config`. An agent whose configuration has not changed since it was built is taken over from
/// `before`, with its connections and its knowledge of its server. The only error is that no HTTP client can be made.
pub fn build(
    config: &AgentsConfig,
    live: &Arc<LiveRules>,
    before: Option<BuiltAgents<'_>>,
) -> Result<AgentTable, reqwest::Error> {
    let mut agents: BTreeMap<AgentName, SharedAgent> = BTreeMap::new();
    for (name, settings) in &config.entries {
        let kept = before.and_then(|before| before.unchanged(name, config));
        let agent = match kept {
            Some(agent) => agent,
            None => build_one(settings)?,
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

fn build_one(settings: &AgentSettings) -> Result<SharedAgent, reqwest::Error> {
    Ok(match settings {
        AgentSettings::Proxy(config) => Arc::new(ProxyAgent::new(config.clone())?),
        AgentSettings::Model(config) => {
            Arc::new(ModelAgent::new(config.clone(), super::model::ToolSet::default())?)
        }
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
