//! Reads a streamed chat completion to its end.
//!
//! A stream is complete only if it says so: by `[DONE]`, after which we do not wait for more, or by a finish
//! reason before the connection closes. Any other end is a broken stream, however much text came.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::ControlFlow;
use std::time::Duration;

use memchr::memmem;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use talaria_platform::{CancellationToken, spawn_task};
use tokio::time::Instant;

use super::error;
use super::sse::{SseEvent, SseParser};
use super::wire::{
    APPROVAL_REQUEST, APPROVAL_RESPONDED, ApprovalEvent, ChunkCache, DONE, TOOL_PROGRESS, ToolCallChunk,
    ToolCallDelta, ToolProgress,
};
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput, Step, StepState, TURN_BYTES, TurnEnd, TurnEvent,
};
use crate::config::UpstreamTimeouts;
use crate::i18n::{LocalizedText, TextKey};
use crate::poll_when_woken::poll_when_woken;
use crate::reply::LARGEST_FILE;
use crate::util::{clip, mask_secrets};

/// Most bytes of an error response that are read.
const REFUSAL: usize = 4096;

/// Longest wait for the end of a body after the end of the answer. Servers send both together.
const REST: Duration = Duration::from_secs(1);

/// Most bytes of one stream on the wire. The decoded text is bounded by the turn's own cap; a delta of a few
/// characters is wrapped in two hundred bytes, so this limit is higher.
const WIRE: usize = 48 * MIB;
const MIB: usize = 1024 * 1024;

/// Bytes of the subject of a tool call that are looked at. Rooms show less.
const SUBJECT: usize = 512;

/// Bytes between two checks whether the output has capacity for more.
const CAPACITY_STEP: usize = 64 * 1024;

/// Longest event that contains a file: the largest accepted file as base64, and the JSON around it. Ten times
/// the limit of a text event, so only for files.
const WITH_FILE: usize = LARGEST_FILE / 3 * 4 + 64 * 1024;

/// Longest final event, which repeats the whole answer: twice the longest answer, because a line end is escaped
/// to two characters, and the JSON around it. A stream may have one of these.
const LAST: usize = 2 * TURN_BYTES + 64 * 1024;

/// Bytes of an event that are inspected to recognise the final event.
const FIRST: usize = 4096;

/// Reads streamed completions of one server.
pub struct StreamReader<'a> {
    /// Name of the server in texts for people.
    pub who: TextKey,
    /// Limits on its silence.
    pub timeouts: &'a UpstreamTimeouts,
    /// Whether events may be numbered: repeated ones are skipped, and a gap means a broken stream.
    pub numbered: bool,
    /// Whether people may read what the server says about a tool call. Our own server says its subject in one line; another
    /// one may put anything there that its agent saw.
    pub tells_subjects: bool,
    /// Receives events about asks.
    pub asides: &'a (dyn Fn(ApprovalEvent<'_>) + Send + Sync),
    /// Receives the pieces of tool calls, in order; `None` for a server that runs its tools itself.
    pub tool_calls: Option<&'a (dyn Fn(&ToolCallDelta<'_>) + Send + Sync)>,
}

/// State of one stream.
#[derive(Default)]
struct StreamProgress {
    /// Set by a finish reason; token counts may still follow.
    finish: Option<Result<TurnEnd, AgentError>>,
    /// The last chunk only said that the answer failed; the error may follow as an event of its own.
    awaits_error: bool,
    /// Reason of the failure, from the last chunk of a server like ours.
    reason: Option<LocalizedText>,
    last_number: Option<u64>,
    chunks: ChunkCache,
    /// Events that were not JSON; logged once.
    garbage: u32,
    /// Length and hash of the text so far, to compare it with the final text.
    heard: HashedText,
    /// One event was allowed to be as long as only the final one may be.
    long: bool,
}

