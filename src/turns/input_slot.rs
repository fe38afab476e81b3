//! Keeps the input of a running turn in memory only until the agent has taken it.
//!
//! A large prompt that an agent answers for minutes would otherwise be held four times: in the row, in the agent's
//! turn, in the request, and by the client that sends it. Everything is stored before anything is sent. So while the
//! agent runs only the sender holds it, and the engine loads it again if needed. A turn that waits for its next try
//! holds nothing of it either.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::input_budget::InputPermit;
use super::sink::TurnSink;
use super::{RunningTurn, STORE_PAUSE, Turns, source};
use crate::agent::{AgentTurn, ModelParams, PreparedTurn, SessionMessage};
use crate::store::{self, StoreError, TurnRow, Tx};
use crate::turn_source::TurnSource;

/// Input with more bytes is not held while the agent runs.
const LARGE: usize = 16 * 1024;

/// Longest wait of a finished answer for the memory of its prompt, before both are stored. Other turns may hold the
/// whole budget.
const AT_END: Duration = Duration::from_secs(5);

/// Charge of a running turn to the [`InputBudget`](super::InputBudget).
#[derive(Clone, Default)]
pub(super) struct InputSlot(Arc<Mutex<SlotState>>);

#[derive(Default)]
struct SlotState {
    permit: Option<InputPermit>,
    /// Bytes of the input while it is set aside.
    set_aside: Option<usize>,
}

impl InputSlot {
    /// Replaces the charge.
    pub fn put(&self, permit: Option<InputPermit>) {
        self.lock().permit = permit;
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock()
    }
}

/// A request that is charged for as long as a copy of it exists.
struct CountedRequest {
    request: Bytes,
    _permit: Option<InputPermit>,
}

impl AsRef<[u8]> for CountedRequest {
    fn as_ref(&self) -> &[u8] {
        &self.request
    }
}

/// Bytes that a turn holds of its prompt, app request and history.
pub(super) fn size(row: &TurnRow, history: &[SessionMessage]) -> usize {
    let said = history.iter().map(|message| message.content.len());
    row.prompt.len() + source::input_bytes(&row.source) + said.sum::<usize>()
}

/// Bytes of the pictures and files attached to a room's prompt.
pub(super) fn attached(turn: &AgentTurn) -> usize {
    let images = turn.images.iter().map(|image| image.content.len());
    images.chain(turn.files.iter().map(|file| file.content.len())).sum()
}

/// Drops large input from memory: everything of an app's turn, but only the attachments of a room's turn, where all
/// else is short. [`Turns::load_input`] brings it back.
pub(super) fn set_aside(row: &mut Arc<TurnRow>, turn: &mut AgentTurn, running: &RunningTurn) {
    let bytes = size(row, &turn.history) + attached(turn);
    if bytes <= LARGE {
        return;
    }
    if row.source.app().is_some() {
        // A row that others hold too would have to be copied.
        let Some(row) = Arc::get_mut(row) else { return };
        (row.prompt, row.prepared) = (String::new(), None);
        if let TurnSource::App(request) = &mut row.source {
            request.drop_input();
        }
        (turn.prompt, turn.context, turn.fallback_context) = (String::new(), String::new(), String::new());
        (turn.parts, turn.history, turn.params) = (Vec::new(), Vec::new(), ModelParams::default());
    }
    (turn.images, turn.files) = (Vec::new(), Vec::new());
    running.input.lock().set_aside = Some(bytes);
}

/// Drops large input, and its charge, until the next try.
pub(super) fn leave_in_store(row: &mut Arc<TurnRow>, turn: &mut AgentTurn, running: &RunningTurn) {
    set_aside(row, turn, running);
    let mut slot = running.input.lock();
    if slot.set_aside.is_some() {
        slot.permit = None;
    }
}

/// Returns the request for the agent. If the input was set aside, only the agent holds it from now on.
pub(super) fn hand_over(prepared: &mut PreparedTurn, running: &RunningTurn) -> PreparedTurn {
    let mut slot = running.input.lock();
    let request = match slot.set_aside {
        Some(_) => mem::take(&mut prepared.request),
        None => prepared.request.clone(),
    };
    let counted = CountedRequest { request, _permit: slot.permit.take() };
    PreparedTurn { request: Bytes::from_owner(counted), ..prepared.clone() }
}

/// The part of set-aside input to load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// The prompt, for the transcript. The answer is there, so this waits for the budget only for [`AT_END`].
    Question,
    /// Only the request, if there is one: it is sent again unchanged.
    Request,
    /// Everything, for another request or another agent.
    All,
}

