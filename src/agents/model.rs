//! A model server that speaks the chat-completions protocol, with the history from our store.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, AnsweringAgent, PreparedTurn,
    RewindSupport, TurnEnd,
};
use crate::config::ModelConfig;
use crate::i18n::TextKey;
use crate::openai::stream_reader::StreamReader;
use crate::openai::{client, error, wire};

/// Name of the server in error texts.
const WHO: TextKey = TextKey::WhoModel;

/// Timeout of the check whether the server is there.
const REACHABLE: Duration = Duration::from_secs(5);

/// The agent of kind `model`.
pub struct ModelAgent {
    config: ModelConfig,
    client: reqwest::Client,
}

impl ModelAgent {
    /// A client for the configured model server. Nothing is sent yet.
    pub fn new(config: ModelConfig) -> Result<Self, reqwest::Error> {
        let client =
            client::build(&config.url, config.key.as_ref(), config.allow_cleartext, &config.timeouts)?;
        Ok(Self { config, client })
    }
}

impl Agent for ModelAgent {
    fn about(&self) -> AgentInfo {
        let name = TextKey::AgentModel.with("model", self.config.model.as_str());
        AgentInfo {
            kind: AgentKind::Model,
            name,
            rewind: RewindSupport::Possible,
            resume: false,
            fallback: None,
            models: Vec::new(),
        }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        let request = {
            let question = wire::CompletionRequest { params: Some(&turn.params), ..turn.into() };
            wire::chat_request(&self.config.model, &question, true)
        };
        Box::pin(async move { Ok(PreparedTurn::new(turn, request)) })
    }

    fn run_turn<'a>(
        &'a self,
        _turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let url = format!("{}/chat/completions", self.config.url.as_str());
            let mut request = self
                .client
                .post(url)
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(prepared.request);
            if let Some(bearer) = self.config.key.as_ref().and_then(client::bearer) {
                request = request.header(AUTHORIZATION, bearer);
            }
            let sent = tokio::select! {
                sent = tokio::time::timeout(self.config.timeouts.first_byte, request.send()) => sent,
                () = stop.cancelled() => return Ok(TurnEnd::Stopped),
            };
            let response = match sent {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(error::request(WHO, &error.without_url())),
                Err(_) => return Err(error::broken(TextKey::BrokeModelSilent)),
            };
            let reader =
                StreamReader { who: WHO, timeouts: &self.config.timeouts, numbered: false, asides: &|_| {} };
            reader.read(response, out, &stop).await
        })
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
