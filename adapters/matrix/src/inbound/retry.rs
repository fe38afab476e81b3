//! Retries requests to a homeserver that is away.

use std::time::Duration;

use matrix_sdk::config::RequestConfig;
use matrix_sdk::{Client, HttpError};
use talaria_platform::{Backoff, PlatformErrorKind, jitter};
use tokio::time::Instant;

use super::time_budget::TimeBudget;
use crate::error::kind_of;

/// Pauses between attempts. Most failures are a restart or a lost connection, and over in a moment. The homeserver may
/// ask for more than the longest.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(250), Duration::from_secs(10));
/// Time limit for one request. For pages of history the homeserver asks other servers, which takes a while.
const REQUEST: Duration = Duration::from_secs(60);

/// A response within this time costs nothing of the budget: however many messages came while we were away, a healthy
/// homeserver is asked for all of them.
const QUICK: Duration = Duration::from_millis(500);

/// Failures after which we check whether only this request fails.
pub(super) const FAULTS: u32 = 6;
/// Time limit for the check that `FAULTS` failures lead to.
const PROBE: Duration = Duration::from_secs(10);

/// Pauses of one request that may fail several times in a row.
#[derive(Debug)]
pub(super) struct RetryBackoff {
    pauses: Backoff,
    tried: bool,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self { pauses: PAUSES, tried: false }
    }
}

impl RetryBackoff {
    /// Whether the last attempt failed.
    pub fn is_tried(&self) -> bool {
        self.tried
    }

    /// Resets the count after a success.
    pub fn rest(&mut self) {
        *self = Self::default();
    }

    /// The pause after one more failure; at least `wanted`, which the homeserver asks for.
    pub fn next(&mut self, wanted: Option<Duration>) -> Duration {
        self.tried = true;
        jitter(self.pauses.advance()).max(wanted.unwrap_or_default())
    }
}

