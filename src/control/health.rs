//! Judges the health of the running gateway for its operator: in one line, and per platform.

use super::api::{FallbackStatus, HealthReport, PlatformState};
use super::command_error::CommandError;
use super::{ControlState, RunningGateway};
use crate::delivery::{DeliveryAccount, ReadingState};
use crate::state_dir::LOST_DATABASE;
use crate::turns::{AgentHealth, CheckedAgent};

/// Whether people are served: the store writes and reads, at least one platform reads (or there are none, and
/// the agent server runs), and the default agent would answer. Also returns every agent, the default one first.
pub(super) async fn judge(
    control: &ControlState,
    running: &RunningGateway,
) -> Result<(HealthReport, Vec<CheckedAgent>), CommandError> {
    let (stored, agents) = tokio::join!(control.store.check(), running.turns.all_agents_health());
    let agent = agents.first().map_or(AgentHealth::Ready, |default| default.health.clone());
    let others: Vec<String> = agents
        .iter()
        .skip(1)
        .filter_map(|agent| Some(format!("the agent {} {}", agent.name, agent.health.trouble()?)))
        .collect();
    let mut stand_in = stand_in(running, &*control.rules_now()?);
    if let (Some(other), AgentHealth::StandIn) = (&mut stand_in, &agent) {
        other.answers = true;
    }
    let sick = |words: String| HealthReport { healthy: false, words, stand_in: stand_in.clone() };
    if let Err(why) = stored {
        return Ok((sick(why), agents));
    }
    let silent: Vec<String> = running
        .accounts
        .iter()
        .filter(|account| state(running, account) != PlatformState::Reads)
        .map(|account| format!("{} {}", account.id(), state(running, account).words()))
        .collect();
    let server_alone = running.accounts.is_empty() && running.served.is_some();
    if silent.len() == running.accounts.len() && !server_alone {
        return Ok((sick(format!("no platform reads: {}", silent.join(", "))), agents));
    }
    if let Some(trouble) = agent.trouble() {
        return Ok((sick(format!("the agent {trouble}")), agents));
    }
    let away = stand_in.as_ref().filter(|other| other.answers);
    let away = away.map(|other| format!("the agent is away and {} answers", other.name));
    let lost = running.lost_database.then(|| LOST_DATABASE.to_owned());
    let but: Vec<String> = silent.into_iter().chain(away).chain(others).chain(lost).collect();
    let words = if but.is_empty() { "ok".to_owned() } else { format!("ok, but {}", but.join(", ")) };
    Ok((HealthReport { healthy: true, words, stand_in }, agents))
}

/// The fallback agent, and whether it answers now.
fn stand_in(running: &RunningGateway, rules: &crate::rules::Rules) -> Option<FallbackStatus> {
    let other = running.turns.agent().fallback?;
    Some(FallbackStatus { name: rules.words.say(&other.about.name), answers: other.answers })
}

pub(super) fn state(running: &RunningGateway, account: &DeliveryAccount) -> PlatformState {
    if account.lost().is_cancelled() {
        return PlatformState::Lost;
    }
    match account.reading() {
        ReadingState::Starting => PlatformState::Starting,
        ReadingState::Reads if running.without_input.contains(account.id()) => PlatformState::Deaf,
        ReadingState::Reads if account.platform().is_away() => PlatformState::Away,
        ReadingState::Reads => PlatformState::Reads,
        ReadingState::Pausing => PlatformState::Pausing,
        ReadingState::Ended => PlatformState::Ended,
    }
}

impl PlatformState {
    /// State in words, to follow the platform's name.
    pub fn words(self) -> &'static str {
        match self {
            Self::Starting => "is starting",
            Self::Reads => "reads",
            Self::Away => "does not reach its network, and tries again",
            Self::Pausing => "failed and is tried again",
            Self::Ended => "has nothing more to read",
            Self::Deaf => "has no input (standard input is closed)",
            Self::Lost => "is lost (see the log)",
        }
    }
}
