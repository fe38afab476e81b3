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
use super::turn_run::TurnRun;
use super::{STORE_PAUSE, Turns, source};
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

impl TurnRun<'_> {
    /// Drops large input from memory: everything of an app's turn, but only the attachments of a room's turn, where all
    /// else is short. [`TurnRun::load_input`] brings it back.
    pub fn set_aside(&mut self) {
        let turn = &mut self.turn;
        let bytes = size(self.row, &turn.history) + attached(turn);
        if bytes <= LARGE {
            return;
        }
        if self.row.source.app().is_some() {
            // A row that others hold too would have to be copied.
            let Some(row) = Arc::get_mut(self.row) else { return };
            (row.prompt, row.prepared) = (String::new(), None);
            if let TurnSource::App(request) = &mut row.source {
                request.drop_input();
            }
            (turn.prompt, turn.context, turn.fallback_context) =
                (String::new(), String::new(), String::new());
            (turn.parts, turn.history, turn.params) = (Vec::new(), Vec::new(), ModelParams::default());
        }
        (turn.images, turn.files) = (Vec::new(), Vec::new());
        self.running.input.lock().set_aside = Some(bytes);
    }

    /// Drops large input, and its charge, until the next try.
    pub fn leave_in_store(&mut self) {
        self.set_aside();
        let mut slot = self.running.input.lock();
        if slot.set_aside.is_some() {
            slot.permit = None;
        }
    }

    /// Returns the request for the agent, if there is one. If the input was set aside, only the agent holds it from now
    /// on.
    pub fn hand_over(&mut self) -> Option<PreparedTurn> {
        let prepared = self.prepared.as_mut()?;
        let mut slot = self.running.input.lock();
        let request = match slot.set_aside {
            Some(_) => mem::take(&mut prepared.request),
            None => prepared.request.clone(),
        };
        let counted = CountedRequest { request, _permit: slot.permit.take() };
        Some(PreparedTurn { request: Bytes::from_owner(counted), ..prepared.clone() })
    }

    /// Loads the input that was set aside, if any, once the budget allows it.
    pub async fn load_input(&mut self, what: Reload) -> store::Result<()> {
        let Some(bytes) = self.running.input.lock().set_aside else { return Ok(()) };
        if self.row.source.app().is_none() {
            return self.load_attached(what, bytes).await;
        }
        let permit = match what {
            Reload::Question => {
                let payer = source::payer(&self.row.source);
                tokio::time::timeout(AT_END, self.turns.input_budget.take(&payer, bytes)).await.ok()
            }
            Reload::Request | Reload::All => self.wait_for_input_budget(bytes).await,
        };
        self.running.input.put(permit);
        if what == Reload::Request && self.prepared.is_some() {
            return self.load_request().await;
        }
        self.running.input.lock().set_aside = None;
        if what == Reload::Question {
            let id = self.row.id.clone();
            // A turn that was removed meanwhile leaves nothing to remember.
            if let Some(asked) = self.turns.read_surely(move |tx| tx.asked(&id)).await? {
                let row = Arc::make_mut(self.row);
                (row.prompt, row.source) = asked;
            }
            return Ok(());
        }
        let (id, session) = (self.row.id.clone(), self.row.session.clone());
        let settings = self.turns.settings.clone();
        let read = self.turns.read_surely(move |tx| {
            Ok((tx.turn(&id)?, tx.history(&session, settings.history_messages, settings.history_bytes)?))
        });
        let (Some(stored), history) = read.await? else { return Ok(()) };
        let (row, turn) = (Arc::make_mut(self.row), &mut self.turn);
        (row.prompt, row.source) = (stored.prompt, stored.source);
        (turn.prompt, turn.history) = (source::prompt(row), history);
        (turn.context, turn.fallback_context) = self.turns.contexts(row);
        source::describe(&row.source, turn);
        if let Some(prepared) = &mut self.prepared {
            prepared.request = stored.prepared.map(|stored| stored.request).unwrap_or_default();
        }
        Ok(())
    }

    /// Brings back the attachments of a room's prompt; its text never left memory. A prepared request contains them;
    /// for a new request they are fetched again.
    async fn load_attached(&mut self, what: Reload, bytes: usize) -> store::Result<()> {
        match (what, self.prepared.is_some()) {
            (Reload::Question, _) => self.running.input.lock().set_aside = None,
            (Reload::Request | Reload::All, true) => {
                self.running.input.put(self.wait_for_input_budget(bytes).await);
                self.load_request().await?;
            }
            (Reload::Request | Reload::All, false) => {
                self.running.input.lock().set_aside = None;
                self.turn.prompt = source::prompt(self.row);
                Box::pin(self.fetch_media()).await;
            }
        }
        Ok(())
    }

    /// Loads the bytes of the request, if there is one.
    async fn load_request(&mut self) -> store::Result<()> {
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        let id = self.row.id.clone();
        let request = self.turns.read_surely(move |tx| tx.request(&id)).await?;
        prepared.request = request.unwrap_or_default().into();
        Ok(())
    }

    /// Waits until `bytes` may be held. `None` if the turn ends meanwhile: it then needs little input.
    pub async fn wait_for_input_budget(&self, bytes: usize) -> Option<InputPermit> {
        let payer = source::payer(&self.row.source);
        tokio::select! {
            biased;
            () = self.interrupted() => None,
            permit = self.turns.input_budget.take(&payer, bytes) => Some(permit),
        }
    }
}

impl Turns {
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
