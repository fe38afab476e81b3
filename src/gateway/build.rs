//! Builds the agents and the settings of turns from the configuration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::agent::{AgentTable, NamedAgent, SharedAgent, TURN_BYTES};
use crate::agents::fallback::FallbackAgent;
use crate::agents::guide::GuideAgent;
use crate::agents::model::ModelAgent;
use crate::agents::proxy::ProxyAgent;
use crate::config::{AgentChoice, Config, LocalConfig};
use crate::ids::AgentName;
use crate::rules::LiveRules;
use crate::turns::TurnSettings;

/// How long an agent may take to end a turn during shutdown, so that time is left for the last messages.
const STOP_GRACE: Duration = Duration::from_secs(4);

/// How long people have to answer an ask.
const ASK_FOR: Duration = Duration::from_secs(5 * 60);

/// The agents that the configuration names.
pub(super) fn agents(config: &Config, live: &Arc<LiveRules>) -> anyhow::Result<AgentTable> {
    let name = match &config.agent {
        AgentChoice::Proxy(..) => AgentName::proxy(),
        AgentChoice::Local(_) => AgentName::local(),
        AgentChoice::Guide => AgentName::guide(),
    };
    let table = AgentTable::new(name, default_agent(&config.agent, live)?);
    Ok(match &config.room_agent {
        Some(config) => table.with(AgentName::local(), local(config)?),
        None => table,
    })
}

fn default_agent(choice: &AgentChoice, live: &Arc<LiveRules>) -> anyhow::Result<SharedAgent> {
    Ok(match choice {
        AgentChoice::Proxy(config, stand_in) => {
            let proxy = Arc::new(ProxyAgent::new(config.clone()).context("no HTTP client could be made")?);
            match stand_in {
                Some(config) => Arc::new(FallbackAgent::new(
                    NamedAgent { name: AgentName::proxy(), agent: proxy },
                    NamedAgent { name: AgentName::local(), agent: local(config)? },
                )),
                None => proxy,
            }
        }
        AgentChoice::Local(config) => local(config)?,
        AgentChoice::Guide => Arc::new(GuideAgent::new(live.clone())),
    })
}

fn local(config: &LocalConfig) -> anyhow::Result<SharedAgent> {
    Ok(Arc::new(ModelAgent::new(config.clone()).context("no HTTP client could be made")?))
}

pub(super) fn settings(config: &Config) -> TurnSettings {
    TurnSettings {
        context: config.turns.context_prompt.clone(),
        names: config.turns.names,
        files: config.turns.files,
        history_messages: config.turns.history_messages,
        history_bytes: config.turns.history_bytes,
        retry_for: config.turns.retry_for,
        retry_scripts_for: config.turns.retry_scripts_for,
        turn_bytes: TURN_BYTES,
        stop_grace: STOP_GRACE,
        ask_for: ASK_FOR,
    }
}
