//! Reads a streamed chat completion to its end.
//!
//! A stream is complete only if it says so: by `[DONE]`, after which we do not wait for more, or by a finish
//! reason before the connection closes. Any other end is a broken stream, however much text came.

use std::ops::ControlFlow;

use memchr::memmem;
use reqwest::Response;
use talaria_platform::CancellationToken;

use super::error;
use super::event_stream::{EventStream, EventTaker};
use super::hashed_text::HashedText;
use super::sse::SseEvent;
use super::wire::{
    APPROVAL_REQUEST, APPROVAL_RESPONDED, ApprovalEvent, ChunkCache, DONE, TOOL_PROGRESS, ToolCallChunk,
    ToolCallDelta, ToolProgress,
};
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, Step, StepState, TurnEnd, TurnEvent};
use crate::config::UpstreamTimeouts;
use crate::i18n::{LocalizedText, TextKey};
use crate::util::{clip, mask_secrets};

/// Bytes of the subject of a tool call that are looked at. Rooms show less.
const SUBJECT: usize = 512;

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
}

impl StreamReader<'_> {
    /// Checks that a response is a stream, and reads it to its end.
    pub async fn read(
        &self,
        response: Response,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let events = EventStream { who: self.who, timeouts: self.timeouts };
        let mut taker = ChunkTaker { reader: self, progress: StreamProgress::default() };
        events.read(response, &mut taker, out, stop).await
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

/// Takes the events of one stream of completions.
struct ChunkTaker<'a> {
    reader: &'a StreamReader<'a>,
    progress: StreamProgress,
}

impl EventTaker for ChunkTaker<'_> {
    fn take(
        &mut self,
        event: &SseEvent<'_>,
        out: &dyn AgentOutput,
    ) -> ControlFlow<Result<TurnEnd, AgentError>> {
        self.reader.take(event, &mut self.progress, out)
    }

    fn proven_end(&mut self) -> Option<Result<TurnEnd, AgentError>> {
        self.progress.finish.take()
    }

    /// Only a resumable stream repeats the whole text at its end.
    fn may_be_long(&mut self, beginning: &[u8]) -> bool {
        self.reader.numbered && is_last(beginning)
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
