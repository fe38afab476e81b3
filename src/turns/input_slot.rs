//! What a turn was asked, in memory only until the agent has taken it.
//!
//! A large question that an agent answers for minutes would be held four times meanwhile: in the row, in the agent's
//! turn, in the request, and by the client that sends it. All of it is stored before anything is sent. So while the
//! agent runs only the sender has it, and it is loaded again if it is needed after that. A turn that waits for its next
//! try holds nothing of it either.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::input_budget::{BudgetPayer, InputPermit};
use super::sink::TurnSink;
use super::{RunningTurn, STORE_PAUSE, Turns, prompt_text};
use crate::agent::{AgentTurn, ModelParams, PreparedTurn, SessionMessage};
use crate::store::{self, StoreError, TurnRow, Tx};

/// Questions with more bytes are not held while the agent runs.
const LARGE: usize = 16 * 1024;

/// How long an answer waits for room for its question before both are stored. Others may hold what room there is.
const AT_END: Duration = Duration::from_secs(5);

/// What a running turn counts of the [`InputBudget`](super::InputBudget).
#[derive(Clone, Default)]
pub(super) struct InputSlot(Arc<Mutex<SlotState>>);

#[derive(Default)]
struct SlotState {
    permit: Option<InputPermit>,
    /// Bytes of what was set aside, while it is.
    set_aside: Option<usize>,
}

impl InputSlot {
    /// Counts this, in place of what counted before.
    pub fn put(&self, permit: Option<InputPermit>) {
        self.lock().permit = permit;
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock()
    }
}

/// A request that counts for as long as anybody has it.
struct CountedRequest {
    request: Bytes,
    _permit: Option<InputPermit>,
}

impl AsRef<[u8]> for CountedRequest {
    fn as_ref(&self) -> &[u8] {
        &self.request
    }
}

/// Bytes that a turn holds of what was asked.
pub(super) fn size(row: &TurnRow, history: &[SessionMessage]) -> usize {
    let app_request = row.app_request.as_ref().map_or(0, |app_request| app_request.bytes());
    let said = history.iter().map(|message| message.content.len());
    row.prompt.len() + app_request + said.sum::<usize>()
}

/// Bytes of the pictures and files that go along with a question from a room.
pub(super) fn attached(turn: &AgentTurn) -> usize {
    let images = turn.images.iter().map(|image| image.content.len());
    images.chain(turn.files.iter().map(|file| file.content.len())).sum()
}

/// Lets go of a large question: all of a program's, and what a room attached to its own, of which everything else is
/// short. [`Turns::load_input`] brings it back.
pub(super) fn set_aside(row: &mut Arc<TurnRow>, turn: &mut AgentTurn, running: &RunningTurn) {
    let bytes = size(row, &turn.history) + attached(turn);
    if bytes <= LARGE {
        return;
    }
    if row.app_request.is_some() {
        // Where somebody else has the row too, it would be copied.
        let Some(row) = Arc::get_mut(row) else { return };
        (row.prompt, row.prepared) = (String::new(), None);
        if let Some(app_request) = &mut row.app_request {
            (app_request.parts, app_request.system, app_request.params) =
                (Vec::new(), None, ModelParams::default());
        }
        (turn.prompt, turn.context) = (String::new(), String::new());
        (turn.parts, turn.history, turn.params) = (Vec::new(), Vec::new(), ModelParams::default());
    }
    (turn.images, turn.files) = (Vec::new(), Vec::new());
    running.input.lock().set_aside = Some(bytes);
}

/// Lets go of a large question until its next try, with what it counts.
pub(super) fn leave_in_store(row: &mut Arc<TurnRow>, turn: &mut AgentTurn, running: &RunningTurn) {
    set_aside(row, turn, running);
    let mut slot = running.input.lock();
    if slot.set_aside.is_some() {
        slot.permit = None;
    }
}

