//! Calls that wait for their answers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::RpcAnswer;
use super::failure::{ProcessFailure, RpcError};
use super::incoming_queue::{IncomingQueue, ReadAhead};
use super::wire;

/// All calls of a connection that have no answer yet.
#[derive(Debug)]
pub(super) struct WaitingCalls {
    state: Mutex<CallState>,
    incoming: Arc<IncomingQueue>,
}

#[derive(Debug)]
struct CallState {
    last_id: i64,
    /// An entry lives as long as the future of its call, so their number is the caller's.
    waiting: HashMap<i64, oneshot::Sender<AnswerLine>>,
    /// Set once: then there are no calls any more.
    failure: Option<ProcessFailure>,
}

/// An answer as it was read, or the reason that none will come.
type AnswerLine = Result<(Vec<u8>, u64), ProcessFailure>;

/// A call that waits. Dropping it gives the call up.
pub(super) struct WaitingCall<'a> {
    calls: &'a WaitingCalls,
    id: i64,
    answer: oneshot::Receiver<AnswerLine>,
    /// The answer may stand behind messages that nobody takes.
    _read_ahead: ReadAhead,
}

impl WaitingCalls {
    pub(super) fn new(incoming: Arc<IncomingQueue>) -> Self {
        let state = CallState { last_id: 0, waiting: HashMap::new(), failure: None };
        Self { state: Mutex::new(state), incoming }
    }

    /// Begins to wait for an answer, under a new id.
    pub(super) fn register(&self) -> Result<WaitingCall<'_>, ProcessFailure> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.last_id += 1;
        let id = state.last_id;
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(id, sender);
        drop(state);
        Ok(WaitingCall { calls: self, id, answer, _read_ahead: self.incoming.read_ahead() })
    }

    /// Whether somebody waits for the answer to this call.
    pub(super) fn is_waiting(&self, id: i64) -> bool {
        self.state.lock().waiting.contains_key(&id)
    }

    /// Passes an answer on. False if nobody waits for it.
    pub(super) fn answer(&self, id: i64, line: Vec<u8>, position: u64) -> bool {
        let Some(sender) = self.state.lock().waiting.remove(&id) else { return false };
        sender.send(Ok((line, position))).is_ok()
    }

    /// Fails all calls, now and later.
    pub(super) fn fail(&self, failure: &ProcessFailure) {
        let mut state = self.state.lock();
        state.failure = Some(failure.clone());
        for (_, sender) in state.waiting.drain() {
            // A caller that gave up in this moment needs no reason.
            let _ = sender.send(Err(failure.clone()));
        }
    }
}

impl WaitingCall<'_> {
    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// Waits for the answer. The caller has the deadline.
    pub(super) async fn answer(&mut self) -> Result<RpcAnswer, RpcError> {
        match (&mut self.answer).await {
            Ok(Ok((line, position))) => match wire::read_answer(&line) {
                Ok(result) => Ok(RpcAnswer { result, position, line }),
                Err(fault) => Err(RpcError::Fault(fault)),
            },
            Ok(Err(failure)) => Err(RpcError::Gone(failure)),
            // The table drops no sender without a word.
            Err(_) => Err(RpcError::Gone(ProcessFailure::unknown())),
        }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.calls.state.lock().waiting.remove(&self.id);
    }
}
