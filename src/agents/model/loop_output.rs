//! Joins the model's words over several requests of a turn into one answer.

use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;

use crate::agent::{
    AgentError, AgentOutput, Ask, AskChoice, SessionMessage, TokenUsage, TurnEvent, estimate_tokens,
};
use crate::agents::work_clock::WorkClock;
use crate::reply::spoken_text;

/// Stands between the texts of two requests.
const SEPARATOR: &str = "\n\n";

/// Passes events of the running request on to the turn, and keeps those parts that the loop needs.
pub struct LoopOutput<'a> {
    out: &'a dyn AgentOutput,
    state: Mutex<LoopState>,
    clock: WorkClock,
}

#[derive(Default)]
struct LoopState {
    /// Text of the running request.
    text: String,
    /// Whether anything of the running request was passed on: then it must not be repeated.
    shown: bool,
    /// Whether any request of the turn has brought text.
    spoke: bool,
    /// Tokens of the requests before.
    before: TokenUsage,
    /// Tokens of the running request.
    now: TokenUsage,
    /// Bytes of the running request.
    request: usize,
    /// Estimated tokens of the requests before whose server reported none.
    estimated: u64,
}

impl<'a> LoopOutput<'a> {
    /// The output of a turn that begins now.
    pub fn new(out: &'a dyn AgentOutput) -> Self {
        Self { out, state: Mutex::default(), clock: WorkClock::start() }
    }

    /// Begins the next request, which has these bytes.
    pub fn begin_request(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.estimated = state.estimated.saturating_add(state.estimate());
        state.request = bytes;
        state.spoke |= !state.text.is_empty();
        let TokenUsage { input, output } = std::mem::take(&mut state.now);
        state.before.input = state.before.input.saturating_add(input);
        state.before.output = state.before.output.saturating_add(output);
        state.text.clear();
        state.shown = false;
    }

    /// Whether anything of the running request was passed on.
    pub fn has_shown(&self) -> bool {
        self.state.lock().shown
    }

    /// Text of the running request without reasoning and files.
    pub fn text(&self) -> String {
        spoken_text(&self.state.lock().text)
    }

    /// Tokens of the whole turn so far, estimated where the server did not report them.
    pub fn tokens(&self) -> u64 {
        let state = self.state.lock();
        let TokenUsage { input, output } = state.before;
        let reported = [input, output, state.now.input, state.now.output];
        let unreported = state.estimated.saturating_add(state.estimate());
        reported.into_iter().fold(unreported, u64::saturating_add)
    }

    /// Time that the turn has run, without the time that people took to answer.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

impl LoopState {
    /// Estimated tokens of the running request; none if the server reported them.
    fn estimate(&self) -> u64 {
        match self.now == TokenUsage::default() {
            true => estimate_tokens(self.request.saturating_add(self.text.len())),
            false => 0,
        }
    }
}

impl AgentOutput for LoopOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        let mut state = self.state.lock();
        match event {
            TurnEvent::Text(text) => {
                if state.text.is_empty() && state.spoke {
                    self.out.emit(TurnEvent::Text(SEPARATOR));
                }
                state.shown = true;
                state.text.push_str(text);
                self.out.emit(event);
            }
            TurnEvent::Thought(_) => {
                state.shown = true;
                self.out.emit(event);
            }
            TurnEvent::Usage(usage) => {
                state.now = usage;
                let TokenUsage { input, output } = state.before;
                self.out.emit(TurnEvent::Usage(TokenUsage {
                    input: input.saturating_add(usage.input),
                    output: output.saturating_add(usage.output),
                }));
            }
            TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Step(_)
            | TurnEvent::Notice(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => self.out.emit(event),
        }
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.clock.pause_for(self.out.ask(ask))
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        self.out.record(message)
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.out.wait_for_capacity()
    }

    fn replace_text(&self, _text: &str) {
        // A model's server does not repeat its text, and the answer has more than one request.
    }
}