/// The request for the agent. If the question was set aside, only the agent has it from now on.
pub(super) fn hand_over(prepared: &mut PreparedTurn, running: &RunningTurn) -> PreparedTurn {
    let mut slot = running.input.lock();
    let request = match slot.set_aside {
        Some(_) => mem::take(&mut prepared.request),
        None => prepared.request.clone(),
    };
    let counted = CountedRequest { request, _permit: slot.permit.take() };
    PreparedTurn { request: Bytes::from_owner(counted), ..*prepared }
}

/// What is loaded of a question that was set aside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// The question, for the record. The answer is there, so this waits for room only for [`AT_END`].
    Question,
    /// Only the request, where there is one: it is sent again as it is.
    Request,
    /// Everything, for another request or another agent.
    All,
}

impl Turns {
    /// Loads what was set aside, if anything was, once there is room for it.
    pub(super) async fn load_input(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        what: Reload,
        (sink, running): (&TurnSink<'_>, &RunningTurn),
    ) -> store::Result<()> {
        let Some(bytes) = running.input.lock().set_aside else { return Ok(()) };
        if row.app_request.is_none() {
            return self.load_attached(row, turn, prepared, what, bytes, (sink, running)).await;
        }
        let permit = match what {
            Reload::Question => {
                tokio::time::timeout(AT_END, self.input_budget.take(&BudgetPayer::of(row), bytes)).await.ok()
            }
            Reload::Request | Reload::All => self.room_for_input(row, bytes, (sink, running)).await,
        };
        running.input.put(permit);
        if let (Reload::Request, Some(prepared)) = (what, prepared.as_mut()) {
            return self.load_request(row, prepared).await;
        }
        running.input.lock().set_aside = None;
        if what == Reload::Question {
            let id = row.id.clone();
            // One that was removed meanwhile has nothing to be remembered by.
            if let Some((prompt, app_request)) = self.read_surely(move |tx| tx.asked(&id)).await? {
                let row = Arc::make_mut(row);
                (row.prompt, row.app_request) = (prompt, app_request);
            }
            return Ok(());
        }
        let (id, session, settings) = (row.id.clone(), row.session.clone(), self.settings.clone());
        let read = self.read_surely(move |tx| {
            Ok((tx.turn(&id)?, tx.history(&session, settings.history_messages, settings.history_bytes)?))
        });
        let (Some(stored), history) = read.await? else { return Ok(()) };
        let row = Arc::make_mut(row);
        (row.prompt, row.app_request) = (stored.prompt, stored.app_request);
        turn.context = prompt_text::context(&self.settings.context, self.settings.names, row);
        turn.prompt = prompt_text::spoken(row);
        if let Some(app_request) = &row.app_request {
            (turn.parts, turn.params) = (app_request.parts.clone(), app_request.params.clone());
        }
        turn.history = history;
        if let Some(prepared) = prepared {
            prepared.request = stored.prepared.map(|stored| stored.request).unwrap_or_default();
        }
        Ok(())
    }

    /// Brings back what a room attached to its question; its words were never let go. A request that was made has it,
    /// another one needs it fetched again.
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
                running.input.put(self.room_for_input(row, bytes, (sink, running)).await);
                self.load_request(row, prepared).await?;
            }
            (Reload::Request | Reload::All, None) => {
                running.input.lock().set_aside = None;
                turn.prompt = prompt_text::spoken(row);
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

    /// Waits until so many bytes may be held. `None` if the turn ends meanwhile: what is asked of it then is little.
    pub(super) async fn room_for_input(
        &self,
        row: &TurnRow,
        bytes: usize,
        (sink, running): (&TurnSink<'_>, &RunningTurn),
    ) -> Option<InputPermit> {
        let payer = BudgetPayer::of(row);
        tokio::select! {
            biased;
            () = self.interrupted(running, sink) => None,
            permit = self.input_budget.take(&payer, bytes) => Some(permit),
        }
    }

    /// Reads from the store. One that fails is asked until it answers, because the agent's answer would be lost otherwise.
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
