//! The agent that a request is for, and whether its caller may ask that one.
//!
//! `model` names an agent. Any other name means the default agent, because clients of this protocol send the names of
//! models that they know from elsewhere. An agent that the caller may not ask is refused with 403 and is not treated as
//! an unknown name: the question was meant for one agent, and another one must not be given it unnoticed.

use axum::http::StatusCode;

use super::submit::SessionSelector;
use super::{ApiError, Caller, Server};
use crate::access::{AGENT_RULE, AgentAsker};
use crate::ids::{AgentName, SessionId};
use crate::store::{Result as StoreResult, Tx};

impl Server {
    /// The agent that a request is for. A request without `model` goes on with the agent of its session.
    pub async fn agent_for(
        &self,
        caller: &Caller,
        model: Option<&str>,
        session: &SessionSelector,
    ) -> Result<AgentName, ApiError> {
        let agents = self.turns.agents();
        let agent = match model.map(str::trim).filter(|model| !model.is_empty()) {
            Some(model) => AgentName::new(model).filter(|name| agents.get(name).is_some()),
            None => self.agent_of_session(caller, session).await?,
        };
        let agent = agent.unwrap_or_else(|| agents.default_name().clone());
        if agents.get(&agent).is_none() {
            return Err(gone(&agent));
        }
        self.admit(caller, &agent).await?;
        Ok(agent)
    }

    /// The agent that the `model` of a new session names, if it names one.
    pub async fn agent_named(
        &self,
        caller: &Caller,
        model: Option<&str>,
    ) -> Result<Option<AgentName>, ApiError> {
        let agents = self.turns.agents();
        let Some(agent) = model.and_then(AgentName::new).filter(|name| agents.get(name).is_some()) else {
            return Ok(None);
        };
        self.admit(caller, &agent).await?;
        Ok(Some(agent))
    }

    /// The `model` of an answer of this agent. The default agent has the configured name.
    pub fn model_name(&self, agent: Option<&AgentName>) -> String {
        let agents = self.turns.agents();
        let other = agent.filter(|name| *name != agents.default_name());
        other.map_or_else(|| self.settings.model.clone(), |name| name.as_str().to_owned())
    }

    /// Whether a caller may ask an agent.
    pub fn admits(&self, caller: &Caller, agent: &AgentName) -> bool {
        let asker = if caller.is_owner() { AgentAsker::Admin } else { AgentAsker::App(caller.app()) };
        self.live.now().agents.admit(agent, asker)
    }

    /// Refuses a caller who may not ask an agent, and records it.
    pub(super) async fn admit(&self, caller: &Caller, agent: &AgentName) -> Result<(), ApiError> {
        if self.admits(caller, agent) {
            return Ok(());
        }
        let actor = caller.actor();
        self.store.write(move |tx| tx.audit_app_refused(&actor, AGENT_RULE)).await?;
        Err(refused(agent))
    }

    async fn agent_of_session(
        &self,
        caller: &Caller,
        session: &SessionSelector,
    ) -> Result<Option<AgentName>, ApiError> {
        let app = caller.app().to_owned();
        let found = match session {
            SessionSelector::Fresh => return Ok(None),
            SessionSelector::Named(name) | SessionSelector::Existing(name) => {
                let session = caller.session(name);
                self.store.read(move |tx| agent_of(tx, &session)).await?
            }
            SessionSelector::After(response) => {
                let response = response.clone();
                let read = move |tx: &Tx<'_>| {
                    let Some(kept) = tx.response(&app, &response)? else { return Ok(None) };
                    Ok(tx.turn_head(&kept.turn)?.and_then(|turn| turn.agent))
                };
                self.store.read(read).await?
            }
        };
        Ok(found)
    }
}

/// The agent of a session: the one that was chosen for it, else the one of its last turn.
pub fn agent_of(tx: &Tx<'_>, session: &SessionId) -> StoreResult<Option<AgentName>> {
    if !tx.has_session(session)? {
        return Ok(None);
    }
    match tx.session(session)?.agent {
        Some(agent) => Ok(Some(agent)),
        None => Ok(tx.last_turn(session)?.and_then(|turn| turn.agent)),
    }
}

fn refused(agent: &AgentName) -> ApiError {
    let message = format!(
        "This token may not ask the agent {agent}; GET /v1/models lists those it may ask, and the server's owner can \
         add it to agents.{agent}.access"
    );
    ApiError {
        param: Some("model".into()),
        ..ApiError::new(StatusCode::FORBIDDEN, "model_not_allowed", message)
    }
}

fn gone(agent: &AgentName) -> ApiError {
    let message = format!("The agent {agent} of this session is no longer there; name another one as model");
    ApiError {
        param: Some("model".into()),
        ..ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }
}
