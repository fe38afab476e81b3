//! Classifies a failed request: the engine's next action, and the text for the room.
//!
//! Texts are fixed sentences: never the server's body, a URL, a path or a key. `who` names the failing side,
//! [`TextKey::WhoProxy`] or [`TextKey::WhoModel`].

use std::error::Error as _;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::client::PUBLIC;
use super::wire::ErrorBody;
use crate::agent::{AgentError, AgentErrorKind};
use crate::i18n::{LocalizedText, TextKey};

/// Classifies a failure before any answer came.
pub fn request(who: TextKey, error: &reqwest::Error) -> AgentError {
    let reason = reason(error);
    let kind = if reason == TextKey::WhyInTheClear {
        AgentErrorKind::Refused
    } else if error.is_connect() {
        // The request was never written: refused, unknown name, no route, bad certificate.
        AgentErrorKind::NothingRan { after: None }
    } else if error.is_builder() {
        AgentErrorKind::Refused
    } else {
        AgentErrorKind::Unknown { after: None }
    };
    AgentError::new(kind, TextKey::ConnectionError.with("who", who).with("why", reason))
}

/// Whether nothing listens at the address: the process that served it before is gone.
pub fn is_refused(error: &reqwest::Error) -> bool {
    error.is_connect() && reason(error) == TextKey::WhyNothingListens
}

/// Cause of a transport error, as a text.
pub fn reason(error: &reqwest::Error) -> TextKey {
    let mut cause = error.source();
    let mut texts = String::new();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return TextKey::WhyNothingListens,
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    return TextKey::WhyReset;
                }
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    return TextKey::WhyUnreachable;
                }
                _ => {}
            }
        }
        texts.push_str(&error.to_string());
        cause = error.source();
    }
    let has = |word: &str| texts.contains(word);
    if has(PUBLIC) {
        TextKey::WhyInTheClear
    } else if error.is_timeout() || has("timed out") {
        TextKey::WhyTooSlow
    } else if has("dns") || has("lookup") || has("resolve") {
        TextKey::WhyUnknownHost
    } else if has("certificate") || has("Certificate") {
        TextKey::WhyCertificate
    } else if has("tls") || has("TLS") || has("handshake") {
        TextKey::WhyInsecure
    } else {
        TextKey::WhyLost
    }
}

/// Classifies an error status. `body` is the beginning of the body; it decides between two reasons of a 403.
pub fn status(who: TextKey, status: StatusCode, headers: &HeaderMap, body: &str) -> AgentError {
    let after = retry_after(headers);
    let kind = match status.as_u16() {
        status @ (429 | 503) => AgentErrorKind::Busy { after, rate_limited: status == 429 },
        // Our own server: a request with this key ran and is being stopped. Repeating it returns how it ended.
        409 if headers.contains_key(RETRY_AFTER) => AgentErrorKind::Unknown { after },
        // The server failed, or a proxy gave up: the turn may have run.
        408 | 500..=507 | 509..=599 => AgentErrorKind::Unknown { after },
        400 | 413 | 422 => AgentErrorKind::Unfit,
        _ => AgentErrorKind::Refused,
    };
    let reason = match status.as_u16() {
        403 if body.contains("X-Hermes-Session") || body.contains("API_SERVER_KEY") => TextKey::WhySessionKey,
        401 | 403 if who == TextKey::WhoProxy => TextKey::WhyProxyKey,
        401 | 403 => TextKey::WhyModelKey,
        400 | 422 if names_length(body) => TextKey::WhyTooLong,
        400 | 422 => TextKey::WhyNotUnderstood,
        404 | 405 => TextKey::WhyNoSuchService,
        413 => TextKey::WhyTooLong,
        429 => TextKey::WhyBusy,
        503 => TextKey::WhyUnavailable,
        408 => TextKey::WhyTired,
        502 | 504 => TextKey::WhyNobodyBehind,
        508 => TextKey::WhyCircle,
        300..=399 => TextKey::WhyRedirects,
        500..=599 => TextKey::WhyFailed,
        _ => TextKey::WhyRefused,
    };
    AgentError::new(kind, status_error(who, status, reason))
}

/// Whether an error says that the request does not fit into the model's window.
pub fn is_too_long(error: &AgentError) -> bool {
    let LocalizedText::Text(key, values) = &error.words else { return false };
    *key == TextKey::BrokeTooLong
        || values.iter().any(|(_, value)| *value == LocalizedText::from(TextKey::WhyTooLong))
}

/// Whether a stream reported a failure that another request may not meet: the server is busy or failed.
pub fn is_temporary(error: &AgentError) -> bool {
    matches!(error.words, LocalizedText::Text(TextKey::BrokeBusy | TextKey::BrokeReported, _))
}

/// Whether the body of an error names the length of the request, in the words of the common servers.
fn names_length(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    [
        "context_length",
        "context length",
        "maximum context",
        "context size",
        "context window",
        "too many tokens",
    ]
    .iter()
    .any(|words| body.contains(words))
}

/// An answer that is not a stream, such as a web page with the status 200.
pub fn no_stream(who: TextKey, status: StatusCode) -> AgentError {
    AgentError::new(AgentErrorKind::Refused, status_error(who, status, TextKey::WhyNoStream))
}

fn status_error(who: TextKey, status: StatusCode, why: TextKey) -> LocalizedText {
    TextKey::StatusError.with("who", who).with("status", status.as_u16()).with("why", why)
}

