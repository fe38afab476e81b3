//! Receives everything that an agent reports during one try of a turn: events, asks, messages of the transcript and
//! reports about the session.

use std::sync::Arc;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::asks::Asks;
use super::sink::TurnSink;
use super::upstream_reports::UpstreamReports;
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput, Ask, AskChoice, SessionMessage, TURN_BYTES, TurnEvent,
};
use crate::i18n::TextKey;
use crate::ids::AgentName;
use crate::store::{Store, TurnRow};
use crate::testing::{broken, failpoint};

/// Bytes that each message counts beside its text, so that very many empty ones are bounded too.
const ROW_BYTES: usize = 64;

/// The [`AgentOutput`] of one try of a turn. Every delta passes through it: events go to the sink, asks to people.
pub(super) struct TurnOutput<'a> {
    sink: &'a TurnSink<'a>,
    asks: &'a Arc<Asks>,
    turn: &'a TurnRow,
    store: &'a Store,
    /// The agent that runs.
    agent: &'a AgentName,
    /// Messages of the transcript that this try has recorded, and their bytes.
    recorded: Mutex<RecordedMessages>,
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
        store: &'a Store,
        agent: &'a AgentName,
        stop: &'a CancellationToken,
    ) -> Self {
        let (recorded, reports) = (Mutex::default(), UpstreamReports::default());
        Self { sink, asks, turn, store, agent, recorded, stop, reports }
    }

    /// Stores one message. Its number within the try makes a repeat of the run replace it instead of adding it twice.
    async fn keep_record(&self, message: SessionMessage) -> Result<(), AgentError> {
        let number = {
            let mut recorded = self.recorded.lock();
            let tools = message.tools.as_ref().map_or(0, |tools| serde_json::json!(tools).to_string().len());
            let reasoning = message.reasoning.as_ref().map_or(0, String::len);
            recorded.bytes += message.content.len() + tools + reasoning + ROW_BYTES;
            if recorded.bytes > TURN_BYTES {
                let mib = TURN_BYTES / (1024 * 1024);
                return Err(AgentError::new(
                    AgentErrorKind::CutShort,
                    TextKey::BrokeTooMuch.with("mib", mib),
                ));
            }
            recorded.count += 1;
            recorded.count - 1
        };
        if broken("transcript") {
            return Ok(());
        }
        let (turn, text_end) = (self.turn.id.clone(), self.sink.text_len());
        let stored = self.store.write(move |tx| tx.add_turn_record(&turn, number, text_end, &message)).await;
        failpoint("turn.recorded");
        match stored {
            Ok(true) => Ok(()),
            Ok(false) => {
                tracing::warn!("a message of the transcript came after the end of its turn");
                Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeUnrecorded))
            }
            Err(error) => {
                tracing::error!(%error, "a message of the transcript was not stored; the turn ends");
                Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeUnrecorded))
            }
        }
    }
}

#[derive(Default)]
struct RecordedMessages {
    count: usize,
    bytes: usize,
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

    fn still_granted(&self, asks: Vec<Ask>) -> BoxFuture<'_, bool> {
        Box::pin(self.asks.still_granted(self.turn, asks))
    }

    fn store_upstream(&self, report: serde_json::Value) -> BoxFuture<'_, Result<(), AgentError>> {
        self.reports.put(report);
        Box::pin(async {
            self.reports.store(self.store, &self.turn.session, self.agent).await.map_err(|_| {
                // It is in the log.
                AgentError::new(AgentErrorKind::Refused, TextKey::BrokeUnrecorded)
            })
        })
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(self.keep_record(message))
    }

    fn replace_text(&self, text: &str) {
        self.sink.replace_text(text);
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.sink.wait_for_capacity()
    }
}
