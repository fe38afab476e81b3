//! Makes turn events of the events of a run.

use std::ops::ControlFlow;
use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;

use super::run_event::{RunEvent, ToolCall, UnnamedAsk};
use super::{UpstreamRunId, UpstreamRuns};
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput, AttemptKind, Step, StepState, TurnEnd, TurnEvent,
};
use crate::agents::proxy::approvals::PendingApprovals;
use crate::i18n::TextKey;
use crate::openai::error;
use crate::openai::event_stream::EventTaker;
use crate::openai::hashed_text::HashedText;
use crate::openai::sse::SseEvent;
use crate::openai::wire::ErrorBody;
use crate::util::{clip, mask_secrets};

/// Tool calls that run at once and are remembered. A server that never ends its calls must not fill the memory.
const RUNNING: usize = 100;

/// Bytes of the subject of a tool call that are looked at. Rooms show less.
const SUBJECT: usize = 512;

/// Bytes of a message that are compared with what the server calls its reasoning.
const OPENING: usize = 4 * 1024;

/// Takes the events of one run.
pub struct RunEventTaker<'a> {
    pub run: &'a UpstreamRunId,
    pub runs: &'a UpstreamRuns,
    pub approvals: &'a PendingApprovals,
    pub steps: Arc<RunSteps>,
    pub attempt: AttemptKind,
    pub progress: RunProgress,
}

/// What the events of one stream have said so far.
#[derive(Default)]
pub struct RunProgress {
    /// The last event of the run came.
    pub is_over: bool,
    /// The last message is known to be whole: hermes-agent names it again behind its text, but not if a length limit
    /// has cut it.
    pub is_whole: bool,
    /// The output of the run.
    pub output: RunOutput,
    /// All text.
    said: TrimmedText,
    /// The text since the last tool call, which is what the run calls its output.
    message: TrimmedText,
    /// The beginning of `message`.
    opening: String,
    garbage: bool,
}

/// The text of a run that has ended, as the server tells it, beside its deltas.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum RunOutput {
    /// The deltas have it.
    #[default]
    Said,
    /// There were no deltas, so it was shown in their place.
    Shown(String),
    /// All deltas were shown, and they have another text.
    Unsaid(String),
    /// Not all deltas were shown: it is known from the state of the run, or from a stream that was read again.
    Reported(String),
}

impl EventTaker for RunEventTaker<'_> {
    fn take(
        &mut self,
        event: &SseEvent<'_>,
        out: &dyn AgentOutput,
    ) -> ControlFlow<Result<TurnEnd, AgentError>> {
        let data = event.text();
        let event = match RunEvent::parse(&data, &self.run.0) {
            Ok(Some(event)) => event,
            Ok(None) => return ControlFlow::Continue(()),
            Err(_) => {
                if !std::mem::replace(&mut self.progress.garbage, true) {
                    tracing::warn!("the run has an event that is no JSON; it is left out");
                }
                return ControlFlow::Continue(());
            }
        };
        match event {
            RunEvent::Text(text) => self.take_text(&text, out),
            RunEvent::Reasoning(text) => self.take_reasoning(&text, out),
            RunEvent::ToolStarted(call) => {
                out.emit(TurnEvent::Step(self.steps.begin(call)));
                let progress = &mut self.progress;
                (progress.message, progress.is_whole) = (TrimmedText::default(), false);
                progress.opening.clear();
            }
            RunEvent::ToolCompleted { call, failed } => {
                let step = self.steps.end(&call, failed);
                self.approvals.step_ended(&step.id);
                out.emit(TurnEvent::Step(step));
            }
            RunEvent::Named(approval) => self.approvals.hear(approval, self.attempt, self.runs, out),
            RunEvent::Unnamed(ask) => self.take_ask(ask, out),
            RunEvent::UnnamedAnswered => self.approvals.unnamed_answered(),
            RunEvent::Completed { output, usage } => {
                usage.into_iter().for_each(|usage| out.emit(TurnEvent::Usage(usage)));
                self.take_output(&output, out);
                return self.ends(Ok(TurnEnd::Done));
            }
            RunEvent::Failed(why) => return self.ends(Err(failure(&why))),
            RunEvent::Cancelled => return self.ends(Err(cancelled())),
        }
        ControlFlow::Continue(())
    }

    /// A run that says nothing more may go on.
    fn proven_end(&mut self) -> Option<Result<TurnEnd, AgentError>> {
        None
    }

    /// The name of the event stands before the text. Inside a text it would have escaped quotes.
    fn may_be_long(&mut self, beginning: &[u8]) -> bool {
        memmem::find(beginning, br#""run.completed""#).is_some()
    }
}

