//! The agents of this gateway, by name.
//!
//! Rooms, sessions and requests over HTTP name the agent that answers them. A name that is not registered here means the
//! default agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{AgentInfo, SharedAgent};
use crate::ids::AgentName;

/// The agents of this moment. Shared by everything that looks an agent up; a reload replaces its table.
pub struct AgentRegistry {
    table: RwLock<Arc<AgentTable>>,
}

/// An agent and the name it is registered under.
#[derive(Clone)]
pub struct NamedAgent {
    /// The name in the configuration, on record and over HTTP.
    pub name: AgentName,
    /// The agent.
    pub agent: SharedAgent,
}

/// Every agent by its name, and which one answers unless another is named.
#[derive(Clone)]
pub struct AgentTable {
    default: (AgentName, SharedAgent),
    others: BTreeMap<AgentName, SharedAgent>,
}

/// Descriptions of all agents, taken at one moment.
#[derive(Clone, Debug)]
pub struct AgentInfos {
    default: (AgentName, AgentInfo),
    others: BTreeMap<AgentName, AgentInfo>,
}

impl AgentRegistry {
    /// A registry that holds these agents.
    pub fn new(table: AgentTable) -> Arc<Self> {
        Arc::new(Self { table: RwLock::new(Arc::new(table)) })
    }

    /// The agents as they are registered now. Not to be kept beyond one decision.
    pub fn now(&self) -> Arc<AgentTable> {
        self.table.read().clone()
    }

    /// Registers these agents instead of the ones there are. Turns that run keep theirs; an agent that is registered no
    /// more is told so.
    pub fn replace(&self, table: AgentTable) {
        let table = Arc::new(table);
        let before = std::mem::replace(&mut *self.table.write(), table.clone());
        let is_kept = |old: &SharedAgent| table.iter().any(|(_, agent)| Arc::ptr_eq(agent, old));
        before.iter().filter(|(_, agent)| !is_kept(agent)).for_each(|(_, agent)| agent.retire());
    }
}

impl AgentTable {
    /// A table whose only agent is the default one.
    pub fn new(name: AgentName, agent: SharedAgent) -> Self {
        Self { default: (name, agent), others: BTreeMap::new() }
    }

    /// Adds one more agent. The default one keeps its name.
    #[must_use]
    pub fn with(mut self, name: AgentName, agent: SharedAgent) -> Self {
        if name != self.default.0 {
            self.others.insert(name, agent);
        }
        self
    }

    /// The agent that answers where no other is named.
    pub fn default_agent(&self) -> &SharedAgent {
        &self.default.1
    }

    /// The name of the agent that answers where no other is named.
    pub fn default_name(&self) -> &AgentName {
        &self.default.0
    }

    /// The agent with this name, if there is one.
    pub fn get(&self, name: &AgentName) -> Option<&SharedAgent> {
        if *name == self.default.0 { Some(&self.default.1) } else { self.others.get(name) }
    }

    /// The agent with this name; the default one without a name, or if nobody has it.
    pub fn named_or_default(&self, name: Option<&AgentName>) -> NamedAgent {
        let named = name.and_then(|name| Some((name, self.get(name)?)));
        let (name, agent) = named.unwrap_or((&self.default.0, &self.default.1));
        NamedAgent { name: name.clone(), agent: agent.clone() }
    }

    /// The agent that takes requests made for this name: the one that is registered under it, or else the one whose
    /// fallback has it.
    pub fn taking(&self, name: &AgentName) -> Option<&SharedAgent> {
        let takes = |(own, agent): &(&AgentName, &SharedAgent)| agent.about().taking(own, name).is_some();
        self.get(name).or_else(|| self.iter().find(takes).map(|(_, agent)| agent))
    }

    /// All agents, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentName, &SharedAgent)> {
        std::iter::once((&self.default.0, &self.default.1)).chain(&self.others)
    }

    /// Descriptions of all agents as of now.
    pub fn infos(&self) -> AgentInfos {
        AgentInfos {
            default: (self.default.0.clone(), self.default.1.about()),
            others: self.others.iter().map(|(name, agent)| (name.clone(), agent.about())).collect(),
        }
    }
}

impl AgentInfos {
    /// The description of the agent with this name; of the default one without a name, or if nobody has it.
    pub fn named_or_default(&self, name: Option<&AgentName>) -> &AgentInfo {
        name.and_then(|name| self.others.get(name)).unwrap_or(&self.default.1)
    }

    /// The name of the agent that answers where no other is named.
    pub fn default_name(&self) -> &AgentName {
        &self.default.0
    }

    /// Whether there is an agent with this name.
    pub fn has(&self, name: &AgentName) -> bool {
        *name == self.default.0 || self.others.contains_key(name)
    }

    /// All agents, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentName, &AgentInfo)> {
        std::iter::once((&self.default.0, &self.default.1)).chain(&self.others)
    }
}
