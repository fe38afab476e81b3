//! A model server that speaks the chat-completions protocol, with the history from our store.

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use talaria_platform::{BoxFuture, CancellationToken};

use super::{Agent, AgentError, AgentInfo, Out, Prepared, Turn, TurnEnd};
use crate::config::LocalConfig;
use crate::openai::read::Reader;
use crate::openai::{client, fault, wire};
use crate::words::Text;

/// How people know it.
const WHO: Text = Text::WhoModel;

/// The local agent.
pub struct Local {
    config: LocalConfig,
    client: reqwest::Client,
}

impl Local {
    /// A client for the configured model server. Nothing is sent yet.
    pub fn new(config: LocalConfig) -> Result<Self, reqwest::Error> {
        let client =
            client::build(&config.url, config.key.as_ref(), config.allow_cleartext, &config.timeouts)?;
        Ok(Self { config, client })
    }
}

impl Agent for Local {
    fn about(&self) -> AgentInfo {
        let name = Text::AgentModel.with("model", self.config.model.as_str());
        AgentInfo { name, rewind: true, resume: false, stand_in: None }
    }

    fn prepare<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Prepared, AgentError>> {
        let request = wire::chat_request(&self.config.model, &turn.into(), true);
        Box::pin(async move { Ok(Prepared { request, resumable: false, stand_in: false }) })
    }

    fn run_turn<'a>(
        &'a self,
        _turn: &'a Turn,
        prepared: &'a Prepared,
        out: &'a dyn Out,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let url = format!("{}/chat/completions", self.config.url.as_str());
            let mut request = self
                .client
                .post(url)
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(prepared.request.clone());
            if let Some(bearer) = self.config.key.as_ref().and_then(client::bearer) {
                request = request.header(AUTHORIZATION, bearer);
            }
            let sent = tokio::select! {
                sent = tokio::time::timeout(self.config.timeouts.first_byte, request.send()) => sent,
                () = stop.cancelled() => return Ok(TurnEnd::Stopped),
            };
            let response = match sent {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(fault::request(WHO, &error.without_url())),
                Err(_) => return Err(fault::broken(Text::BrokeModelSilent)),
            };
            let reader =
                Reader { who: WHO, timeouts: &self.config.timeouts, numbered: false, asides: &|_| {} };
            reader.read(response, out, &stop).await
        })
    }
}