/// Repeats a request for as long as waiting may help. Returns an error only if waiting does not.
pub(super) async fn insist<T, F>(what: &'static str, request: impl FnMut() -> F) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
{
    repeat(what, FAULTS, &TimeBudget::endless(), request, || async { false }).await
}

/// Repeats a request about one room, or one thing in it. If only this request keeps failing, it must not end the
/// reading of all others: after so many `faults`, or when the `time` is spent, it fails with an error of the kind
/// `Retry`.
pub(super) async fn insist_on_room<T, F>(
    client: &Client,
    what: &'static str,
    faults: u32,
    time: &TimeBudget,
    request: impl FnMut() -> F,
) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
{
    let is_there = || async { matches!(tokio::time::timeout(PROBE, client.whoami()).await, Ok(Ok(_))) };
    repeat(what, faults, time, request, is_there).await
}

/// Gives up after `most` failures, or when the `time` is spent, once `is_there` says that the homeserver answers
/// other requests. While it does not, nobody waits for us to continue, and no time is spent.
async fn repeat<T, F, P>(
    what: &'static str,
    most: u32,
    time: &TimeBudget,
    mut request: impl FnMut() -> F,
    mut is_there: impl FnMut() -> P,
) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
    P: Future<Output = bool>,
{
    let mut patience = RetryBackoff::default();
    let (mut faults, mut last) = (0, false);
    loop {
        let began = Instant::now();
        let came = request().await;
        time.spend(began.elapsed().saturating_sub(QUICK));
        let error = match came {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let after = match kind_of(&error) {
            PlatformErrorKind::Retry { after } => after,
            PlatformErrorKind::Gone
            | PlatformErrorKind::Rejected
            | PlatformErrorKind::Unsupported
            | PlatformErrorKind::Fatal => {
                return Err(error);
            }
        };
        let pause = patience.next(after);
        let is_late = !time.has(pause);
        // A rate limit is no fault, and proves that the homeserver is there. A timeout is a fault, and so is a
        // malformed response.
        if after.is_some() {
            if is_late {
                return Err(error);
            }
        } else {
            faults += 1;
            if last {
                return Err(error);
            }
            // The homeserver may be back just now, so the request is made once more.
            if faults >= most || is_late {
                let began = Instant::now();
                last = is_there().await;
                if last {
                    time.spend(began.elapsed());
                    continue;
                }
                time.renew();
            }
        }
        tracing::debug!(what, %error, "the homeserver is asked again");
        tokio::time::sleep(pause).await;
        time.spend(pause);
    }
}

/// Configuration for one attempt with a timeout: we decide ourselves whether to repeat it.
pub(super) fn once() -> RequestConfig {
    RequestConfig::new().disable_retry().timeout(REQUEST)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use matrix_sdk::ruma::api::EndpointError as _;
    use matrix_sdk::ruma::api::client::uiaa::UiaaResponse;
    use matrix_sdk::ruma::api::error::FromHttpResponseError;
    use matrix_sdk::ruma::exports::http;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn answer(status: u16) -> HttpError {
        let response = http::Response::builder().status(status).body(b"no".to_vec()).unwrap();
        FromHttpResponseError::Server(UiaaResponse::from_http_response(response)).into()
    }

    /// Makes a request that gets these statuses, the last of them for ever; the homeserver answers other requests
    /// after `there_after` probes. Returns how often the request was made, and its result.
    async fn asked(answers: &[u16], there_after: u32) -> (usize, Result<(), HttpError>) {
        asked_with(FAULTS, &TimeBudget::endless(), answers, there_after).await
    }

    async fn asked_with(
        most: u32,
        time: &TimeBudget,
        answers: &[u16],
        there_after: u32,
    ) -> (usize, Result<(), HttpError>) {
        let (asked, probed) = (Cell::new(0), Cell::new(0));
        let request = || {
            let status = answers[asked.get().min(answers.len() - 1)];
            asked.set(asked.get() + 1);
            async move { if status == 200 { Ok(()) } else { Err(answer(status)) } }
        };
        let is_there = || {
            probed.set(probed.get() + 1);
            let there = probed.get() > there_after;
            async move { there }
        };
        let came = repeat("a test", most, time, request, is_there).await;
        (asked.get(), came)
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_ever_is_given_up_once_the_homeserver_is_there() {
        let most = usize::try_from(FAULTS).unwrap();
        let (times, came) = asked(&[500], 0).await;
        assert_eq!(times, most + 1);
        assert!(came.is_err());

        // The homeserver answers nothing: that is no reason to give up.
        let (times, came) = asked(&[502], 50).await;
        assert_eq!(times, most + 51);
        assert!(came.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_homeserver_that_is_just_back_is_asked_once_more() {
        let (times, came) = asked(&[502, 502, 502, 502, 502, 502, 200], 0).await;
        assert_eq!(times, 7);
        assert!(came.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn to_ask_too_often_is_no_fault_and_a_refusal_is_final() {
        let mut slow = [429; 40];
        slow[39] = 200;
        let (times, came) = asked(&slow, 0).await;
        assert_eq!(times, 40);
        assert!(came.is_ok());

        let (times, came) = asked(&[404], 0).await;
        assert_eq!(times, 1);
        assert!(came.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn when_its_time_is_spent_it_is_given_up_whatever_the_homeserver_says() {
        for status in [500, 429] {
            let (time, began) = (TimeBudget::new(MINUTE), Instant::now());
            let (_, came) = asked_with(u32::MAX, &time, &[status], 0).await;
            // The paused clock is coarse.
            let most = MINUTE + Duration::from_secs(1);
            assert!(came.is_err() && began.elapsed() < most, "{status}: {:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_leaves_less_time_for_the_rest() {
        let time = TimeBudget::new(MINUTE);
        for _ in 0..3 {
            let slow = || async {
                tokio::time::sleep(MINUTE / 3 + QUICK).await;
                Ok(())
            };
            assert!(time.has(Duration::ZERO));
            assert!(repeat("a test", FAULTS, &time, slow, || async { true }).await.is_ok());
        }
        assert!(!time.has(Duration::ZERO));
        time.renew();
        assert!(time.has(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn however_much_is_asked_a_homeserver_that_is_well_is_asked_for_all_of_it() {
        let time = TimeBudget::new(MINUTE);
        for _ in 0..1_000 {
            let quick = || async {
                tokio::time::sleep(QUICK).await;
                Ok(())
            };
            assert!(repeat("a test", FAULTS, &time, quick, || async { true }).await.is_ok());
        }
        assert!(time.has(MINUTE / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_homeserver_is_away_no_time_is_spent() {
        let (time, began) = (TimeBudget::new(MINUTE), Instant::now());
        let mut back = [502; 60];
        back[59] = 200;
        let (_, came) = asked_with(FAULTS, &time, &back, u32::MAX).await;
        assert!(
            came.is_ok() && began.elapsed() > 3 * MINUTE && time.has(MINUTE / 2),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn the_homeservers_word_counts_if_it_is_longer() {
        let mut patience = RetryBackoff::default();
        assert_eq!(patience.next(Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert!(patience.is_tried());
        patience.rest();
        assert!(!patience.is_tried());
        assert!(patience.next(None) <= PAUSES.pause());
    }
}
