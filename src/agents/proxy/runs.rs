//! Requests about a run at the upstream: stop it, answer its asks.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::json;
use talaria_platform::{Backoff, spawn_task};
use tokio::time::Instant;

use super::SMALL_REQUEST;
use crate::access::GrantScope;
use crate::agent::AskChoice;

/// Time within which an answer must reach the upstream. The upstream waits for minutes, not hours, and the person who
/// answered waits for something to happen.
const ANSWER: Duration = Duration::from_secs(60);

/// The pause after the first failed try; each further one is twice as long, up to the second.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(8));

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

/// Whether the upstream has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerReceipt {
    /// The upstream has taken it.
    Yes,
    /// The upstream no longer asks, refuses the answer, or is away. Without an answer it denies by itself.
    No,
}

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
    /// Tells the upstream to stop a run, because a resumable run goes on without a reader for a while. Best effort, on
    /// a task that ends by itself: the person who stopped the turn does not wait for the upstream.
    pub fn stop(&self, run: &UpstreamRunId) {
        spawn_task("stop-a-run", tell_to_stop(self.to(run, "stop")));
    }

    /// Tells the upstream to stop a run whose id is not known yet. The id comes with the response, as soon as the run
    /// has begun, so the task waits for it, but only for [`SMALL_REQUEST`]: a run that nobody reads ends by itself.
    pub fn stop_when_begun(&self, sending: impl Future<Output = Option<Response>> + Send + 'static) {
        let runs = self.clone();
        spawn_task("stop-a-run-that-begins", async move {
            let begun = tokio::time::timeout(SMALL_REQUEST, sending).await.ok().flatten();
            if let Some(run) = begun.as_ref().and_then(UpstreamRunId::of) {
                tell_to_stop(runs.to(&run, "stop")).await;
            }
        });
    }

    /// Sends the answer of a person in one of our rooms.
    pub async fn answer(&self, run: &UpstreamRunId, approval: &str, choice: &AskChoice) -> AnswerReceipt {
        match choice {
            // An approval for longer than once is sent as `once` too. The grant is kept here, where people may lose
            // their rights and take it back; an upstream that got `always` would never ask again.
            AskChoice::Allow(_) => self.send_choice(run, approval, &AskChoice::Allow(GrantScope::Once)).await,
            AskChoice::Option(_) | AskChoice::Text(_) | AskChoice::Deny(_) => {
                self.send_choice(run, approval, choice).await
            }
        }
    }

    /// Sends an answer as it is, and repeats it until the upstream has it or [`ANSWER`] has passed.
    pub async fn send_choice(
        &self,
        run: &UpstreamRunId,
        approval: &str,
        choice: &AskChoice,
    ) -> AnswerReceipt {
        let body = match choice {
            AskChoice::Allow(scope) => json!({ "approval_id": approval, "choice": scope.name() }),
            AskChoice::Option(id) => json!({ "approval_id": approval, "choice": "answer", "option": id }),
            AskChoice::Text(text) => json!({ "approval_id": approval, "choice": "answer", "text": text }),
            AskChoice::Deny(_) => json!({ "approval_id": approval, "choice": "deny" }),
        };
        let body = body.to_string();
        let (deadline, mut backoff) = (Instant::now() + ANSWER, PAUSES);
        loop {
            let request = self.to(run, "approval").header("content-type", "application/json");
            match request.body(body.clone()).send().await {
                Ok(response) if response.status().is_success() => return AnswerReceipt::Yes,
                Ok(response) if !matches!(response.status().as_u16(), 408 | 429 | 500..) => {
                    tracing::warn!(status = %response.status(), "the upstream did not take an answer");
                    return AnswerReceipt::No;
                }
                Ok(response) => tracing::debug!(status = %response.status(), "an answer is told again"),
                Err(error) => tracing::debug!(error = %error.without_url(), "an answer is told again"),
            }
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                tracing::warn!("the upstream could not be told an answer");
                return AnswerReceipt::No;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// A request to a path below a run.
    pub fn to(&self, UpstreamRunId(run): &UpstreamRunId, what: &str) -> RequestBuilder {
        let url = format!("{}/v1/runs/{run}/{what}", self.url);
        self.client.post(url).headers(self.key.clone()).timeout(SMALL_REQUEST)
    }
}

async fn tell_to_stop(request: RequestBuilder) {
    if let Err(error) = request.send().await {
        tracing::debug!(error = %error.without_url(), "the upstream was not told to stop");
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
