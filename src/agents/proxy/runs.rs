//! Runs at the upstream: their requests (begin, state, stop, answers to asks) and their events.
//!
//! A turn may be a run of its own ([`run_turn`]), or a stream that is also known as a run; then only the requests to
//! stop it and to answer its asks are used.

pub(super) mod ask_order;
mod event_taker;
pub(super) mod request;
pub(super) mod run_event;
pub(super) mod run_turn;
mod status;

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::json;
use talaria_platform::{Backoff, spawn_task};
use tokio::time::Instant;

use super::SMALL_REQUEST;
use crate::access::GrantScope;
use crate::agent::AskChoice;
use status::{NoStatus, RunState, RunStatus};

/// Time within which an answer must reach the upstream. The upstream waits for minutes, not hours, and the person who
/// answered waits for something to happen.
const ANSWER: Duration = Duration::from_secs(60);

/// The pause after the first failed try; each further one is twice as long, up to the second.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(8));

/// Time within which a run must be told to stop: it goes on without a reader.
const STOP: Duration = Duration::from_secs(30);

/// Difference between the time of an ask and the time of the status that it leads to. hermes-agent takes both within
/// microseconds; its next ask comes after another request to its model.
const SAME_ASK: f64 = 0.1;

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

/// The ask that an answer is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AskAddress {
    /// The upstream's id of the ask.
    Id(String),
    /// The upstream has no ids and gives an answer to its oldest open ask. `asked_at`: its time of this ask, in seconds
    /// since 1970.
    Oldest { asked_at: Option<f64> },
}

/// Whether the upstream still waits for the answer to an ask.
enum StillAsked {
    Yes,
    No,
    /// It cannot be asked now.
    Unknown,
}

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
    /// Tells the upstream to stop a run, because a run goes on without a reader. On a task that ends by itself: the
    /// person who stopped the turn does not wait for the upstream.
    pub fn stop(&self, run: &UpstreamRunId) {
        let (runs, run) = (self.clone(), run.clone());
        spawn_task("stop-a-run", async move { runs.tell_to_stop(&run).await });
    }

    /// Tells the upstream to stop a run whose id is not known yet. `beginning` returns the id as soon as the run has
    /// begun; it has a deadline of its own.
    pub fn stop_when_begun(&self, beginning: impl Future<Output = Option<UpstreamRunId>> + Send + 'static) {
        let runs = self.clone();
        spawn_task("stop-a-run-that-begins", async move {
            if let Some(run) = beginning.await {
                runs.tell_to_stop(&run).await;
            }
        });
    }

    /// Sends the answer of a person in one of our rooms.
    pub async fn answer(&self, run: &UpstreamRunId, ask: &AskAddress, choice: &AskChoice) -> AnswerReceipt {
        match choice {
            // An approval for longer than once is sent as `once` too. The grant is kept here, where people may lose
            // their rights and take it back; an upstream that got `always` would never ask again.
            AskChoice::Allow(_) => self.send_choice(run, ask, &AskChoice::Allow(GrantScope::Once)).await,
            AskChoice::Option(_) | AskChoice::Text(_) | AskChoice::Deny(_) => {
                self.send_choice(run, ask, choice).await
            }
        }
    }

    /// Sends an answer as it is, and repeats it until the upstream has it or [`ANSWER`] has passed.
    pub async fn send_choice(
        &self,
        run: &UpstreamRunId,
        ask: &AskAddress,
        choice: &AskChoice,
    ) -> AnswerReceipt {
        let mut body = match choice {
            AskChoice::Allow(scope) => json!({ "choice": scope.name() }),
            AskChoice::Option(id) => json!({ "choice": "answer", "option": id }),
            AskChoice::Text(text) => json!({ "choice": "answer", "text": text }),
            AskChoice::Deny(_) => json!({ "choice": "deny" }),
        };
        if let AskAddress::Id(id) = ask {
            body["approval_id"] = json!(id);
        }
        let body = body.to_string();
        let (deadline, mut backoff) = (Instant::now() + ANSWER, PAUSES);
        loop {
            match self.still_asked(run, ask).await {
                StillAsked::Yes => match self.send_answer(run, &body).await {
                    Some(receipt) => return receipt,
                    None => tracing::debug!("an answer is told again"),
                },
                StillAsked::No => {
                    tracing::warn!("the upstream no longer waits for an answer");
                    return AnswerReceipt::No;
                }
                StillAsked::Unknown => {}
            }
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                tracing::warn!("the upstream could not be told an answer");
                return AnswerReceipt::No;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Denies every open ask of a run whose asks have no ids. Returns whether there was one.
    pub async fn decline_all(&self, run: &UpstreamRunId) -> bool {
        let body = json!({ "choice": "deny", "all": true }).to_string();
        self.send_answer(run, &body).await == Some(AnswerReceipt::Yes)
    }

    /// `None` if the same answer is worth another try.
    async fn send_answer(&self, run: &UpstreamRunId, body: &str) -> Option<AnswerReceipt> {
        let request = self.to(run, "/approval").header("content-type", "application/json");
        match request.body(body.to_owned()).send().await {
            Ok(response) if response.status().is_success() => Some(AnswerReceipt::Yes),
            Ok(response) if !matches!(response.status().as_u16(), 408 | 429 | 500..) => {
                tracing::warn!(status = %response.status(), "the upstream did not take an answer");
                Some(AnswerReceipt::No)
            }
            Ok(response) => {
                tracing::debug!(status = %response.status(), "an answer did not arrive");
                None
            }
            Err(error) => {
                tracing::debug!(error = %error.without_url(), "an answer did not arrive");
                None
            }
        }
    }

    /// Whether an answer now is an answer to this ask. An ask without an id may have timed out at the upstream, and then
    /// the answer would decide about its next one, which nobody has seen.
    async fn still_asked(&self, run: &UpstreamRunId, ask: &AskAddress) -> StillAsked {
        let AskAddress::Oldest { asked_at } = ask else { return StillAsked::Yes };
        match self.status(run).await.map(RunStatus::state) {
            Ok(RunState::Asks { at }) => match (at, asked_at) {
                (Some(at), Some(asked_at)) if (at - asked_at).abs() > SAME_ASK => StillAsked::No,
                _ => StillAsked::Yes,
            },
            Ok(
                RunState::Working | RunState::Completed { .. } | RunState::Failed(_) | RunState::Cancelled,
            ) => StillAsked::No,
            Err(NoStatus::Gone | NoStatus::Odd | NoStatus::Refused(_)) => StillAsked::No,
            Err(NoStatus::NotNow(_)) => StillAsked::Unknown,
        }
    }

    /// Repeats the request until the upstream has answered it or [`STOP`] has passed.
    pub async fn tell_to_stop(&self, run: &UpstreamRunId) {
        let (deadline, mut backoff) = (Instant::now() + STOP, PAUSES);
        loop {
            match self.to(run, "/stop").send().await {
                Ok(response) if !matches!(response.status().as_u16(), 408 | 429 | 500..) => return,
                Ok(response) => {
                    tracing::debug!(status = %response.status(), "the upstream is told again to stop")
                }
                Err(error) => {
                    tracing::debug!(error = %error.without_url(), "the upstream is told again to stop")
                }
            }
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                tracing::warn!("the upstream could not be told to stop a run");
                return;
            }
            tokio::time::sleep(pause).await;
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
