//! Receives everything that an agent reports during one try of a turn: events, asks and reports about the session.

use std::sync::Arc;

use talaria_platform::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::asks::Asks;
use super::sink::TurnSink;
use super::upstream_reports::UpstreamReports;
use crate::agent::{AgentError, AgentOutput, Ask, AskChoice, TurnEvent};
use crate::store::TurnRow;

/// The [`AgentOutput`] of one try of a turn. Every delta passes through it: events go to the sink, asks to people.
pub(super) struct TurnOutput<'a> {
    sink: &'a TurnSink<'a>,
    asks: &'a Arc<Asks>,
    turn: &'a TurnRow,
    /// Fired when a person stops the turn.
    stop: &'a CancellationToken,
    /// The agent's reports about the session.
    pub reports: UpstreamReports,
}

impl<'a> TurnOutput<'a> {
    pub fn new(
        sink: &'a TurnSink<'a>,
        asks: &'a Arc<Asks>,
        turn: &'a TurnRow,
        stop: &'a CancellationToken,
    ) -> Self {
        Self { sink, asks, turn, stop, reports: UpstreamReports::default() }
    }
}

impl AgentOutput for TurnOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        match event {
            TurnEvent::Upstream(report) => self.reports.put(report),
            event => self.sink.emit(event),
        }
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(self.asks.clone().ask(self.turn.clone(), self.stop.clone(), ask))
    }

    fn replace_text(&self, text: &str) {
        self.sink.replace_text(text);
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.sink.wait_for_capacity()
    }
}
