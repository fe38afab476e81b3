//! The remote agent server behind `GATEWAY_PROXY_URL`.
//!
//! One try per call: what happens after a failure is the engine's business. What the upstream can do
//! is asked once and again after each lost connection, never guessed. Only an upstream that announces
//! idempotency has its turns repeated.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use talaria_platform::{BoxFuture, CancellationToken};

use super::{Agent, AgentError, AgentErrorKind, AgentInfo, Attempt, Out, Prepared, Turn, TurnEnd};
use crate::config::{ProxyConfig, Upstream};
use crate::openai::read::Reader;
use crate::openai::{client, fault, wire};
use crate::testing::failpoint;
use crate::words::Text;

/// How people know it.
const WHO: Text = Text::WhoProxy;

/// Counts the relays that a request has come through, so that one that is pointed at itself ends.
const HOPS: &str = "x-talaria-hops";

/// How long the question what it can do may take, and the request to stop a run.
const QUESTION: Duration = Duration::from_secs(10);

/// How long the question whether it is there at all may take. Somebody's turn waits for it, and another agent
/// stands ready.
const REACHABLE: Duration = Duration::from_secs(5);

/// The largest answer to that question that is read.
const ANSWER: usize = 256 * 1024;

/// The proxy agent.
pub struct Proxy {
    config: ProxyConfig,
    client: reqwest::Client,
    known: Mutex<Known>,
}

/// What the upstream said it can do.
#[derive(Clone, Copy, Default)]
struct Known {
    /// `None` until it was asked, and again after each lost connection.
    current: Option<Abilities>,
    /// The last answer there was, for what cannot wait for the next.
    last: Option<Abilities>,
}

/// What an upstream can do, as far as we care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Abilities {
    /// The same key and bytes never run twice.
    idempotent: bool,
    /// It keeps history of its own under the session header.
    sessions: bool,
    /// It answered the question at all, so it knows the usual options.
    answered: bool,
}

#[derive(Deserialize)]
struct CapabilitiesAnswer {
    features: Features,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Features {
    idempotency: Option<serde_json::Value>,
    session_continuity_header: Option<serde_json::Value>,
}

impl Proxy {
    /// A client for the configured upstream. Nothing is sent yet.
    pub fn new(config: ProxyConfig) -> Result<Self, reqwest::Error> {
        let client =
            client::build(&config.url, config.key.as_ref(), config.allow_cleartext, &config.timeouts)?;
        Ok(Self { config, client, known: Mutex::default() })
    }

    async fn abilities(&self) -> Result<Abilities, AgentError> {
        match self.config.upstream {
            Upstream::Plain => return Ok(Abilities::default()),
            Upstream::Talaria => return Ok(Abilities { idempotent: true, sessions: true, answered: true }),
            Upstream::Auto => {}
        }
        if let Some(known) = self.known().current {
            return Ok(known);
        }
        let asked = self.ask().await?;
        tracing::info!(
            idempotent = asked.idempotent,
            sessions = asked.sessions,
            "the upstream said what it can do"
        );
        *self.known() = Known { current: Some(asked), last: Some(asked) };
        Ok(asked)
    }

    async fn ask(&self) -> Result<Abilities, AgentError> {
        // Never longer than an answer itself may take to begin.
        let patience = QUESTION.min(self.config.timeouts.first_byte);
        let request = self.client.get(self.url("/v1/capabilities")).headers(self.key()).timeout(patience);
        let mut response = request.send().await.map_err(|error| match fault::request(WHO, &error) {
            // The question itself runs nothing, whatever became of it.
            AgentError { kind: AgentErrorKind::Unknown { after }, words } => {
                AgentError { kind: AgentErrorKind::NothingRan { after }, words }
            }
            error => error,
        })?;
        let status = response.status();
        if !status.is_success() {
            return match fault::status(WHO, status, response.headers(), "") {
                // It did not get to answering; a server that only starts up must not be taken for a plain one.
                AgentError { kind: AgentErrorKind::Unknown { after }, words }
                    if status.as_u16() != 500 && status.as_u16() != 501 =>
                {
                    Err(AgentError { kind: AgentErrorKind::NothingRan { after }, words })
                }
                busy @ AgentError { kind: AgentErrorKind::Busy { .. }, .. } => Err(busy),
                // One that does not know the question, or does not trust us, cannot do more than answer.
                _ => Ok(Abilities::default()),
            };
        }
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER => body.extend_from_slice(&chunk),
                Ok(Some(_)) => return Ok(Abilities::default()),
                Ok(None) => break,
                Err(error) => {
                    let AgentError { words, .. } = fault::request(WHO, &error.without_url());
                    return Err(AgentError::new(AgentErrorKind::NothingRan { after: None }, words));
                }
            }
        }
        let Ok(answer) = serde_json::from_slice::<CapabilitiesAnswer>(&body) else {
            return Ok(Abilities::default());
        };
        let on = |feature: &Option<serde_json::Value>| match feature {
            None | Some(serde_json::Value::Null | serde_json::Value::Bool(false)) => false,
            Some(_) => true,
        };
        Ok(Abilities {
            idempotent: on(&answer.features.idempotency),
            sessions: on(&answer.features.session_continuity_header),
            answered: true,
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.config.url.as_str())
    }

