//! The output of a turn of an agent that is a program: everything goes on to the engine, and the clock of the turn stands
//! still while an ask is open.

use std::time::Duration;

use talaria_platform::BoxFuture;

use crate::agent::{AgentError, AgentOutput, Ask, AskChoice, SessionMessage, TurnEvent};
use crate::agents::work_clock::WorkClock;

/// Passes everything on to the turn.
pub struct TimedOutput<'a> {
    out: &'a dyn AgentOutput,
    clock: WorkClock,
}

impl<'a> TimedOutput<'a> {
    /// The output of a turn that begins now.
    pub fn new(out: &'a dyn AgentOutput) -> Self {
        Self { out, clock: WorkClock::start() }
    }

    /// Time that the turn has run, without the time that people took to answer.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

impl AgentOutput for TimedOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        self.out.emit(event);
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.clock.pause_for(self.out.ask(ask))
    }

    fn still_granted(&self, asks: Vec<Ask>) -> BoxFuture<'_, bool> {
        self.out.still_granted(asks)
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        self.out.record(message)
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.out.wait_for_capacity()
    }

    fn replace_text(&self, text: &str) {
        self.out.replace_text(text);
    }
}
