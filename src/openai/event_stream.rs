//! Reads a stream of server-sent events, within limits on its silence and its size.
//!
//! The protocol above it gives an [`EventTaker`], which says what an event means and when the stream has ended.

use std::ops::ControlFlow;
use std::time::Duration;

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use talaria_platform::{CancellationToken, spawn_task};
use tokio::time::Instant;

use super::error;
use super::sse::{SseEvent, SseParser};
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, TURN_BYTES, TurnEnd};
use crate::config::UpstreamTimeouts;
use crate::i18n::TextKey;
use crate::poll_when_woken::poll_when_woken;
use crate::reply::LARGEST_FILE;

/// Most bytes of an error response that are read.
const REFUSAL: usize = 4096;

/// Longest wait for the end of a body after the end of the answer. Servers send both together.
const REST: Duration = Duration::from_secs(1);

/// Most bytes of one stream on the wire. The decoded text is bounded by the turn's own cap; a delta of a few
/// characters is wrapped in two hundred bytes, so this limit is higher.
const WIRE: usize = 48 * MIB;
const MIB: usize = 1024 * 1024;

/// Bytes between two checks whether the output has capacity for more.
const CAPACITY_STEP: usize = 64 * 1024;

/// Longest event that contains a file: the largest accepted file as base64, and the JSON around it. Ten times
/// the limit of a text event, so only for files.
const WITH_FILE: usize = LARGEST_FILE / 3 * 4 + 64 * 1024;

/// Longest final event, which repeats the whole answer: twice the longest answer, because a line end is escaped
/// to two characters, and the JSON around it. A stream may have one of these.
pub const LAST: usize = 2 * TURN_BYTES + 64 * 1024;

/// Bytes of an event that are inspected to recognise the final event.
const FIRST: usize = 4096;

/// Says what the events of one stream mean.
pub trait EventTaker {
    /// Takes the next event. `Break` ends the stream, even if the server keeps it open.
    fn take(
        &mut self,
        event: &SseEvent<'_>,
        out: &dyn AgentOutput,
    ) -> ControlFlow<Result<TurnEnd, AgentError>>;

    /// The end that the events so far prove, if the stream stops here; `None` if it broke off. Called once.
    fn proven_end(&mut self) -> Option<Result<TurnEnd, AgentError>>;

    /// Whether the event that begins like this is the final one and may be as long as the whole answer.
    fn may_be_long(&mut self, beginning: &[u8]) -> bool;
}

/// Reads the streams of one server.
#[derive(Clone, Copy)]
pub struct EventStream<'a> {
    /// Name of the server in texts for people.
    pub who: TextKey,
    /// Limits on its silence.
    pub timeouts: &'a UpstreamTimeouts,
}

