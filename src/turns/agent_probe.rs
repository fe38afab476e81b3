//! Whether the agent would answer now, for health checks: asked when somebody wants to know, and remembered for a
//! moment.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Turns;
use crate::agent::{AgentError, AgentErrorKind, AnsweringAgent};
use crate::i18n::TextKey;
use crate::reply;

/// How long an answer counts. Several who watch ask the agent once.
const FRESH: Duration = Duration::from_secs(3);

/// How long the agent may take. Whoever checks health waits for it.
const PATIENCE: Duration = Duration::from_secs(4);

/// The last answer.
#[derive(Default)]
pub(super) struct AgentProbe {
    last: Mutex<Option<(Instant, Result<AnsweringAgent, AgentError>)>>,
}

/// What is known of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentHealth {
    /// It would answer.
    Ready,
    /// It is away, and the agent that stands in for it would answer.
    StandIn,
    /// Nobody is there, for this reason.
    Away(String),
    /// It is there and lets nobody in as things are, such as for want of the right key.
    Refused(String),
    /// It is there, and the last turns failed all the same.
    Failing {
        /// How many of them.
        times: usize,
        /// Why the last of them did.
        why: String,
    },
}

impl AgentHealth {
    /// What is wrong with the agent, for people and behind its name.
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
    /// Finds out whether the agent would answer. Takes at most a few seconds.
    pub async fn agent_health(&self) -> AgentHealth {
        let why = |words: &str| crate::util::one_line(reply::bare(words), 200);
        let reached = self.reach_agent().await;
        match &reached {
            Err(error) if error.kind == AgentErrorKind::Refused => {
                return AgentHealth::Refused(why(&error.to_string()));
            }
            Err(error) => return AgentHealth::Away(why(&error.to_string())),
            Ok(_) => {}
        }
        // It answers a simple question; how it answers real ones is known better from those.
        if let Some((times, words)) = self.failing()
            && !self.trouble().was_away()
        {
            return AgentHealth::Failing { times, why: why(&words.to_string()) };
        }
        match reached {
            Ok(AnsweringAgent::StandIn) => AgentHealth::StandIn,
            Ok(AnsweringAgent::Agent) | Err(_) => AgentHealth::Ready,
        }
    }

    async fn reach_agent(&self) -> Result<AnsweringAgent, AgentError> {
        let mut last = self.probe.last.lock().await;
        if let Some((at, reached)) = &*last
            && at.elapsed() < FRESH
        {
            return reached.clone();
        }
        let agents = self.agents();
        let asked = tokio::time::timeout(PATIENCE, agents.default_agent().reachable()).await;
        let silent = || Err(AgentError::new(AgentErrorKind::NothingRan { after: None }, TextKey::WhyTooSlow));
        let reached = asked.unwrap_or_else(|_| silent());
        *last = Some((Instant::now(), reached.clone()));
        reached
    }
}
