//! The remote agent server behind `GATEWAY_PROXY_URL`.
//!
//! Each call makes one try: the engine decides what follows a failure. The upstream's capabilities are asked once and
//! again after each lost connection, never guessed. Only an upstream that announces
//! idempotency has its turns repeated.

mod approvals;
pub(crate) mod capabilities;
mod process_start;
mod protocol;
mod recover;
pub(crate) mod runs;
mod transcript;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use reqwest::Response;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentKind, AgentOutput, AgentTurn, AnsweringAgent,
    AttemptKind, LostTurn, PreparedTurn, RecoveredAnswer, RewindSupport, TurnEnd,
};
use crate::config::{ProxyConfig, UpstreamSetting};
use crate::i18n::{LocalizedText, TextKey};
use crate::openai::stream_reader::StreamReader;
use crate::openai::wire::ApprovalEvent;
use crate::openai::{client, error, wire};
use crate::poll_when_woken::poll_when_woken;
use crate::testing::failpoint;
use approvals::PendingApprovals;
use capabilities::KnownCapabilities;
use protocol::TurnProtocol;
use runs::request::run_request;
use runs::run_turn::RunBeginning;
use runs::{UpstreamRunId, UpstreamRuns};

/// Name of the server in error texts.
const WHO: TextKey = TextKey::WhoProxy;

/// Header that counts the relays of a request, so that a circle of relays ends.
const HOPS: &str = "x-talaria-hops";

/// Timeout of each small request beside the turn itself: for the capabilities, for a transcript, to stop a run, to send
/// an answer.
const SMALL_REQUEST: Duration = Duration::from_secs(10);

/// Timeout of the check whether the server is there. A turn waits for it, and the fallback stands ready.
const REACHABLE: Duration = Duration::from_secs(5);

/// The proxy agent.
pub struct ProxyAgent {
    config: ProxyConfig,
    client: reqwest::Client,
    known: Mutex<KnownCapabilities>,
}