impl EventStream<'_> {
    /// Checks that a response is a stream, and reads it to its end.
    pub async fn read(
        &self,
        response: Response,
        taker: &mut impl EventTaker,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        // Boxed: the future holds the state to read an error response, which a stream does not need.
        let mut response = Box::pin(self.check(response)).await?;
        // The headers keep the connection's first read buffer, 8 KB, alive as long as the stream runs.
        *response.headers_mut() = HeaderMap::new();
        self.follow(response, taker, out, stop).await
    }

    /// Classifies a response whose status is an error.
    pub async fn refusal(&self, mut response: Response) -> AgentError {
        let status = response.status();
        let body = tokio::time::timeout(self.timeouts.connect, beginning(&mut response)).await;
        let body = body.unwrap_or_default();
        tracing::warn!(%status, "the upstream refused");
        tracing::trace!(%body, "the upstream's refusal");
        error::status(self.who, status, response.headers(), &body)
    }

    async fn check(&self, response: Response) -> Result<Response, AgentError> {
        let status = response.status();
        if !status.is_success() {
            return Err(self.refusal(response).await);
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let streams = header(CONTENT_TYPE).is_some_and(|kind| {
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
        });
        let packed = header(CONTENT_ENCODING).is_some_and(|kind| !kind.eq_ignore_ascii_case("identity"));
        if !streams || packed || status != StatusCode::OK {
            return Err(error::no_stream(self.who, status));
        }
        Ok(response)
    }

    async fn follow(
        &self,
        mut response: Response,
        taker: &mut impl EventTaker,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let mut parser = SseParser::default().with_files(WITH_FILE);
        // One event was allowed to be as long as only the final one may be.
        let mut long = false;
        let (mut silence, mut last, mut size) = (self.timeouts.first_byte, Instant::now(), 0_usize);
        let mut stopped = poll_when_woken(stop.cancelled());
        // One timer for the whole stream: it is re-armed only when it fires, not with every chunk.
        let mut timer = poll_when_woken(tokio::time::sleep_until(last + silence));
        loop {
            let chunk = tokio::select! {
                biased;
                () = &mut stopped => return Ok(TurnEnd::Stopped),
                chunk = response.chunk() => chunk,
                () = &mut timer => {
                    if last + silence <= Instant::now() {
                        return taker.proven_end().unwrap_or_else(|| Err(error::broken(TextKey::BrokeSilent)));
                    }
                    timer.change().reset(last + silence);
                    continue;
                }
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    return taker.proven_end().unwrap_or_else(|| Err(error::broken(TextKey::BrokeOff)));
                }
                Err(error) => {
                    tracing::warn!(error = %error.without_url(), "the stream broke");
                    return taker.proven_end().unwrap_or_else(|| Err(error::broken(TextKey::WhyLost)));
                }
            };
            last = Instant::now();
            size += chunk.len();
            if size > WIRE {
                return Err(AgentError::new(
                    AgentErrorKind::CutShort,
                    TextKey::BrokeTooMuch.with("mib", WIRE / MIB),
                ));
            }
            let mut events = parser.feed(&chunk);
            loop {
                let error = match events.next_event() {
                    Ok(Some(event)) => match taker.take(&event, out) {
                        ControlFlow::Continue(()) => continue,
                        ControlFlow::Break(end) => {
                            let_end(response);
                            return end;
                        }
                    },
                    Ok(None) => break,
                    Err(error) => error,
                };
                // Some servers repeat the whole text at the end, however much of it came before. None of the other
                // events may exceed the usual limit.
                let may = !long && taker.may_be_long(&events.beginning(FIRST));
                long |= may;
                if !(may && events.raise(LAST)) {
                    tracing::warn!(%error, "the stream has an event that is too long; reading ends");
                    return Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeLongLine));
                }
            }
            let now_silence =
                if parser.saw_comment() { self.timeouts.keepalive_idle } else { self.timeouts.idle };
            if now_silence < silence {
                // The timer would fire too late.
                timer.change().reset(last + now_silence);
            }
            silence = now_silence;
            if size / CAPACITY_STEP > (size - chunk.len()) / CAPACITY_STEP
                && let Some(capacity) = out.wait_for_capacity()
            {
                tokio::select! {
                    biased;
                    () = &mut stopped => return Ok(TurnEnd::Stopped),
                    waited = capacity => waited?,
                }
                // The wait was ours, not the upstream's silence.
                last = Instant::now();
                timer.change().reset(last + silence);
            }
        }
    }
}

/// Reads the rest of a body, so that its connection can serve the next turn. In a task of its own because the
/// turn is over; it ends by itself within [`REST`].
fn let_end(mut response: Response) {
    spawn_task("read-the-rest-of-a-body", async move {
        let mut left = REFUSAL;
        let rest = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                let Some(less) = left.checked_sub(chunk.len()) else { return };
                left = less;
            }
        };
        // If it takes longer, the connection is dropped with the response.
        let _ = tokio::time::timeout(REST, rest).await;
    });
}

/// First bytes of a body, decoded lossily.
async fn beginning(response: &mut Response) -> String {
    let mut body = Vec::new();
    while body.len() < REFUSAL {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(REFUSAL);
    String::from_utf8_lossy(&body).into_owned()
}