impl StreamReader<'_> {
    /// Checks that a response is a stream, and reads it to its end.
    pub async fn read(
        &self,
        response: Response,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        // Boxed: the future holds the state to read an error response, which a stream does not need.
        let mut response = Box::pin(self.check(response)).await?;
        // The headers keep the connection's first read buffer, 8 KB, alive as long as the stream runs.
        *response.headers_mut() = HeaderMap::new();
        self.follow(response, out, stop).await
    }

    async fn check(&self, mut response: Response) -> Result<Response, AgentError> {
        let status = response.status();
        if !status.is_success() {
            let body = tokio::time::timeout(self.timeouts.connect, beginning(&mut response)).await;
            let body = body.unwrap_or_default();
            tracing::warn!(%status, "the upstream refused");
            tracing::trace!(%body, "the upstream's refusal");
            return Err(error::status(self.who, status, response.headers(), &body));
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
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let mut parser = SseParser::default().with_files(WITH_FILE);
        let mut progress = StreamProgress::default();
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
                        return progress.finish.unwrap_or_else(|| Err(error::broken(TextKey::BrokeSilent)));
                    }
                    timer.change().reset(last + silence);
                    continue;
                }
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    return progress.finish.unwrap_or_else(|| Err(error::broken(TextKey::BrokeOff)));
                }
                Err(error) => {
                    tracing::warn!(error = %error.without_url(), "the stream broke");
                    return progress.finish.unwrap_or_else(|| Err(error::broken(TextKey::WhyLost)));
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
                    Ok(Some(event)) => match self.take(&event, &mut progress, out) {
                        ControlFlow::Continue(()) => continue,
                        ControlFlow::Break(end) => {
                            let_end(response);
                            return end;
                        }
                    },
                    Ok(None) => break,
                    Err(error) => error,
                };
                // A resumable stream repeats the whole text at its end, however much of it came before. None of
                // its other events may exceed the usual limit.
                let may = self.numbered && !progress.long && is_last(&events.beginning(FIRST));
                progress.long |= may;
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

    fn take(
        &self,
        event: &SseEvent<'_>,
        progress: &mut StreamProgress,
        out: &dyn AgentOutput,
    ) -> ControlFlow<Result<TurnEnd, AgentError>> {
        if self.numbered
            && event.own_id
            && let Ok(number) = event.id.parse::<u64>()
        {
            match progress.last_number {
                Some(last) if number <= last => return ControlFlow::Continue(()),
                Some(last) if number > last + 1 => {
                    return ControlFlow::Break(Err(error::broken(TextKey::BrokeMissing)));
                }
                _ => progress.last_number = Some(number),
            }
        }
        let data = event.text();
        if data == DONE {
            return ControlFlow::Break(progress.finish.take().unwrap_or(Ok(TurnEnd::Done)));
        }
        if event.event == APPROVAL_REQUEST || event.event == APPROVAL_RESPONDED {
            if let Some(approval) = ApprovalEvent::parse(event.event, &data) {
                (self.asides)(approval);
            }
            return ControlFlow::Continue(());
        }
        if event.event == TOOL_PROGRESS {
            if let Ok(tool) = ToolProgress::parse(&data) {
                out.emit(TurnEvent::Step(self.step(&tool)));
            }
            return ControlFlow::Continue(());
        }
        let chunk = match progress.chunks.read(&data) {
            Ok(chunk) => chunk,
            Err(_) => {
                if progress.garbage == 0 {
                    tracing::warn!("the stream has an event that is no JSON; it is left out");
                }
                progress.garbage += 1;
                return ControlFlow::Continue(());
            }
        };
        if let Some(thought) = chunk.thought() {
            out.emit(TurnEvent::Thought(thought));
        }
        if let Some(text) = chunk.text() {
            progress.heard.push(text);
            out.emit(TurnEvent::Text(text));
        }
        if let Some(take) = self.tool_calls {
            ToolCallChunk::read(&data).pieces().iter().for_each(take);
        }
        // The stream may have had gaps; the text at its end is the one that the server keeps.
        if let Some(whole) = chunk.whole().filter(|whole| !progress.heard.is(whole)) {
            tracing::info!("the text at the end of the stream differs from its deltas");
            out.replace_text(whole);
        }
        if let Some(usage) = chunk.usage {
            out.emit(TurnEvent::Usage(usage.into()));
        }
        chunk.remarks().for_each(|remark| out.emit(TurnEvent::Remark(remark)));
        progress.reason = progress.reason.take().or_else(|| chunk.reason());
        let explains = chunk.error.is_some() && std::mem::take(&mut progress.awaits_error);
        let finish = match chunk.finish_reason() {
            // Stopped by somebody else: after our own stop we do not read on.
            _ if chunk.is_cancelled() => {
                Some(Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeStopped)))
            }
            // An error object says more than a finish reason beside it.
            _ if chunk.error.is_some() => {
                Some(Err(error::reported(chunk.error.as_ref(), progress.reason.take())))
            }
            Some("error") => {
                progress.awaits_error = true;
                Some(Err(error::reported(None, progress.reason.clone())))
            }
            Some("length") => Some(Ok(TurnEnd::Limit)),
            Some("content_filter") => {
                Some(Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeFiltered)))
            }
            Some(_) => Some(Ok(TurnEnd::Done)),
            None => None,
        };
        // A later chunk does not turn a failure into a success.
        if let Some(finish) = finish
            && (explains || !matches!(progress.finish, Some(Err(_))))
        {
            progress.finish = Some(finish);
        }
        ControlFlow::Continue(())
    }

    fn step(&self, tool: &ToolProgress<'_>) -> Step {
        let title = tool.tool.as_deref().unwrap_or_default().to_owned();
        let state = match tool.status.as_deref() {
            Some("completed" | "done" | "success") => StepState::Done,
            Some("failed" | "error" | "cancelled") => StepState::Failed,
            _ => StepState::Running,
        };
        let subject = tool.label.as_deref().filter(|label| self.tells_subjects && *label != title);
        Step {
            id: tool.call_id.as_deref().map_or_else(|| title.clone(), str::to_owned),
            detail: subject.map(|label| mask_secrets(clip(label, SUBJECT))),
            title,
            state,
        }
    }
}

