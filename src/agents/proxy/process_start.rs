//! Reads from the upstream when its process began to listen and whether a run is under way, as hermes-agent tells it.
//!
//! hermes-agent keeps no list of the streams it works on, and its pid may be the same after a restart in a container.
//! But `/health/detailed` tells when its API server came up. A process that came up after a question was stored does
//! not work on that question. Both times are of the same clock: the upstream's.
//!
//! The one exception is a person who pauses and resumes the API server of a running hermes-agent in the middle of an
//! answer. That answer is taken for lost although it may still come.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::capabilities::{ANSWER, body};
use super::{ProxyAgent, REACHABLE};
use crate::util::UtcTime;

/// A moment in UTC to the microsecond, such as `2026-11-18T03:48:28.942057`: later ones are greater. A restart can take
/// less than a second, so whole seconds would not tell it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UtcMoment(String);

impl ProxyAgent {
    /// Asks since when the upstream listens. `None` if it does not say.
    pub(super) async fn listening_since(&self) -> Option<UtcMoment> {
        listening_since(&self.health().await?)
    }

    /// Whether the upstream says that no run is under way there.
    pub(super) async fn runs_nothing(&self) -> bool {
        self.health().await.is_some_and(|health| runs_nothing(&health))
    }

    async fn health(&self) -> Option<Value> {
        let patience = REACHABLE.min(self.config.timeouts.first_byte);
        let request = self.client.get(self.url("/health/detailed")).headers(self.key()).timeout(patience);
        let response = request.send().await.ok()?.error_for_status().ok()?;
        serde_json::from_slice(&body(response, ANSWER).await.ok()??).ok()
    }
}

/// hermes-agent counts the runs that wait, run or ask. One that is being stopped does not count.
fn runs_nothing(health: &Value) -> bool {
    health["readiness"]["checks"]["background_queues"]["active_api_runs"] == 0
}

fn listening_since(health: &Value) -> Option<UtcMoment> {
    let server = health.get("platforms")?.get("api_server")?;
    // A process that ends says `disconnected`, and may still answer then.
    if !matches!(server.get("state")?.as_str()?, "connecting" | "connected") {
        return None;
    }
    UtcMoment::read(server.get("updated_at")?.as_str()?)
}

impl UtcMoment {
    /// A moment as Python writes it: `2026-11-18T03:48:28.942057+00:00`, without the fraction if that is zero.
    fn read(text: &str) -> Option<Self> {
        let zone = text.strip_suffix("+00:00").or_else(|| text.strip_suffix('Z'))?;
        let (seconds, fraction) = zone.split_once('.').unwrap_or((zone, "0"));
        let like = |(byte, pattern): (u8, u8)| match pattern {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        };
        let pattern = "0000-00-00T00:00:00";
        let sound = seconds.len() == pattern.len()
            && seconds.bytes().zip(pattern.bytes()).all(like)
            && !fraction.is_empty()
            && fraction.bytes().all(|byte| byte.is_ascii_digit());
        sound.then(|| Self(format!("{seconds}.{fraction:0<6.6}")))
    }

    /// So many seconds after the beginning of 1970.
    pub fn from_unix(seconds: f64) -> Option<Self> {
        let since = Duration::try_from_secs_f64(seconds).ok()?;
        let UtcTime { year, month, day, hour, minute, second } =
            UtcTime::from(UNIX_EPOCH.checked_add(since)?);
        let micros = since.subsec_micros();
        (year <= 9999).then(|| {
            Self(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn health(state: &str, updated_at: &str) -> Value {
        json!({ "pid": 7, "platforms": { "api_server": { "state": state, "updated_at": updated_at } } })
    }

    #[test]
    fn what_hermes_says_of_itself_is_understood() {
        let since = |state| listening_since(&health(state, "2026-11-18T03:48:28.500000+00:00"));
        let start = UtcMoment::from_unix(1_794_973_708.5);
        assert!(start.is_some());
        assert_eq!(since("connected"), start);
        assert_eq!(since("connecting"), start);
        assert_eq!(since("disconnected"), None);
        let at = |updated_at| listening_since(&health("connected", updated_at));
        assert_eq!(at("2026-11-18T03:48:28+00:00"), UtcMoment::from_unix(1_794_973_708.0));
        assert_eq!(at("2026-11-18T03:48:28.5Z"), UtcMoment::from_unix(1_794_973_708.5));
    }

    #[test]
    fn only_a_count_of_zero_is_an_idle_server() {
        let with = |queues: Value| {
            runs_nothing(&json!({ "readiness": { "checks": { "background_queues": queues } } }))
        };
        assert!(with(json!({ "status": "ok", "active_api_runs": 0 })));
        for other in
            [json!({ "active_api_runs": 1 }), json!({}), json!(null), json!({ "active_api_runs": "0" })]
        {
            assert!(!with(other.clone()), "{other}");
        }
    }

    #[test]
    fn moments_are_in_order() {
        let at = |seconds| UtcMoment::from_unix(seconds).unwrap();
        assert!(at(1_794_973_708.0) < at(1_794_973_710.1));
        assert!(at(1_767_225_599.0) < at(1_767_225_600.0), "a new year");
        assert!(at(1_794_973_708.1) < at(1_794_973_708.9), "a restart within one second");
    }

    #[test]
    fn whatever_else_is_said_is_no_moment() {
        for odd in [
            "",
            "now",
            "2026-11-18T03:48:28",
            "2026-11-18T03:48:28+01:00",
            "2026-11-18 03:48:28Z",
            "ü+00:00",
            "2026-11-18T03:48:28.Z",
            "2026-11-18T03:48:28.üZ",
        ] {
            assert_eq!(listening_since(&health("connected", odd)), None, "{odd}");
        }
        for odd in
            [json!(null), json!([]), json!({ "platforms": [] }), json!({ "platforms": { "api_server": 7 } })]
        {
            assert_eq!(listening_since(&odd), None);
        }
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e300, 1e15] {
            assert_eq!(UtcMoment::from_unix(odd), None, "{odd}");
        }
    }
}
