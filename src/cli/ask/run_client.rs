//! The requests of `talaria ask`, and what their failures mean.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;
use talaria_platform::Backoff;
use tokio::time::Instant;

use super::failure::{AskFailure, FailureExit};
use super::interrupt::Interrupt;
use super::server_access::ServerAccess;
use crate::agents::proxy::runs::{UpstreamRunId, UpstreamRuns};
use crate::config::UpstreamTimeouts;
use crate::i18n::{LocalizedText, TextKey};
use crate::openai::{client, error};
use crate::util::visible_line;

/// Time limit of a small request.
const SMALL_REQUEST: Duration = Duration::from_secs(10);

/// Time limit of the request that starts a run: ten megabytes over a poor line.
const START: Duration = Duration::from_secs(120);

/// Longest wait for the head of a stream of events.
const FIRST_BYTE: Duration = Duration::from_secs(30);

/// Longest silence of a stream: four of the server's keepalive comments.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// The pause after the first failed try, and the longest one.
pub(super) const PAUSES: Backoff = Backoff::between(Duration::from_millis(200), Duration::from_secs(5));

/// Most bytes of a small answer that are read.
const ANSWER: usize = 1024 * 1024;

/// Most characters of the server's own words, and of a name, that are shown.
const WORDS: usize = 500;

/// Client of one server.
pub(super) struct RunClient {
    /// Requests about a run that exists.
    pub runs: UpstreamRuns,
    /// Time for which a lost connection or a busy server is tried again.
    pub retry_for: Duration,
    has_home_key: bool,
    has_key: bool,
}

/// A run that the server has accepted.
pub(super) struct StartedRun {
    pub run: UpstreamRunId,
    pub session: String,
    /// Name of the agent that answers.
    pub agent: Option<String>,
}

/// Why a request failed, by what follows.
pub(super) enum RequestFailure {
    /// The same request may succeed in a moment.
    Temporary {
        failure: AskFailure,
        /// Pause that the server asks for.
        after: Option<Duration>,
        /// Nothing listens at the address.
        is_absent: bool,
    },
    /// Another try would fail in the same way.
    Final(AskFailure),
}

impl RequestFailure {
    pub(super) fn into_failure(self) -> AskFailure {
        match self {
            Self::Temporary { failure, .. } | Self::Final(failure) => failure,
        }
    }
}

impl RunClient {
    /// A client for this server. Nothing is sent yet.
    pub(super) fn new(access: ServerAccess, retry_for: Duration) -> Result<Self, AskFailure> {
        let ServerAccess { url, key, has_home_key } = access;
        let timeouts = UpstreamTimeouts {
            connect: SMALL_REQUEST,
            first_byte: FIRST_BYTE,
            idle: SILENCE,
            keepalive_idle: SILENCE,
        };
        let client = client::build(&url, key.as_ref(), false, &timeouts)
            .map_err(|error| AskFailure::unanswered(format!("no HTTP client could be made: {error}")))?;
        let mut headers = HeaderMap::new();
        headers.extend(key.as_ref().and_then(client::bearer).map(|bearer| (AUTHORIZATION, bearer)));
        let runs = UpstreamRuns { client, url: url.as_str().to_owned(), key: headers };
        Ok(Self { runs, retry_for, has_home_key, has_key: key.is_some() })
    }