/// Length and hash of a text.
#[derive(Default)]
struct HashedText {
    bytes: usize,
    hash: DefaultHasher,
}

impl HashedText {
    fn push(&mut self, text: &str) {
        self.bytes += text.len();
        // Not by `Hash`, which would distinguish equal texts in different pieces.
        self.hash.write(text.as_bytes());
    }

    fn is(&self, text: &str) -> bool {
        let mut other = Self::default();
        other.push(text);
        self.bytes == other.bytes && self.hash.finish() == other.hash.finish()
    }
}

/// Whether an event that begins like this is the final one: it has a finish reason, or our own server's
/// `hermes` object. Text in the event cannot imitate that, because JSON escapes its quotes.
fn is_last(beginning: &[u8]) -> bool {
    let has = |name: &str, value: u8| {
        memmem::find_iter(beginning, name).any(|at| {
            let after = beginning[at + name.len()..].trim_ascii_start();
            after.strip_prefix(b":").is_some_and(|after| after.trim_ascii_start().first() == Some(&value))
        })
    };
    has(r#""finish_reason""#, b'"') || has(r#""hermes""#, b'{')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_event_that_ends_an_answer_is_its_last() {
        for last in [
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}],"hermes":{"text":"a"#,
            r#"{ "choices" : [ { "finish_reason" : "length""#,
            r#"{"hermes":{"text":"a"#,
        ] {
            assert!(is_last(last.as_bytes()), "{last}");
        }
        for other in [
            "",
            r#"{"choices":[{"finish_reason":null,"delta":{"content":"a"#,
            r#"{"model":"hermes","choices":[{"delta":{"content":"a"#,
            r#"{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\" \"hermes\":{"#,
            r#"{"choices":[{"finish_reason"#,
            r#"{"choices":[{"finish_reason":"#,
        ] {
            assert!(!is_last(other.as_bytes()), "{other}");
        }
    }
}