/// A stream that reports its own failure, with a reason if it is our own server's. In every case the text is
/// one of ours.
pub fn reported(error: Option<&ErrorBody<'_>>, reason: Option<LocalizedText>) -> AgentError {
    if let Some(words) = reason {
        // Our own server uses `unknown` when it does not know how a turn ended; asking again may tell.
        let lost = error.is_some_and(|error| error.name() == Some("unknown"));
        let words = if lost { TextKey::BrokeAgain.with("why", words) } else { words };
        return AgentError::new(AgentErrorKind::CutShort, words);
    }
    let label = error.map_or(String::new(), |error| {
        format!("{} {}", error.kind.as_deref().unwrap_or_default(), error.name().unwrap_or_default())
    });
    let words = if label.contains("context_length") {
        TextKey::BrokeTooLong
    } else if label.contains("rate_limit") || label.contains("429") {
        TextKey::BrokeBusy
    } else if label.contains("interrupted") {
        TextKey::BrokeRestarted
    } else if label.contains("quota") || label.contains("billing") {
        TextKey::BrokeUsedUp
    } else {
        TextKey::BrokeReported
    };
    AgentError::new(AgentErrorKind::CutShort, words)
}

/// A stream that broke off or went silent before its end.
pub fn broken(words: TextKey) -> AgentError {
    AgentError::new(AgentErrorKind::Unknown { after: None }, words)
}

/// A failure after which the turn goes on at the server, so that it can be asked for again.
pub fn broken_as(error: AgentError) -> AgentError {
    AgentError { kind: AgentErrorKind::Unknown { after: error.kind.retry_after() }, ..error }
}

/// `Retry-After` in seconds. A date is ignored; our own backoff is good enough then. The engine clamps the
/// value.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, after: Option<&str>, body: &str) -> AgentError {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(RETRY_AFTER, after.parse().unwrap());
        }
        status(TextKey::WhoProxy, StatusCode::from_u16(code).unwrap(), &headers, body)
    }

    #[test]
    fn only_429_and_503_prove_that_nothing_ran_and_that_somebody_is_there() {
        for code in 300..600 {
            let proven = matches!(of(code, None, "").kind, AgentErrorKind::Busy { .. });
            assert_eq!(proven, code == 429 || code == 503, "{code}");
        }
        for code in [408, 500, 502, 504, 529] {
            assert!(matches!(of(code, None, "").kind, AgentErrorKind::Unknown { .. }), "{code}");
        }
    }

    /// Our own server answers so with `run_stopping`.
    #[test]
    fn a_conflict_that_passes_may_have_run_and_any_other_is_refused() {
        let after = Some(Duration::from_secs(1));
        assert_eq!(of(409, Some("1"), "").kind, AgentErrorKind::Unknown { after });
        assert_eq!(of(409, Some("soon"), "").kind, AgentErrorKind::Unknown { after: None });
        assert_eq!(of(409, None, "").kind, AgentErrorKind::Refused);
    }

    #[test]
    fn only_what_the_question_may_be_blamed_for_says_nothing_of_the_agent() {
        for code in 300..600 {
            let unfit = of(code, None, "").kind == AgentErrorKind::Unfit;
            assert_eq!(unfit, matches!(code, 400 | 413 | 422), "{code}");
        }
    }

    #[test]
    fn a_relay_that_leads_back_to_itself_is_not_asked_again() {
        let error = of(508, None, "");
        assert_eq!(error.kind, AgentErrorKind::Refused);
        assert!(error.words.to_string().contains("GATEWAY_PROXY_URL"), "{}", error.words);
    }

    #[test]
    fn retry_after_is_read_where_it_is_a_number() {
        for (value, after) in [
            ("7", Some(Duration::from_secs(7))),
            ("315360000", Some(Duration::from_secs(315_360_000))),
            ("-5", None),
            ("soon", None),
            ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ] {
            assert_eq!(
                of(429, Some(value), "").kind,
                AgentErrorKind::Busy { after, rate_limited: true },
                "{value}"
            );
        }
    }

    #[test]
    fn the_body_is_never_shown() {
        for code in [400, 401, 403, 404, 418, 429, 500, 502, 503] {
            let words = of(code, None, "<html>secret-canary /etc/passwd</html>").words.to_string();
            assert!(words.starts_with(&format!("⚠️ Proxy error ({code}): ")), "{words}");
            assert!(!words.contains("canary") && !words.contains('<') && !words.contains('/'), "{words}");
        }
    }

    /// Our own server sends the status as the code, for other clients, and the outcome beside it.
    #[test]
    fn how_a_turn_ended_at_our_own_server_is_read_beside_a_status() {
        let told = |json: &str| {
            serde_json::from_str::<ErrorBody<'_>>(json).map(|error| reported(Some(&error), None))
        };
        for (outcome, words) in
            [("interrupted", TextKey::BrokeRestarted), ("cut_short", TextKey::BrokeReported)]
        {
            for json in [
                format!(r#"{{"type":"server_error","code":502,"outcome":"{outcome}"}}"#),
                format!(r#"{{"type":"server_error","code":"{outcome}"}}"#),
            ] {
                assert_eq!(told(&json).unwrap().words, words.into(), "{json}");
            }
        }
        let unknown: ErrorBody<'_> = serde_json::from_str(r#"{"code":502,"outcome":"unknown"}"#).unwrap();
        let again = reported(Some(&unknown), Some(TextKey::BrokeReported.into()));
        assert_eq!(again.words, TextKey::BrokeAgain.with("why", TextKey::BrokeReported));
    }

    #[test]
    fn a_refused_session_header_is_explained() {
        let words = of(403, None, r#"{"error":{"message":"X-Hermes-Session-Id requires API key"}}"#)
            .words
            .to_string();
        assert!(words.contains("API_SERVER_KEY") && words.contains("GATEWAY_PROXY_KEY"), "{words}");
    }
}
