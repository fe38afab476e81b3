//! Waiting for a homeserver that is away.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use matrix_sdk::config::RequestConfig;
use matrix_sdk::{Client, HttpError};
use talaria_platform::ErrorKind;

use crate::error::kind_of;

/// The first pause. Most failures are a restart or a lost connection, and over in a moment.
const SHORTEST: Duration = Duration::from_millis(250);
/// The longest pause of our own; the homeserver may ask for more.
const LONGEST: Duration = Duration::from_secs(10);
/// How long one request may take. Pages of history are prepared by asking other servers, which takes a while.
const REQUEST: Duration = Duration::from_secs(60);

/// Faults of the homeserver after which we ask whether it is the room.
const FAULTS: u32 = 6;
/// How long that question may take.
const PROBE: Duration = Duration::from_secs(10);

/// How often something failed in a row.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    /// Whether the last attempt failed.
    pub fn is_tried(&self) -> bool {
        self.failures > 0
    }

    /// All is well again.
    pub fn rest(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure; `wanted` is what the homeserver asks for.
    pub fn next(&mut self, wanted: Option<Duration>) -> Duration {
        let pause = pause(self.failures, chance());
        self.failures = self.failures.saturating_add(1);
        pause.max(wanted.unwrap_or_default())
    }
}

/// Repeats a request for as long as waiting may help. Ends with an error only if it does not.
pub(super) async fn insist<T, F>(what: &'static str, request: impl FnMut() -> F) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
{
    repeat(what, request, None).await
}

/// The same about one room. A room that a homeserver stumbles over again and again, while it answers everything else,
/// must not end the reading of all others.
pub(super) async fn insist_on_room<T, F>(
    client: &Client,
    what: &'static str,
    request: impl FnMut() -> F,
) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
{
    repeat(what, request, Some(client)).await
}

/// With a `probe`, the rest of the homeserver is looked at when this fails again and again.
async fn repeat<T, F>(
    what: &'static str,
    mut request: impl FnMut() -> F,
    probe: Option<&Client>,
) -> Result<T, HttpError>
where
    F: Future<Output = Result<T, HttpError>>,
{
    let mut patience = Patience::default();
    let mut faults = 0;
    loop {
        let error = match request().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let after = match kind_of(&error) {
            ErrorKind::Retry { after } => after,
            ErrorKind::Gone | ErrorKind::Rejected | ErrorKind::Unsupported | ErrorKind::Fatal => {
                return Err(error);
            }
        };
        // An answer, and not that we ask too often.
        if after.is_none() && error.as_client_api_error().is_some() {
            faults += 1;
        }
        if faults >= FAULTS
            && let Some(client) = probe
            && matches!(tokio::time::timeout(PROBE, client.whoami()).await, Ok(Ok(_)))
        {
            return Err(error);
        }
        tracing::debug!(what, %error, "the homeserver is asked again");
        tokio::time::sleep(patience.next(after)).await;
    }
}

/// One attempt, and not for ever: who repeats it is our own decision.
pub(super) fn once() -> RequestConfig {
    RequestConfig::new().disable_retry().timeout(REQUEST)
}

/// Doubles with every failure; between half and all of that, so that many accounts do not come back at once.
fn pause(failures: u32, chance: u8) -> Duration {
    let whole = SHORTEST.saturating_mul(1 << failures.min(10)).min(LONGEST);
    whole / 2 + whole.mul_f64(f64::from(chance) / 255.0 / 2.0)
}

/// Not for secrets: every hasher of the standard library begins differently.
fn chance() -> u8 {
    let [chance, ..] = RandomState::new().hash_one(0_u8).to_le_bytes();
    chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert_eq!(pause(0, 255), Duration::from_millis(250));
        assert_eq!(pause(0, 0), Duration::from_millis(125));
        assert_eq!(pause(1, 255), Duration::from_millis(500));
        assert_eq!(pause(30, 255), LONGEST);
        assert_eq!(pause(u32::MAX, 0), LONGEST / 2);
    }

    #[test]
    fn the_homeservers_word_counts_if_it_is_longer() {
        let mut patience = Patience::default();
        assert_eq!(patience.next(Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert!(patience.is_tried());
        patience.rest();
        assert!(!patience.is_tried());
        assert!(patience.next(None) <= SHORTEST);
    }
}
