//! Sends answers to the asks of a run, and says of each whether the upstream has it.
//!
//! A request whose response was lost may have arrived. Then nobody knows whether a command that was approved ran, and the
//! receipt says just that.

use std::time::Duration;

use serde_json::json;
use talaria_platform::CancellationToken;
use tokio::time::Instant;

use super::ask_order::is_same_ask;
use super::status::{NoStatus, RunState, RunStatus};
use super::{PAUSES, UpstreamRunId, UpstreamRuns};
use crate::access::GrantScope;
use crate::agent::AskChoice;

/// Time within which an answer must reach the upstream. The upstream waits for minutes, not hours, and the person who
/// answered waits for something to happen.
const ANSWER: Duration = Duration::from_secs(60);

/// The ask that an answer is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AskAddress {
    /// The upstream's id of the ask.
    Id(String),
    /// The upstream has no ids and gives an answer to its oldest open ask. `asked_at`: its time of this ask, in seconds
    /// since 1970.
    Oldest { asked_at: Option<f64> },
}

/// Whether the upstream has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerReceipt {
    /// The upstream has taken it.
    Taken,
    /// The upstream has not taken it and no longer asks: it has denied by itself.
    Over,
    /// The upstream has not taken it, and may still ask.
    Missed,
    /// A request with it may have arrived or not.
    Unknown,
}

/// Whether the upstream still waits for the answer to an ask.
enum StillAsked {
    Yes,
    /// It waits for no answer.
    Over,
    /// It may wait for the answer to another ask, or to more than one.
    Doubtful,
    /// It cannot be asked now.
    Unknown,
}

/// Result of one request with an answer.
enum SentAnswer {
    Taken,
    /// The upstream waits for no answer.
    NothingAsked,
    /// The upstream refuses the answer.
    Refused,
    /// The upstream has certainly not taken it, and may take the same later.
    NotNow,
    /// The response was lost.
    Unknown,
}

impl UpstreamRuns {
    /// Sends the answer of a person in one of our rooms. Sends nothing more once `withdrawn` has fired.
    pub async fn answer(
        &self,
        run: &UpstreamRunId,
        ask: &AskAddress,
        choice: &AskChoice,
        withdrawn: &CancellationToken,
    ) -> AnswerReceipt {
        match choice {
            // An approval for longer than once is sent as `once` too. The grant is kept here, where people may lose
            // their rights and take it back; an upstream that got `always` would never ask again.
            AskChoice::Allow(_) => {
                self.send_choice(run, ask, &AskChoice::Allow(GrantScope::Once), withdrawn).await
            }
            AskChoice::Option(_) | AskChoice::Text(_) | AskChoice::Deny(_) => {
                self.send_choice(run, ask, choice, withdrawn).await
            }
        }
    }

    /// Sends an answer as it is, and repeats it until the upstream has it, [`ANSWER`] has passed or `withdrawn` has
    /// fired.
    pub async fn send_choice(
        &self,
        run: &UpstreamRunId,
        ask: &AskAddress,
        choice: &AskChoice,
        withdrawn: &CancellationToken,
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
        // If this has arrived, a repetition would allow the next thing that is asked there, which nobody has seen.
        let is_sent_once = matches!((ask, choice), (AskAddress::Oldest { .. }, AskChoice::Allow(_)));
        let (deadline, mut backoff, mut may_have_arrived) = (Instant::now() + ANSWER, PAUSES, false);
        let end = loop {
            let still_asked = self.still_asked(run, ask).await;
            if withdrawn.is_cancelled() {
                break AnswerReceipt::Missed;
            }
            match still_asked {
                StillAsked::Yes => match self.send_answer(run, &body).await {
                    SentAnswer::Taken => return AnswerReceipt::Taken,
                    SentAnswer::NothingAsked => break AnswerReceipt::Over,
                    SentAnswer::Refused => break AnswerReceipt::Missed,
                    SentAnswer::NotNow => {}
                    SentAnswer::Unknown if is_sent_once => {
                        may_have_arrived = true;
                        break AnswerReceipt::Unknown;
                    }
                    SentAnswer::Unknown => may_have_arrived = true,
                },
                StillAsked::Over => break AnswerReceipt::Over,
                StillAsked::Doubtful => break AnswerReceipt::Missed,
                StillAsked::Unknown => {}
            }
            tracing::debug!("an answer is told again");
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                break AnswerReceipt::Missed;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = withdrawn.cancelled() => break AnswerReceipt::Missed,
            }
        };
        tracing::warn!(may_have_arrived, "the upstream did not confirm an answer");
        if may_have_arrived { AnswerReceipt::Unknown } else { end }
    }

    /// Denies every open ask of a run whose asks have no ids. Returns as soon as the upstream has said that none is open;
    /// until then the request is repeated for as long as the future is polled.
    pub async fn decline_all(&self, run: &UpstreamRunId) {
        let body = json!({ "choice": "deny", "all": true }).to_string();
        let mut backoff = PAUSES;
        loop {
            match self.send_answer(run, &body).await {
                SentAnswer::Taken | SentAnswer::NothingAsked => return,
                SentAnswer::Refused | SentAnswer::NotNow | SentAnswer::Unknown => {
                    tracing::debug!("the upstream is told again to deny everything");
                }
            }
            tokio::time::sleep(backoff.advance()).await;
        }
    }

    async fn send_answer(&self, run: &UpstreamRunId, body: &str) -> SentAnswer {
        let request = self.to(run, "/approval").header("content-type", "application/json");
        match request.body(body.to_owned()).send().await {
            Ok(response) => {
                let status = response.status();
                tracing::debug!(%status, "the upstream was told an answer");
                match status.as_u16() {
                    200..=299 => SentAnswer::Taken,
                    404 | 409 | 410 => SentAnswer::NothingAsked,
                    429 | 503 => SentAnswer::NotNow,
                    408 | 500.. => SentAnswer::Unknown,
                    _ => SentAnswer::Refused,
                }
            }
            // The request was never written.
            Err(error) if error.is_connect() => SentAnswer::NotNow,
            Err(error) => {
                tracing::debug!(error = %error.without_url(), "an answer may not have arrived");
                SentAnswer::Unknown
            }
        }
    }

    /// Whether an answer now is an answer to this ask. An ask without an id may have timed out at the upstream, and then
    /// the answer would decide about its next one, which nobody has seen.
    async fn still_asked(&self, run: &UpstreamRunId, ask: &AskAddress) -> StillAsked {
        let AskAddress::Oldest { asked_at } = ask else { return StillAsked::Yes };
        match self.status(run).await.map(RunStatus::state) {
            Ok(RunState::Asks { at }) if is_same_ask(at, *asked_at) => StillAsked::Yes,
            Ok(RunState::Asks { .. } | RunState::MayAsk) => StillAsked::Doubtful,
            Ok(
                RunState::Working | RunState::Completed { .. } | RunState::Failed(_) | RunState::Cancelled,
            )
            | Err(NoStatus::Gone) => StillAsked::Over,
            Err(NoStatus::Odd | NoStatus::Refused(_)) => StillAsked::Doubtful,
            Err(NoStatus::NotNow(_)) => StillAsked::Unknown,
        }
    }
}
