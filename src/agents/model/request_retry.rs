//! Sends a request to the model again if it broke before anything of its answer was shown.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use talaria_platform::{Backoff, BoxFuture, CancellationToken};

use super::ModelAgent;
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput, Ask, AskChoice, SessionMessage, TurnEnd, TurnEvent,
};
use crate::openai::error::is_temporary;

/// Tries of one request that broke before anything of it was shown.
const TRIES: u32 = 4;

/// Pauses between these tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// Counts the tries of one request.
pub struct RequestRetries {
    tries: u32,
    backoff: Backoff,
}

/// The next step after a request that broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It is sent again.
    SendAgain,
    /// The turn was stopped meanwhile.
    Stop,
}

impl Default for RequestRetries {
    fn default() -> Self {
        Self { tries: 0, backoff: Backoff::between(PAUSES.0, PAUSES.1) }
    }
}

impl RequestRetries {
    /// Waits until the request may be sent again; gives the error back if it may not. The engine waits for a server that
    /// is away, unless tools have run: then it must not run the turn again, and `tools_ran` is set.
    pub async fn wait(
        &mut self,
        error: AgentError,
        tools_ran: bool,
        stop: &CancellationToken,
    ) -> Result<NextStep, AgentError> {
        self.tries += 1;
        let again = match error.kind {
            AgentErrorKind::Unknown { .. } => true,
            AgentErrorKind::NothingRan { .. } | AgentErrorKind::Busy { .. } => tools_ran,
            AgentErrorKind::CutShort => is_temporary(&error),
            AgentErrorKind::PrepareAgain
            | AgentErrorKind::Lost
            | AgentErrorKind::Refused
            | AgentErrorKind::Unfit => false,
        };
        if !again || self.tries == TRIES {
            return Err(error);
        }
        let pause =
            error.kind.retry_after().map_or_else(|| self.backoff.advance(), |after| after.min(PAUSES.1));
        tracing::info!(error = %error, "a request to the model broke and is sent again");
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(NextStep::SendAgain),
            () = stop.cancelled() => Ok(NextStep::Stop),
        }
    }
}

impl ModelAgent {
    /// Answers a turn with one request, whose bytes are sent as they are.
    pub(super) async fn answer_plainly(
        &self,
        request: Bytes,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let out = PlainOutput { out, request: Mutex::new(Some(request)) };
        let mut retries = RequestRetries::default();
        // Without a request something was shown.
        while let Some(request) = out.unshown() {
            let error = match self.complete(request, &out, stop).await {
                Ok(completion) => return Ok(completion.end),
                Err(error) => error,
            };
            if out.unshown().is_none() {
                return Err(error);
            }
            match retries.wait(error, false, stop).await? {
                NextStep::SendAgain => {}
                NextStep::Stop => break,
            }
        }
        Ok(TurnEnd::Stopped)
    }
}

/// Passes everything on, and keeps the request until something of its answer is shown. Then the bytes are let go: they
/// count as memory in use.
struct PlainOutput<'a> {
    out: &'a dyn AgentOutput,
    request: Mutex<Option<Bytes>>,
}

impl PlainOutput<'_> {
    /// The request, as long as nothing of its answer was shown.
    fn unshown(&self) -> Option<Bytes> {
        self.request.lock().clone()
    }
}

impl AgentOutput for PlainOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        match event {
            TurnEvent::Text(_) | TurnEvent::Thought(_) => *self.request.lock() = None,
            TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Step(_)
            | TurnEvent::Notice(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => {}
        }
        self.out.emit(event);
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.out.ask(ask)
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        self.out.record(message)
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.out.wait_for_capacity()
    }

    fn replace_text(&self, text: &str) {
        *self.request.lock() = None;
        self.out.replace_text(text);
    }
}