impl Turns {
    /// Loads the input that was set aside, if any, once the budget allows it.
    pub(super) async fn load_input(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        what: Reload,
        (sink, running): (&TurnSink<'_>, &RunningTurn),
    ) -> store::Result<()> {
        let Some(bytes) = running.input.lock().set_aside else { return Ok(()) };
        if row.source.app().is_none() {
            return self.load_attached(row, turn, prepared, what, bytes, (sink, running)).await;
        }
        let permit = match what {
            Reload::Question => {
                tokio::time::timeout(AT_END, self.input_budget.take(&source::payer(&row.source), bytes))
                    .await
                    .ok()
            }
            Reload::Request | Reload::All => self.wait_for_input_budget(row, bytes, (sink, running)).await,
        };
        running.input.put(permit);
        if let (Reload::Request, Some(prepared)) = (what, prepared.as_mut()) {
            return self.load_request(row, prepared).await;
        }
        running.input.lock().set_aside = None;
        if what == Reload::Question {
            let id = row.id.clone();
            // A turn that was removed meanwhile leaves nothing to remember.
            if let Some(asked) = self.read_surely(move |tx| tx.asked(&id)).await? {
                let row = Arc::make_mut(row);
                (row.prompt, row.source) = asked;
            }
            return Ok(());
        }
        let (id, session, settings) = (row.id.clone(), row.session.clone(), self.settings.clone());
        let read = self.read_surely(move |tx| {
            Ok((tx.turn(&id)?, tx.history(&session, settings.history_messages, settings.history_bytes)?))
        });
        let (Some(stored), history) = read.await? else { return Ok(()) };
        let row = Arc::make_mut(row);
        (row.prompt, row.source) = (stored.prompt, stored.source);
        (turn.prompt, turn.history) = (source::prompt(row), history);
        (turn.context, turn.fallback_context) = self.contexts(row);
        source::describe(&row.source, turn);
        if let Some(prepared) = prepared {
            prepared.request = stored.prepared.map(|stored| stored.request).unwrap_or_default();
        }
        Ok(())
    }

    /// Brings back the attachments of a room's prompt; its text never left memory. A prepared request contains them;
    /// for a new request they are fetched again.
    async fn load_attached(
        &self,
        row: &Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        what: Reload,
        bytes: usize,
        (sink, running): (&TurnSink<'_>, &RunningTurn),
    ) -> store::Result<()> {
        match (what, prepared) {
            (Reload::Question, _) => running.input.lock().set_aside = None,
            (Reload::Request | Reload::All, Some(prepared)) => {
                running.input.put(self.wait_for_input_budget(row, bytes, (sink, running)).await);
                self.load_request(row, prepared).await?;
            }
            (Reload::Request | Reload::All, None) => {
                running.input.lock().set_aside = None;
                turn.prompt = source::prompt(row);
                Box::pin(self.fetch_media(row, turn, running, sink)).await;
            }
        }
        Ok(())
    }

    async fn load_request(&self, row: &TurnRow, prepared: &mut PreparedTurn) -> store::Result<()> {
        let id = row.id.clone();
        let request = self.read_surely(move |tx| tx.request(&id)).await?;
        prepared.request = request.unwrap_or_default().into();
        Ok(())
    }

    /// Waits until `bytes` may be held. `None` if the turn ends meanwhile: it then needs little input.
    pub(super) async fn wait_for_input_budget(
        &self,
        row: &TurnRow,
        bytes: usize,
        (sink, running): (&TurnSink<'_>, &RunningTurn),
    ) -> Option<InputPermit> {
        let payer = source::payer(&row.source);
        tokio::select! {
            biased;
            () = self.interrupted(running, sink) => None,
            permit = self.input_budget.take(&payer, bytes) => Some(permit),
        }
    }

    /// Reads from the store, and retries until it answers: otherwise the agent's answer would be lost.
    async fn read_surely<T: Send + 'static>(
        &self,
        read: impl Fn(&Tx<'_>) -> store::Result<T> + Clone + Send + 'static,
    ) -> store::Result<T> {
        loop {
            let read = read.clone();
            match self.store.read(move |tx| read(tx)).await {
                Err(error) if !matches!(error, StoreError::Closed) && !self.draining.is_cancelled() => {
                    tracing::error!(%error, "an answer waits for the store");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
                read => return read,
            }
        }
    }
}
