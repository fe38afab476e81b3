//! Runs at the upstream: their requests (begin, state, stop, answers to asks) and their events.
//!
//! A turn may be a run of its own ([`run_turn`]), or a stream that is also known as a run; then only the requests to
//! stop it and to answer its asks are used.

mod answers;
pub(super) mod ask_order;
mod event_taker;
mod final_text;
pub(super) mod masks;
pub(super) mod request;
pub(super) mod run_event;
pub(super) mod run_turn;
mod status;
pub(super) mod stop_work;

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use talaria_platform::Backoff;
use tokio::time::Instant;

use super::SMALL_REQUEST;
pub(crate) use answers::{AnswerReceipt, AskAddress};
use status::{NoStatus, RunState, RunStatus};

/// The pause after the first failed try; each further one is twice as long, up to the second.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(8));

/// Time within which a run must be told to stop: it goes on without a reader.
const STOP: Duration = Duration::from_secs(30);

/// Most characters in the id of a run or an ask. No server uses as many.
const ID: usize = 128;

/// Client for the upstream's runs. Owns all it needs, because some requests outlive the turn.
#[derive(Clone)]
pub(crate) struct UpstreamRuns {
    pub client: reqwest::Client,
    /// Base URL of the upstream, without a path.
    pub url: String,
    pub key: HeaderMap,
}

/// The upstream's id of a run. Has no character that could lead to another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamRunId(String);

impl UpstreamRunId {
    /// `None` if `id` is not in the form of an id.
    pub fn new(id: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (!id.is_empty() && id.len() <= ID && id.bytes().all(plain)).then(|| Self(id.to_owned()))
    }

    /// The id itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the id from the headers of a response.
    pub fn of(response: &Response) -> Option<Self> {
        Self::new(response.headers().get("x-hermes-run-id")?.to_str().ok()?)
    }
}

impl UpstreamRuns {
    /// Repeats the request until the run has been told, or is over, or [`STOP`] has passed.
    pub async fn tell_to_stop(&self, run: &UpstreamRunId) {
        let (deadline, mut backoff) = (Instant::now() + STOP, PAUSES);
        loop {
            match self.to(run, "/stop").send().await {
                Ok(response) if response.status().is_success() => return,
                // hermes-agent says 404 of a run that is over, and a server in front of it may say so of anything.
                Ok(response) if response.status().is_client_error() && self.is_over(run).await => return,
                Ok(response) => {
                    tracing::debug!(status = %response.status(), "the upstream is told again to stop")
                }
                Err(error) => {
                    tracing::debug!(error = %error.without_url(), "the upstream is told again to stop")
                }
            }
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                tracing::warn!(
                    run = run.as_str(),
                    "the upstream could not be told to stop a run, which may go on"
                );
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether the upstream says that a run has ended, or does not know it.
    async fn is_over(&self, run: &UpstreamRunId) -> bool {
        match self.status(run).await.map(RunStatus::state) {
            Ok(RunState::Completed { .. } | RunState::Failed(_) | RunState::Cancelled)
            | Err(NoStatus::Gone) => true,
            Ok(RunState::Working | RunState::Asks { .. } | RunState::MayAsk)
            | Err(NoStatus::Odd | NoStatus::NotNow(_) | NoStatus::Refused(_)) => false,
        }
    }

    fn to(&self, run: &UpstreamRunId, what: &str) -> RequestBuilder {
        self.client.post(self.address(run, what)).headers(self.key.clone()).timeout(SMALL_REQUEST)
    }

    fn address(&self, UpstreamRunId(run): &UpstreamRunId, what: &str) -> String {
        format!("{}/v1/runs/{run}{what}", self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_run_cannot_lead_elsewhere() {
        for good in ["run_0af", "run-7", "A"] {
            assert_eq!(UpstreamRunId::new(good), Some(UpstreamRunId(good.to_owned())));
        }
        for bad in ["", "..", "a/b", "a?b", "a b", "ü", "a%2f", &"x".repeat(ID + 1)] {
            assert_eq!(UpstreamRunId::new(bad), None, "{bad}");
        }
    }
}