impl RunEventTaker<'_> {
    /// Whether the stream was read from its beginning, so that its text is all there.
    fn is_live(&self) -> bool {
        self.attempt == AttemptKind::First
    }

    fn take_text(&mut self, text: &str, out: &dyn AgentOutput) {
        let progress = &mut self.progress;
        progress.is_whole = false;
        progress.said.push(text);
        progress.message.push(text);
        if progress.opening.len() < OPENING {
            progress.opening.push_str(text);
        }
        // Of a stream that is read again, nobody knows what is missing. Its text comes with its end.
        if self.is_live() {
            out.emit(TurnEvent::Text(text));
        }
    }

    fn take_reasoning(&mut self, text: &str, out: &dyn AgentOutput) {
        let progress = &mut self.progress;
        let repeats = progress.opening.trim_start().starts_with(text.trim());
        progress.is_whole = repeats && !text.trim().is_empty();
        if self.is_live() && !repeats {
            out.emit(TurnEvent::Thought(text));
        }
    }

    fn take_ask(&mut self, ask: UnnamedAsk, out: &dyn AgentOutput) {
        self.approvals.hear_unnamed(ask, self.steps.latest(), (self.run, self.runs), self.attempt, out);
    }

    /// Compares the text so far with the run's own, which is only its last message.
    fn take_output(&mut self, output: &str, out: &dyn AgentOutput) {
        let is_live = self.is_live();
        let progress = &mut self.progress;
        let has_words = !output.trim().is_empty();
        progress.output = if !is_live {
            RunOutput::Reported(output.to_owned())
        } else if progress.said.is_empty() {
            out.emit(TurnEvent::Text(output.trim_start()));
            RunOutput::Shown(output.to_owned())
        } else if has_words && (progress.message.is(output) || progress.said.is(output)) {
            RunOutput::Said
        } else {
            tracing::info!("the output of the run differs from its deltas");
            RunOutput::Unsaid(output.to_owned())
        };
    }

    fn ends(&mut self, end: Result<TurnEnd, AgentError>) -> ControlFlow<Result<TurnEnd, AgentError>> {
        self.progress.is_over = true;
        ControlFlow::Break(end)
    }
}

/// The error of a run that failed. The reason is only classified; rooms get words of ours.
pub fn failure(why: &str) -> AgentError {
    tracing::warn!("the run failed at the upstream");
    tracing::trace!(why, "the upstream's reason");
    let why = ErrorBody { kind: Some(why.into()), ..ErrorBody::default() };
    error::reported(Some(&why), None)
}

/// The error of a run that somebody else stopped: after our own stop we do not read on.
pub fn cancelled() -> AgentError {
    AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeStopped)
}

/// The tool calls of one turn, over all its tries. A server may give its calls no ids.
#[derive(Default)]
pub struct RunSteps {
    state: Mutex<StepsState>,
}

#[derive(Default)]
struct StepsState {
    count: usize,
    /// Calls that run, the latest last: step id and tool.
    running: Vec<(String, String)>,
}

impl RunSteps {
    fn begin(&self, ToolCall { tool, id, preview }: ToolCall<'_>) -> Step {
        let mut state = self.state.lock();
        state.count += 1;
        let id = id.map_or_else(|| format!("{}-{tool}", state.count), |id| id.into_owned());
        if state.running.len() == RUNNING {
            state.running.remove(0);
        }
        state.running.push((id.clone(), tool.clone().into_owned()));
        let preview = preview.filter(|preview| !preview.trim().is_empty());
        let detail = preview.map(|preview| mask_secrets(clip(&preview, SUBJECT)));
        Step { id, title: tool.into_owned(), detail, state: StepState::Running }
    }

    /// Without an id, the first running call of the tool has ended.
    fn end(&self, call: &ToolCall<'_>, failed: bool) -> Step {
        let mut state = self.state.lock();
        let is_meant = |(id, tool): &(String, String)| match &call.id {
            Some(call) => call == id,
            None => call.tool == *tool,
        };
        let at = state.running.iter().position(is_meant);
        let id = at.map(|at| state.running.remove(at).0).unwrap_or_else(|| {
            state.count += 1;
            format!("{}-{}", state.count, call.tool)
        });
        let ended = if failed { StepState::Failed } else { StepState::Done };
        Step { id, title: call.tool.clone().into_owned(), detail: None, state: ended }
    }

    /// Step id and tool of the call that began last and still runs.
    fn latest(&self) -> Option<(String, String)> {
        self.state.lock().running.last().cloned()
    }
}

/// A text in pieces, compared without the space around it.
#[derive(Default)]
struct TrimmedText {
    text: HashedText,
    /// Space that is part of the text only if more follows.
    space: String,
}

impl TrimmedText {
    fn push(&mut self, piece: &str) {
        let piece = if self.is_empty() { piece.trim_start() } else { piece };
        let (words, space) = piece.split_at(piece.trim_end().len());
        if !words.is_empty() {
            self.text.push(&self.space);
            self.space.clear();
            self.text.push(words);
        }
        self.space.push_str(space);
    }

    fn is(&self, text: &str) -> bool {
        self.text.is(text.trim())
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_pieces_is_compared_without_the_space_around_it() {
        let mut text = TrimmedText::default();
        for piece in ["\n\n", " Hel", "lo \n", "\n", "there", ".  "] {
            text.push(piece);
        }
        assert!(text.is("Hello \n\nthere.") && text.is(" Hello \n\nthere.\n"));
        assert!(!text.is("Hello there."));
        assert!(TrimmedText::default().is(" "));
    }

    fn call(tool: &str, id: Option<&'static str>) -> ToolCall<'static> {
        ToolCall { tool: tool.to_owned().into(), id: id.map(Into::into), preview: None }
    }

    #[test]
    fn calls_without_ids_end_in_their_order_and_unknown_ones_are_steps_of_their_own() {
        let steps = RunSteps::default();
        let (first, second) = (steps.begin(call("terminal", None)), steps.begin(call("terminal", None)));
        let other = steps.begin(call("search", Some("c1")));
        assert_eq!(steps.latest(), Some(("c1".to_owned(), "search".to_owned())));
        assert_eq!(steps.end(&call("search", Some("c1")), true).id, other.id);
        assert_eq!(steps.end(&call("terminal", None), false).id, first.id);
        assert_eq!(steps.end(&call("terminal", None), false).id, second.id);
        let unknown = steps.end(&call("terminal", None), false);
        assert!(![&first.id, &second.id, &other.id].contains(&&unknown.id));
        assert_eq!(steps.latest(), None);
    }
}
