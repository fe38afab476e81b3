//! Asks the upstream for its capabilities: once, and again after each lost connection. They are never guessed.
//!
//! No form of the response makes a turn fail. A capability that the response does not announce in a form that we
//! understand is not used.

use std::ops::Deref;

use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::{ProxyAgent, SMALL_REQUEST, WHO};
use crate::agent::{AgentError, AgentErrorKind};
use crate::config::UpstreamSetting;
use crate::openai::error;

/// Longest response to `GET /v1/capabilities` that is read, in bytes.
pub(crate) const ANSWER: usize = 256 * 1024;

/// Bodies with more than [`ANSWER`] bytes that may be in memory at once: a state or a session may have many mebibytes, and
/// after a break all turns ask for theirs together.
static LARGE_BODIES: Semaphore = Semaphore::const_new(4);

/// Capabilities that the upstream reported, now and earlier.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownCapabilities {
    /// `None` until it was asked, and again after each lost connection.
    pub current: Option<UpstreamCapabilities>,
    /// The last report, for decisions that cannot wait for the next one.
    pub last: Option<UpstreamCapabilities>,
    /// Time when the upstream's address last refused a connection: no process listened there then.
    pub refused_at: Option<Instant>,
}

/// Capabilities of an upstream that make a difference to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UpstreamCapabilities {
    /// A request with a known key and equal bytes does not run again.
    pub idempotent: bool,
    /// The upstream keeps history of its own under the session header.
    pub sessions: bool,
    /// The messages of a session can be read there.
    pub transcripts: bool,
    /// The upstream runs turns in the background: it begins them, tells their events and state, stops them, and takes
    /// answers to their asks. With less than all of that, a turn would lose something against a stream.
    pub runs: bool,
    /// The upstream could run turns in the background, and the operator has not chosen that.
    pub offers_runs: bool,
    /// The upstream sends asks in its streams. Only for the log: an ask is taken up in any case.
    pub approvals: bool,
    /// The upstream knows `GET /v1/capabilities`, so it knows the usual options of a request.
    pub answered: bool,
}

#[derive(Deserialize)]
struct CapabilitiesResponse {
    features: CapabilityFeatures,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CapabilityFeatures {
    idempotency: Option<Value>,
    resumable_runs: Option<Value>,
    session_continuity_header: Option<Value>,
    session_resources: Option<Value>,
    approvals: Option<Value>,
    run_submission: Option<Value>,
    run_events_sse: Option<Value>,
    run_status: Option<Value>,
    run_stop: Option<Value>,
    run_approval_response: Option<Value>,
}

impl UpstreamCapabilities {
    /// A server like ours, where the configuration says so.
    const OURS: Self = Self {
        idempotent: true,
        sessions: true,
        transcripts: true,
        runs: false,
        offers_runs: false,
        approvals: true,
        answered: true,
    };

    /// A server like hermes-agent, where the configuration says so.
    const RUNS: Self = Self { idempotent: false, runs: true, ..Self::OURS };

    fn read(body: &[u8]) -> Self {
        let Ok(CapabilitiesResponse { features }) = serde_json::from_slice(body) else {
            return Self::default();
        };
        let on = |feature: &Option<Value>| match feature {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(_) => true,
        };
        // A key alone is not enough: the stream of a run that cannot be resumed would be lost. An upstream that does
        // not mention resumable runs means its streams too.
        let resumes = features.resumable_runs.is_none() || on(&features.resumable_runs);
        let runs = [
            &features.run_submission,
            &features.run_events_sse,
            &features.run_status,
            &features.run_stop,
            &features.run_approval_response,
        ];
        Self {
            runs: runs.into_iter().all(on),
            idempotent: on(&features.idempotency) && resumes,
            sessions: on(&features.session_continuity_header),
            transcripts: on(&features.session_resources),
            offers_runs: false,
            approvals: on(&features.approvals),
            answered: true,
        }
    }

    /// The same for `upstream: auto`. A run is given our history instead of the upstream's own session, which also knows
    /// the tool calls of earlier turns: the operator decides whether that is worth it
    /// (`.github/decisions/0017-runs-are-chosen.md`).
    fn in_auto(self) -> Self {
        Self { runs: false, offers_runs: self.runs && !self.idempotent, ..self }
    }
}

/// Whether a server with this description of its capabilities could run turns in the background, which `upstream: auto`
/// does not choose.
pub(crate) fn offers_runs(body: &[u8]) -> bool {
    UpstreamCapabilities::read(body).in_auto().offers_runs
}

impl ProxyAgent {
    /// The upstream's capabilities. Asks the upstream if they are not known.
    pub(super) async fn abilities(&self) -> Result<UpstreamCapabilities, AgentError> {
        match self.config.upstream {
            UpstreamSetting::Plain => return Ok(UpstreamCapabilities::default()),
            UpstreamSetting::Talaria => return Ok(UpstreamCapabilities::OURS),
            UpstreamSetting::Runs => return Ok(UpstreamCapabilities::RUNS),
            UpstreamSetting::Auto => {}
        }
        if let Some(known) = self.known().current {
            return Ok(known);
        }
        let Some(asked) = self.ask().await? else { return Ok(UpstreamCapabilities::default()) };
        let asked = asked.in_auto();
        tracing::info!(
            idempotent = asked.idempotent,
            sessions = asked.sessions,
            transcripts = asked.transcripts,
            approvals = asked.approvals,
            offers_runs = asked.offers_runs,
            "the upstream said what it can do"
        );
        let mut known = self.known();
        (known.current, known.last) = (Some(asked), Some(asked));
        Ok(asked)
    }

