//! Whether each agent would answer now, for health checks: asked when somebody wants to know, and remembered for a
//! moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Turns;
use crate::agent::{AgentError, AgentErrorKind, AgentInfo, AnsweringAgent, SharedAgent};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::reply;

/// Time for which an answer counts, so that several monitors cause one request.
const FRESH: Duration = Duration::from_secs(3);

/// Timeout of the agent's answer. A health check waits for it.
const PATIENCE: Duration = Duration::from_secs(4);

/// The last answer of each agent.
#[derive(Default)]
pub(super) struct AgentProbes {
    by_name: parking_lot::Mutex<HashMap<AgentName, Arc<LastProbe>>>,
}

/// The last answer of one agent, and when it came. Held while the agent is asked, so that others wait for that answer.
type LastProbe = Mutex<Option<(Instant, Result<AnsweringAgent, AgentError>)>>;

impl AgentProbes {
    /// Forgets the last answer of an agent, because another one has its name now.
    pub(super) fn forget(&self, name: &AgentName) {
        self.by_name.lock().remove(name);
    }

    fn of(&self, name: &AgentName) -> Arc<LastProbe> {
        self.by_name.lock().entry(name.clone()).or_default().clone()
    }
}

/// An agent that was asked whether it would answer, for operators.
#[derive(Clone, Debug)]
pub struct CheckedAgent {
    /// Name of the agent.
    pub name: AgentName,
    /// Its description of itself.
    pub about: AgentInfo,
    /// Whether the agent would answer.
    pub health: AgentHealth,
    /// Lines about parts of the agent.
    pub lines: Vec<LocalizedText>,
}

/// State of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentHealth {
    /// The agent would answer.
    Ready,
    /// The agent is away, and the agent that stands in for it would answer.
    StandIn,
    /// Nobody is there, for this reason.
    Away(String),
    /// The agent is there and lets nobody in as things are, such as for want of the right key.
    Refused(String),
    /// The agent is there, and the last turns failed all the same.
    Failing {
        /// Number of the latest failures in a row.
        times: usize,
        /// Reason of the last one.
        why: String,
    },
}

/// An agent that was asked whether it would answer, for the people of a room.
#[derive(Clone, Debug)]
pub struct AgentCheck {
    /// Name of the agent, if it is not the default one.
    pub name: Option<AgentName>,
    /// Its description of itself.
    pub about: AgentInfo,
    /// The agent that would answer, or the reason why none would.
    pub reached: Result<AnsweringAgent, AgentError>,
    /// Number of turns that failed in a row although the agent is there, and the reason of the last failure.
    pub failing: Option<(usize, LocalizedText)>,
    /// Lines about parts of the agent.
    pub lines: Vec<LocalizedText>,
}

impl AgentHealth {
    /// The fault of the agent in words, to follow its name.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Ready | Self::StandIn => None,
            Self::Away(why) => Some(format!("is away: {why}")),
            Self::Refused(why) => Some(format!("refuses requests: {why}")),
            Self::Failing { times, why } => Some(format!("failed the last {times} times: {why}")),
        }
    }
}

impl Turns {
    /// Asks the agent with this name whether it would answer. `None` if no agent has this name. Takes at most a few
    /// seconds.
    pub async fn check_agent(&self, name: &AgentName) -> Option<AgentCheck> {
        let agents = self.agents();
        let agent = agents.get(name)?;
        let (reached, failing) = (self.reach_agent(name, agent).await, self.failing(name));
        let other = Some(name).filter(|name| *name != agents.default_name()).cloned();
        Some(AgentCheck { name: other, about: agent.about(), reached, failing, lines: agent.state_lines() })
    }

    /// Finds out whether each agent would answer, the default one first. Takes at most a few seconds.
    pub async fn all_agents_health(&self) -> Vec<CheckedAgent> {
        let agents = self.agents();
        let checks = agents.iter().map(async |(name, agent)| {
            let health = self.health_of(name, agent).await;
            let asked = agent.clone();
            let lines = tokio::task::spawn_blocking(move || asked.operator_lines()).await.unwrap_or_default();
            CheckedAgent { name: name.clone(), about: agent.about(), health, lines }
        });
        join_all(checks).await
    }

    async fn health_of(&self, name: &AgentName, agent: &SharedAgent) -> AgentHealth {
        let why = |words: &str| crate::util::one_line(reply::bare(words), 200);
        let reached = self.reach_agent(name, agent).await;
        match &reached {
            Err(error) if error.kind == AgentErrorKind::Refused => {
                return AgentHealth::Refused(why(&error.to_string()));
            }
            Err(error) => return AgentHealth::Away(why(&error.to_string())),
            Ok(_) => {}
        }
        // The agent answers a simple question; its last turns tell better how it answers real ones.
        if let Some((times, words)) = self.failing(name) {
            return AgentHealth::Failing { times, why: why(&words.to_string()) };
        }
        match reached {
            Ok(AnsweringAgent::StandIn) => AgentHealth::StandIn,
            Ok(AnsweringAgent::Agent) | Err(_) => AgentHealth::Ready,
        }
    }

    async fn reach_agent(&self, name: &AgentName, agent: &SharedAgent) -> Result<AnsweringAgent, AgentError> {
        let probe = self.probes.of(name);
        let mut last = probe.lock().await;
        if let Some((at, reached)) = &*last
            && at.elapsed() < FRESH
        {
            return reached.clone();
        }
        let reached = reach(agent).await;
        *last = Some((Instant::now(), reached.clone()));
        reached
    }
}

async fn reach(agent: &SharedAgent) -> Result<AnsweringAgent, AgentError> {
    let asked = tokio::time::timeout(PATIENCE, agent.reachable()).await;
    let silent = || Err(AgentError::new(AgentErrorKind::NothingRan { after: None }, TextKey::WhyTooSlow));
    asked.unwrap_or_else(|_| silent())
}
