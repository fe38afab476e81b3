//! The agent of kind `codex`: turns by a `codex app-server` that runs on this machine.

pub mod approvals;
pub mod item_steps;
pub mod patch_summary;
pub mod projector;
mod sorted_json;

use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentKind, AgentOutput, AgentTurn, LearningTools,
    PreparedTurn, RewindSupport, TurnEnd,
};
use crate::config::CodexConfig;
use crate::i18n::TextKey;

/// The agent of kind `codex`.
pub struct CodexAgent {
    config: CodexConfig,
}

impl CodexAgent {
    /// An agent for this configuration. Starts nothing.
    pub fn new(config: CodexConfig) -> Self {
        Self { config }
    }
}

impl Agent for CodexAgent {
    fn about(&self) -> AgentInfo {
        AgentInfo {
            kind: AgentKind::Codex,
            name: match &self.config.model {
                Some(model) => TextKey::AgentCodexModel.with("model", model.as_str()),
                None => TextKey::AgentCodex.into(),
            },
            rewind: RewindSupport::Impossible,
            resume: false,
            learns: LearningTools::default(),
            fallback: None,
            models: Vec::new(),
        }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move { Ok(PreparedTurn::new(turn, "")) })
    }

    fn run_turn<'a>(
        &'a self,
        _turn: &'a AgentTurn,
        _prepared: PreparedTurn,
        _out: &'a dyn AgentOutput,
        _stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async { Err(AgentError::new(AgentErrorKind::Refused, TextKey::CodexNoStart)) })
    }
}