    /// `None` if the upstream refuses our key, and so does not report its capabilities.
    async fn ask(&self) -> Result<Option<UpstreamCapabilities>, AgentError> {
        // Never longer than an answer itself may take to begin.
        let patience = SMALL_REQUEST.min(self.config.timeouts.first_byte);
        let request = self.client.get(self.url("/v1/capabilities")).headers(self.key()).timeout(patience);
        let response = request.send().await.map_err(|error| {
            if error::is_refused(&error) {
                self.known().refused_at = Some(Instant::now());
            }
            match error::request(WHO, &error) {
                // Asking for capabilities never starts a turn, so even an unknown outcome ran nothing.
                AgentError { kind: AgentErrorKind::Unknown { after }, words } => {
                    AgentError { kind: AgentErrorKind::NothingRan { after }, words }
                }
                error => error,
            }
        })?;
        let status = response.status();
        if !status.is_success() {
            return match error::status(WHO, status, response.headers(), "") {
                // The server did not answer; one that is starting up must not be taken for a plain one.
                AgentError { kind: AgentErrorKind::Unknown { after }, words }
                    if status.as_u16() != 500 && status.as_u16() != 501 =>
                {
                    Err(AgentError { kind: AgentErrorKind::NothingRan { after }, words })
                }
                busy @ AgentError { kind: AgentErrorKind::Busy { .. }, .. } => Err(busy),
                _ if matches!(status.as_u16(), 401 | 403) => Ok(None),
                // A server without this endpoint can only answer prompts.
                _ => Ok(Some(UpstreamCapabilities::default())),
            };
        }
        match body(response, ANSWER).await {
            Ok(Some(body)) => Ok(Some(UpstreamCapabilities::read(&body))),
            Ok(None) => Ok(Some(UpstreamCapabilities::default())),
            Err(error) => {
                let AgentError { words, .. } = error::request(WHO, &error.without_url());
                Err(AgentError::new(AgentErrorKind::NothingRan { after: None }, words))
            }
        }
    }
}

/// A body that was read, with its share of the memory for large ones.
pub(crate) struct ReadBody {
    bytes: Vec<u8>,
    /// Held until the body is dropped, which is when it has been parsed. `None` for a small one.
    _permit: Option<SemaphorePermit<'static>>,
}

impl Deref for ReadBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a whole body; `None` if it has more than `most` bytes. A large one waits until few others are in memory.
pub(crate) async fn body(mut response: Response, most: usize) -> reqwest::Result<Option<ReadBody>> {
    let (mut bytes, mut permit) = (Vec::new(), None);
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > most {
            return Ok(None);
        }
        if bytes.len() + chunk.len() > ANSWER && permit.is_none() {
            permit = LARGE_BODIES.acquire().await.ok();
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(ReadBody { bytes, _permit: permit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_server_says_of_itself_is_understood() {
        let ours = br#"{"object":"capabilities","features":{"idempotency":true,"resumable_runs":true,
            "approvals":true,"session_resources":true,"session_continuity_header":"X-Hermes-Session-Id",
            "cors":false},"endpoints":{}}"#;
        assert_eq!(UpstreamCapabilities::read(ours), UpstreamCapabilities::OURS);
    }

    #[test]
    fn what_the_reference_says_of_itself_is_a_plain_server_with_sessions() {
        let reference =
            br#"{"features":{"chat_completions":true,"approval_events":true,"session_resources":true,
            "session_continuity_header":"X-Hermes-Session-Id"}}"#;
        let expected = UpstreamCapabilities {
            sessions: true,
            transcripts: true,
            answered: true,
            ..UpstreamCapabilities::default()
        };
        assert_eq!(UpstreamCapabilities::read(reference), expected);
    }

    #[test]
    fn auto_leaves_runs_to_the_operator_and_says_that_there_are_some() {
        let features = |idempotency: bool, stop: bool| {
            let features = serde_json::json!({
                "run_submission": true, "run_events_sse": true, "run_status": true, "run_stop": stop,
                "run_approval_response": true, "idempotency": idempotency,
            });
            serde_json::json!({ "features": features }).to_string()
        };
        let able = UpstreamCapabilities::read(features(false, true).as_bytes()).in_auto();
        assert!(!able.runs && able.offers_runs);
        assert!(offers_runs(features(false, true).as_bytes()));
        assert!(!offers_runs(features(true, true).as_bytes()), "a server like ours has better");
        assert!(!offers_runs(features(false, false).as_bytes()));
    }

    #[test]
    fn runs_are_used_only_if_all_of_them_is_announced() {
        let names = ["run_submission", "run_events_sse", "run_status", "run_stop", "run_approval_response"];
        let announce = |left_out: Option<&str>| {
            let features: serde_json::Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), Value::Bool(left_out != Some(*name)))).collect();
            UpstreamCapabilities::read(serde_json::json!({ "features": features }).to_string().as_bytes())
                .runs
        };
        assert!(announce(None));
        for name in names {
            assert!(!announce(Some(name)), "{name}");
        }
    }

    #[test]
    fn a_key_without_streams_that_resume_is_no_reason_to_repeat_anything() {
        let odd = br#"{"features":{"idempotency":true,"resumable_runs":false}}"#;
        assert!(!UpstreamCapabilities::read(odd).idempotent);
    }

    #[test]
    fn nonsense_is_no_ability() {
        for odd in [
            "",
            "null",
            "[]",
            "7",
            "\"x\"",
            "{}",
            r#"{"features":[]}"#,
            r#"{"features":{"idempotency":null}}"#,
        ] {
            assert!(!UpstreamCapabilities::read(odd.as_bytes()).idempotent, "{odd}");
        }
    }
}
