//! The agent of kind `model`: a model behind a server that speaks the chat-completions protocol, and the tools that it
//! may call. History and notes come from our store.

mod agent_tools;
mod completion;
mod context_window;
pub mod foreign_calls;
mod loop_output;
mod request_retry;
mod review;
mod run_calls;
mod tool_calls;
mod tool_set;
mod turn_loop;

use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, AnsweringAgent, PreparedTurn,
    ReviewRequest, ReviewResult, TurnEnd,
};
use crate::config::ModelConfig;
use crate::i18n::{LocalizedText, TextKey};
use crate::openai::{client, error, wire};
pub use agent_tools::AgentTools;
use agent_tools::TurnTools;
use foreign_calls::tell_foreign_calls;
use turn_loop::{LoopLimits, TurnLoop};

/// Name of the server in error texts.
const WHO: TextKey = TextKey::WhoModel;

/// Timeout of the check whether the server is there.
const REACHABLE: Duration = Duration::from_secs(5);

/// The agent of kind `model`.
pub struct ModelAgent {
    config: ModelConfig,
    client: reqwest::Client,
    tools: AgentTools,
}

impl ModelAgent {
    /// A client for the configured model server. Nothing is sent yet.
    pub fn new(config: ModelConfig, tools: AgentTools) -> Result<Self, reqwest::Error> {
        let client =
            client::build(&config.url, config.key.as_ref(), config.allow_cleartext, &config.timeouts)?;
        Ok(Self { config, client, tools })
    }

    /// The limits of a turn.
    fn limits(&self) -> LoopLimits {
        let ModelConfig { max_iterations, turn_timeout, context_tokens, .. } = &self.config;
        LoopLimits { rounds: *max_iterations, time: *turn_timeout, window: *context_tokens }
    }

    /// The model for a turn: the one that a person chose, if the agent still has it.
    fn model_for(&self, turn: &AgentTurn) -> &str {
        let chosen = self.config.models.iter().find(|model| Some(*model) == turn.model.as_ref());
        chosen.unwrap_or(&self.config.model)
    }
}

impl Agent for ModelAgent {
    fn about(&self) -> AgentInfo {
        let name = TextKey::AgentModel.with("model", self.config.model.as_str());
        AgentInfo {
            learns: self.tools.learning(),
            reviews: self.tools.learning(),
            models: self.config.models.clone(),
            ..AgentInfo::new(AgentKind::Model, name)
        }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            let mut context = vec![turn.context.clone()];
            context.extend(self.tools.prompt_sections(turn.notes.as_ref()).await);
            context.retain(|section| !section.trim().is_empty());
            let question =
                wire::CompletionRequest { context: &context.join("\n\n"), with_tools: true, ..turn.into() };
            let mut messages = wire::chat_messages(&question);
            // Which tools it has is known only when the turn runs, unless it has none.
            if self.tools.is_empty() {
                messages = tell_foreign_calls(messages, |_| false);
            }
            let body = wire::request_body(self.model_for(turn), messages, Some(&turn.params), true);
            Ok(PreparedTurn::new(turn, body))
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            // The bytes are sent as they are where nothing can be called and nothing can be too long.
            if self.tools.is_empty() && self.config.context_tokens.is_none() {
                return self.answer_plainly(prepared.request, out, &stop).await;
            }
            let TurnTools { tools, problems } = tokio::select! {
                tools = self.tools.for_turn() => tools,
                () = stop.cancelled() => return Ok(TurnEnd::Stopped),
            };
            let mut turn_loop =
                TurnLoop::new(self, turn, &prepared.request, tools, self.limits(), out, &stop)?;
            turn_loop.tell_problems(&problems);
            // Held to the end: what counts as memory in use for the request now counts for the messages made of it.
            let _held = prepared;
            // Boxed: its state is larger than that of a plain answer, which most turns are.
            Box::pin(turn_loop.run()).await
        })
    }

    fn state_lines(&self) -> Vec<LocalizedText> {
        self.tools.state_lines()
    }

    fn review(&self, request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
        Box::pin(self.run_review(request))
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        let mut question = self.client.get(format!("{}/models", self.config.url.as_str())).timeout(REACHABLE);
        if let Some(bearer) = self.config.key.as_ref().and_then(client::bearer) {
            question = question.header(AUTHORIZATION, bearer);
        }
        Box::pin(async move {
            let answer = question.send().await.map_err(|error| error::request(WHO, &error.without_url()))?;
            match answer.status() {
                // Not every server knows the question, and a key may be good for answers only (403).
                status if status.as_u16() == 401 || status.is_server_error() => {
                    Err(error::status(WHO, status, answer.headers(), ""))
                }
                _ => Ok(AnsweringAgent::Agent),
            }
        })
    }
}