    fn key(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(bearer) = self.config.key.as_ref().and_then(client::bearer) {
            headers.insert(AUTHORIZATION, bearer);
        }
        headers
    }

    fn headers(&self, turn: &Turn) -> HeaderMap {
        let mut headers = self.key();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        client::label(&mut headers, "x-hermes-session-id", Some(&turn.session.0));
        let key = match crate::testing::broken("key") {
            true => crate::session::random_hex(16),
            false => turn.key.clone(),
        };
        client::label(&mut headers, "idempotency-key", Some(&key));
        client::label(&mut headers, "x-hermes-session-key", turn.memory.as_deref());
        client::label(&mut headers, HOPS, Some(&(turn.hops + 1).to_string()));
        if self.config.identity {
            let origin = &turn.origin;
            for (name, text) in [
                ("x-hermes-user-id", origin.user_id.as_deref()),
                ("x-hermes-user-name", origin.user_name.as_deref()),
                ("x-hermes-chat-id", origin.chat_id.as_deref()),
                ("x-hermes-chat-name", origin.chat_name.as_deref()),
                ("x-hermes-chat-type", origin.chat_type.as_deref()),
                ("x-hermes-thread-id", origin.thread_id.as_deref()),
            ] {
                client::label(&mut headers, name, text);
            }
        }
        headers
    }

    /// After a lost connection another server may be there.
    fn forget(&self, error: &AgentError) {
        match error.kind {
            AgentErrorKind::NothingRan { .. }
            | AgentErrorKind::Busy { .. }
            | AgentErrorKind::Unknown { .. } => {
                self.known().current = None;
            }
            AgentErrorKind::Elsewhere | AgentErrorKind::Refused | AgentErrorKind::CutShort => {}
        }
    }

    async fn run(
        &self,
        turn: &Turn,
        prepared: &Prepared,
        out: &dyn Out,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        if turn.attempt == Attempt::Resume && !Box::pin(self.abilities()).await?.idempotent {
            return Err(AgentError::new(AgentErrorKind::Refused, Text::CannotResume));
        }
        let request = self
            .client
            .post(self.url("/v1/chat/completions"))
            .headers(self.headers(turn))
            .body(prepared.request.clone());
        // Boxed: what sends a request is large, and gone when the stream begins.
        let sending = Box::pin(tokio::time::timeout(self.config.timeouts.first_byte, request.send()));
        let sent = tokio::select! {
            sent = sending => sent,
            () = stop.cancelled() => return Ok(TurnEnd::Stopped),
        };
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::warn!(error = %error.to_string(), "the upstream was not reached");
                return Err(fault::request(WHO, &error.without_url()));
            }
            Err(_) => return Err(fault::broken(Text::BrokeServerSilent)),
        };
        failpoint("proxy.answered");
        let run =
            response.headers().get("x-hermes-run-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let reader = Reader { who: WHO, timeouts: &self.config.timeouts, numbered: prepared.resumable };
        let end = reader.read(response, out, stop).await;
        if matches!(end, Ok(TurnEnd::Stopped)) && prepared.resumable {
            self.stop_run(run.as_deref());
        }
        end
    }

    /// A resumable run goes on without a reader for a while, so a stop must be said. Best effort, and on a
    /// task of its own that ends by itself: the person who stopped it does not wait for the upstream.
    fn stop_run(&self, run: Option<&str>) {
        let plain = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let Some(run) = run.filter(plain) else { return };
        let request = self.client.post(self.url(&format!("/v1/runs/{run}/stop"))).headers(self.key());
        tokio::spawn(async move {
            if let Err(error) = request.timeout(QUESTION).send().await {
                tracing::debug!(error = %error.without_url(), "the upstream was not told to stop");
            }
        });
    }
}

impl Agent for Proxy {
    fn about(&self) -> AgentInfo {
        let known = self.known().last;
        // One that keeps sessions but is not ours remembers what we would like it to forget.
        let rewind = known.is_none_or(|known| known.idempotent || !known.sessions);
        AgentInfo { name: Text::AgentRemote.into(), rewind, resume: true, stand_in: None }
    }

    fn prepare<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Prepared, AgentError>> {
        Box::pin(async move {
            let abilities = self.abilities().await?;
            let request = wire::chat_request(&self.config.model, &turn.into(), abilities.answered);
            Ok(Prepared { request, resumable: abilities.idempotent, stand_in: false })
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a Turn,
        prepared: &'a Prepared,
        out: &'a dyn Out,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let end = self.run(turn, prepared, out, &stop).await;
            if let Err(error) = &end {
                self.forget(error);
            }
            end
        })
    }

    fn reachable(&self) -> BoxFuture<'_, bool> {
        let question = self.client.get(self.url("/v1/capabilities")).headers(self.key()).timeout(REACHABLE);
        Box::pin(async move {
            // One that does not know the question is there; a failure may be of something in front of it.
            question.send().await.is_ok_and(|answer| !answer.status().is_server_error())
        })
    }
}