    /// Checks that the server has an agent of this name: it would answer as the default agent to a name that it does not
    /// know, and nobody would notice the slip.
    pub(super) async fn check_agent(&self, agent: &str) -> Result<(), AskFailure> {
        let list = Url::parse(&self.url("/v1/models"))
            .map_err(|error| AskFailure::unanswered(format!("the address cannot be used: {error}")))?;
        let mut model = list.clone();
        if let Ok(mut path) = model.path_segments_mut() {
            path.push(agent);
        }
        if self.get(model).await?.status().is_success() {
            return Ok(());
        }
        let list = self.accepted(self.get(list).await?).await.map_err(RequestFailure::into_failure)?;
        let list = json(list).await;
        let listed = list["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str());
        let names: Vec<String> = listed.map(|name| visible_line(name, WORDS)).collect();
        let message =
            format!("the server has no agent {}, or this key may not ask it", visible_line(agent, WORDS));
        Err(AskFailure::wrong(message, &format!("it has {}", names.join(", "))))
    }

    async fn get(&self, url: Url) -> Result<Response, AskFailure> {
        let request = self.runs.client.get(url).headers(self.runs.key.clone()).timeout(SMALL_REQUEST);
        request.send().await.map_err(|error| self.lost(error).into_failure())
    }

    /// Starts a run. The same key never starts a second one, so a request that was lost is sent again.
    pub(super) async fn start(
        &self,
        body: Vec<u8>,
        key: &str,
        interrupt: &Interrupt,
    ) -> Result<StartedRun, AskFailure> {
        let body = bytes::Bytes::from(body);
        let (deadline, mut backoff, mut was_there) = (Instant::now() + self.retry_for, PAUSES, false);
        loop {
            let mut starting = Box::pin(self.try_to_start(body.clone(), key));
            let started = tokio::select! {
                biased;
                started = &mut starting => started,
                // The run may have begun by now; then its id comes in a moment, and it can be stopped.
                () = interrupt.came() => match tokio::time::timeout(SMALL_REQUEST, starting).await {
                    Ok(started) => started,
                    Err(_) => return Err(interrupt.failure()),
                },
            };
            let (failure, after) = match started {
                Ok(started) => return Ok(started),
                // A server that was busy a moment ago may be on its way back.
                Err(RequestFailure::Temporary { failure, after, is_absent }) if was_there || !is_absent => {
                    (failure, after)
                }
                Err(failure) => return Err(failure.into_failure()),
            };
            was_there = true;
            let pause = after.unwrap_or_default().max(backoff.advance());
            if Instant::now() + pause > deadline {
                return Err(failure);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupt.came() => return Err(interrupt.failure()),
            }
        }
    }

    async fn try_to_start(&self, body: bytes::Bytes, key: &str) -> Result<StartedRun, RequestFailure> {
        let request = self.runs.client.post(self.url("/v1/runs")).headers(self.runs.key.clone());
        let request = request.header(CONTENT_TYPE, "application/json").header("idempotency-key", key);
        let sent = request.body(body).timeout(START).send().await.map_err(|error| self.lost(error))?;
        let begun = json(self.accepted(sent).await?).await;
        let text = |name: &str| begun[name].as_str().map(|text| visible_line(text, WORDS));
        let run = begun["run_id"].as_str().and_then(UpstreamRunId::new);
        let (Some(run), Some(session)) = (run, text("session_id")) else {
            return Err(RequestFailure::Final(self.no_server("its answer names no run")));
        };
        Ok(StartedRun { run, session, agent: text("model") })
    }

    /// Opens the events of a run behind the one with this id; empty for all of them.
    pub(super) async fn events(&self, run: &UpstreamRunId, after: &str) -> Result<Response, RequestFailure> {
        let url = self.url(&format!("/v1/runs/{}/events", run.as_str()));
        let mut request = self.runs.client.get(url).headers(self.runs.key.clone());
        if !after.is_empty() {
            request = request.header("last-event-id", after);
        }
        let sent = tokio::time::timeout(FIRST_BYTE, request.send()).await;
        let sent = sent.map_err(|_| temporary("the server does not answer", None, false))?;
        let response = self.accepted(sent.map_err(|error| self.lost(error))?).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.starts_with("text/event-stream") {
            true => Ok(response),
            false => Err(RequestFailure::Final(self.no_server("it does not stream the events of a run"))),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.runs.url)
    }

    /// A request that got no answer.
    fn lost(&self, error: reqwest::Error) -> RequestFailure {
        let why = error::reason(&error);
        let failure = AskFailure::unreachable(
            format!("the server at {} cannot be reached: {}", self.runs.url, LocalizedText::from(why)),
            "start it with `talaria serve`, or correct --url or TALARIA_URL",
        );
        match error.is_builder() || why == TextKey::WhyInTheClear {
            true => RequestFailure::Final(failure),
            false => RequestFailure::Temporary { failure, after: None, is_absent: error.is_connect() },
        }
    }

    /// The answer, if the server accepted the request.
    async fn accepted(&self, response: Response) -> Result<Response, RequestFailure> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let after =
            response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let after = after.map(Duration::from_secs);
        let body = json(response).await;
        let said = body["error"]["message"].as_str().map(|said| visible_line(without_sign(said), WORDS));
        let code = body["error"]["code"].as_str().map(|code| visible_line(code, WORDS));
        let words = match &said {
            Some(said) => format!("{said} ({})", status.as_u16()),
            None => format!("it answers with status {}", status.as_u16()),
        };
        let failure = |exit, hint: Option<&str>| AskFailure {
            code: code.clone(),
            ..AskFailure::new(exit, format!("the server refused: {words}"), hint)
        };
        Err(match status {
            StatusCode::UNAUTHORIZED => {
                let (message, hint) = self.key_words();
                RequestFailure::Final(AskFailure {
                    code,
                    ..AskFailure::new(FailureExit::Refused, message, Some(hint))
                })
            }
            StatusCode::FORBIDDEN => RequestFailure::Final(failure(FailureExit::Refused, None)),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED if code.is_none() => {
                RequestFailure::Final(self.no_server("it has no runs"))
            }
            _ if status.is_redirection() => {
                RequestFailure::Final(self.no_server("it sends us elsewhere, where Talaria does not follow"))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => temporary(&words, after, false),
            StatusCode::CONFLICT if after.is_some() => temporary(&words, after, false),
            _ if status.is_server_error() => temporary(&words, after, false),
            _ => RequestFailure::Final(failure(FailureExit::Unanswered, None)),
        })
    }

    /// What is wrong with the key, and the next step.
    fn key_words(&self) -> (&'static str, &'static str) {
        match (self.has_key, self.has_home_key) {
            (true, false) => (
                "the server does not accept the key",
                "set TALARIA_API_KEY, or name the file with the right one with --key-file",
            ),
            (true, true) => (
                "the server does not accept the key in its state folder",
                "if it runs with another key, set TALARIA_API_KEY to that one",
            ),
            (false, _) => (
                "the server asks for a key",
                "set TALARIA_API_KEY, or name a file with --key-file; `talaria token add NAME` over there makes one",
            ),
        }
    }

    fn no_server(&self, why: &str) -> AskFailure {
        AskFailure::unreachable(
            format!("there is no Talaria server at {}: {why}", self.runs.url),
            "correct --url or TALARIA_URL",
        )
    }
}

/// The words of an error without the warning sign that they begin with in rooms: `error:` stands before them here.
pub(super) fn without_sign(words: &str) -> &str {
    words.trim_start_matches(['⚠', '\u{fe0f}', ' '])
}

fn temporary(words: &str, after: Option<Duration>, is_absent: bool) -> RequestFailure {
    let failure =
        AskFailure::unreachable(format!("the server is busy or away: {words}"), "try again in a moment");
    RequestFailure::Temporary { failure, after, is_absent }
}

/// A small answer as JSON; null if it is too long, too slow or no JSON.
async fn json(mut response: Response) -> Value {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(SMALL_REQUEST, reading).await;
    serde_json::from_slice(&body).unwrap_or_default()
}