impl ProxyAgent {
    /// A client for the configured upstream. Nothing is sent yet.
    pub fn new(config: ProxyConfig) -> Result<Self, reqwest::Error> {
        let client =
            client::build(&config.url, config.key.as_ref(), config.allow_cleartext, &config.timeouts)?;
        Ok(Self { config, client, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, KnownCapabilities> {
        self.known.lock()
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

    fn headers(&self, turn: &AgentTurn, protocol: TurnProtocol) -> HeaderMap {
        let mut headers = self.key();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A server that runs turns is given our history, also in the stream of a turn with files. With the session it
        // would read its own instead, which knows nothing of what `/undo` and `/retry` have changed.
        if self.config.upstream != UpstreamSetting::Runs || protocol == TurnProtocol::Runs {
            client::label(&mut headers, "x-hermes-session-id", Some(&turn.session.0));
        }
        let key = match crate::testing::broken("key") {
            true => crate::util::random_hex(16),
            false => turn.key.clone(),
        };
        client::label(&mut headers, "idempotency-key", Some(&key));
        // Byte for byte or not at all: a changed name could be that of another memory.
        if let Some(memory) = &turn.memory
            && let Ok(memory) = HeaderValue::from_bytes(memory.as_bytes())
        {
            headers.insert("x-hermes-session-key", memory);
        }
        client::label(&mut headers, HOPS, Some(&turn.hops.saturating_add(1).to_string()));
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

    /// Forgets the capabilities after a lost connection: another server may be there.
    fn forget(&self, error: &AgentError) {
        match error.kind {
            AgentErrorKind::NothingRan { .. }
            | AgentErrorKind::Busy { .. }
            | AgentErrorKind::Unknown { .. }
            | AgentErrorKind::Lost => {
                self.known().current = None;
            }
            AgentErrorKind::PrepareAgain
            | AgentErrorKind::Refused
            | AgentErrorKind::Unfit
            | AgentErrorKind::CutShort => {}
        }
    }

    async fn run(
        &self,
        turn: &AgentTurn,
        prepared: PreparedTurn,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let PreparedTurn { request, resumable, agent: _, runtime: _ } = prepared;
        if TurnProtocol::of(&request) == TurnProtocol::Runs {
            return Box::pin(self.run_in_background(turn, request, out, stop)).await;
        }
        if turn.attempt == AttemptKind::Resume && !Box::pin(self.abilities()).await?.idempotent {
            // A server that refused the question may be able to resume once somebody has mended the key.
            let kind = match self.config.upstream == UpstreamSetting::Auto && self.known().current.is_none() {
                true => AgentErrorKind::NothingRan { after: None },
                false => AgentErrorKind::Refused,
            };
            return Err(AgentError::new(kind, TextKey::CannotResume));
        }
        let request = self
            .client
            .post(self.url("/v1/chat/completions"))
            .headers(self.headers(turn, TurnProtocol::Stream))
            .body(request);
        // Boxed: the future that sends a request is large, and gone when the stream begins.
        let mut sending = Box::pin(tokio::time::timeout(self.config.timeouts.first_byte, request.send()));
        let sent = tokio::select! {
            sent = &mut sending => sent,
            () = stop.cancelled() => {
                if resumable {
                    // A resumable stream that nobody reads ends by itself.
                    let begun = tokio::time::timeout(SMALL_REQUEST, sending);
                    self.stop_when_begun(turn, async move {
                        UpstreamRunId::of(&begun.await.ok()?.ok()?.ok()?)
                    });
                }
                return Ok(TurnEnd::Stopped);
            }
        };
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::warn!(error = %error.to_string(), "the upstream was not reached");
                return Err(error::request(WHO, &error.without_url()));
            }
            Err(_) => return Err(error::broken(TextKey::BrokeServerSilent)),
        };
        failpoint("proxy.answered");
        self.read(response, turn, resumable, out, stop).await
    }

    /// Reads the answer, and meanwhile passes the upstream's approvals to people.
    async fn read(
        &self,
        response: Response,
        turn: &AgentTurn,
        resumable: bool,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let approvals = turn.scratch.get_or_default::<PendingApprovals>();
        approvals.begun(UpstreamRunId::of(&response));
        let asides = |approval: ApprovalEvent<'_>| approvals.hear(approval, turn.attempt, &self.runs(), out);
        let reader = StreamReader {
            who: WHO,
            timeouts: &self.config.timeouts,
            numbered: resumable,
            // Only our own server announces that it can repeat an answer.
            tells_subjects: resumable,
            asides: &asides,
            tool_calls: None,
        };
        // Most turns need no approval, so this must cost nothing.
        let mut attending = poll_when_woken(approvals.attend(out));
        let end = tokio::select! {
            biased;
            end = reader.read(response, out, stop) => end,
            never = &mut attending => match never {},
        };
        match &end {
            Ok(TurnEnd::Stopped) if resumable => self.stop_run(turn).await,
            Ok(_) => approvals.ended(),
            Err(_) => {}
        }
        end
    }

    fn runs(&self) -> UpstreamRuns {
        UpstreamRuns { client: self.client.clone(), url: self.url(""), key: self.key() }
    }
}

impl Agent for ProxyAgent {
    fn about(&self) -> AgentInfo {
        let rewind = match (self.config.upstream, self.known().last) {
            (UpstreamSetting::Plain | UpstreamSetting::Talaria | UpstreamSetting::Runs, _) => {
                RewindSupport::Possible
            }
            (UpstreamSetting::Auto, None) => RewindSupport::Unknown,
            // A server that keeps sessions but is not ours does not forget.
            (UpstreamSetting::Auto, Some(known)) if known.sessions && !known.idempotent => {
                RewindSupport::Impossible
            }
            (UpstreamSetting::Auto, Some(_)) => RewindSupport::Possible,
        };
        AgentInfo { rewind, resume: true, ..AgentInfo::new(AgentKind::Proxy, TextKey::AgentRemote) }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            let abilities = self.abilities().await?;
            let (model, question) = (&self.config.model, &turn.into());
            let (request, resumable) = match TurnProtocol::choose(abilities, turn) {
                TurnProtocol::Stream => {
                    (wire::chat_request(model, question, abilities.answered), abilities.idempotent)
                }
                // A run is never begun twice: another try asks how it goes.
                TurnProtocol::Runs => (run_request(model, question), true),
            };
            Ok(PreparedTurn { resumable, ..PreparedTurn::new(turn, request) })
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
            let end = self.run(turn, prepared, out, &stop).await;
            if let Err(error) = &end {
                self.forget(error);
            }
            end
        })
    }

    fn abandon(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        self.stop_work(turn)
    }

    fn until_resumable(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        Some(turn.scratch.get::<RunBeginning>()?.until_begun())
    }

    fn may_recover(&self, prepared: &PreparedTurn) -> bool {
        let is_run = TurnProtocol::of(&prepared.request) == TurnProtocol::Runs;
        is_run || self.known().last.is_some_and(|known| known.transcripts && !known.idempotent)
    }

    fn recover<'a>(
        &'a self,
        lost: LostTurn<'a>,
        out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        Box::pin(self.look_for(lost, out))
    }

    fn operator_lines(&self) -> Vec<LocalizedText> {
        let offers = self.known().last.is_some_and(|known| known.offers_runs);
        offers.then(|| TextKey::StatusOffersRuns.into()).into_iter().collect()
    }

    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.about().rewind == RewindSupport::Unknown
                && let Err(error) = self.abilities().await
            {
                tracing::debug!(%error, "the upstream did not say what it can do");
            }
        })
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        let path = match self.config.upstream {
            UpstreamSetting::Plain => "/v1/models",
            UpstreamSetting::Auto | UpstreamSetting::Talaria | UpstreamSetting::Runs => "/v1/capabilities",
        };
        let question = self.client.get(self.url(path)).headers(self.key()).timeout(REACHABLE);
        Box::pin(async move {
            let answer = question.send().await.map_err(|error| error::request(WHO, &error.without_url()))?;
            match answer.status() {
                // A server that does not know the path is there; a 5xx may come from something in front of it.
                status if matches!(status.as_u16(), 401 | 403) || status.is_server_error() => {
                    Err(error::status(WHO, status, answer.headers(), ""))
                }
                _ => Ok(AnsweringAgent::Agent),
            }
        })
    }
}
