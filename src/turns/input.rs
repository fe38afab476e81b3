//! What a turn was asked, in memory only until the agent has taken it.
//!
//! A large question that an agent answers for minutes would be held four times meanwhile: in the row, in the agent's
//! turn, in the request, and by the client that sends it. All of it is stored before anything is sent. So while the
//! agent runs only the sender has it, and it is loaded again if it is needed after that. A turn that waits for its next
//! try holds nothing of it either.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::input_budget::{InputPermit, Payer};
use super::sink::Sink;
use super::{Running, STORE_PAUSE, Turns, told};
use crate::agent::{Message, ModelParams, Prepared, Turn};
use crate::store::{self, StoreError, TurnRow, Tx};

/// Questions with more bytes are not held while the agent runs.
const LARGE: usize = 16 * 1024;

/// How long an answer waits for room for its question before both are stored. Others may hold what room there is.
const AT_END: Duration = Duration::from_secs(5);

/// What a running turn counts of the [`InputBudget`](super::InputBudget).
#[derive(Clone, Default)]
pub(super) struct InputSlot(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    permit: Option<InputPermit>,
    /// Bytes of what was set aside, while it is.
    set_aside: Option<usize>,
}

impl InputSlot {
    /// Counts this, in place of what counted before.
    pub fn put(&self, permit: Option<InputPermit>) {
        self.lock().permit = permit;
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Every change under this lock is complete in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(super) fn size(row: &TurnRow, history: &[Message]) -> usize {
    let brought = row.brought.as_ref().map_or(0, |brought| brought.bytes());
    let said = history.iter().map(|message| message.content.len());
    row.prompt.len() + brought + said.sum::<usize>()
}

/// Bytes of the pictures and files that go along with a question from a room.
pub(super) fn attached(turn: &Turn) -> usize {
    let images = turn.images.iter().map(|image| image.content.len());
    images.chain(turn.files.iter().map(|file| file.content.len())).sum()
}

/// Lets go of a large question: all of a program's, and what a room attached to its own, of which everything else is
/// short. [`Turns::load_input`] brings it back.
pub(super) fn set_aside(row: &mut Arc<TurnRow>, turn: &mut Turn, running: &Running) {
    let bytes = size(row, &turn.history) + attached(turn);
    if bytes <= LARGE {
        return;
    }
    if row.brought.is_some() {
        // Where somebody else has the row too, it would be copied.
        let Some(row) = Arc::get_mut(row) else { return };
        (row.prompt, row.prepared) = (String::new(), None);
        if let Some(brought) = &mut row.brought {
            (brought.parts, brought.system, brought.params) = (Vec::new(), None, ModelParams::default());
        }
        (turn.prompt, turn.context) = (String::new(), String::new());
        (turn.parts, turn.history, turn.params) = (Vec::new(), Vec::new(), ModelParams::default());
    }
    (turn.images, turn.files) = (Vec::new(), Vec::new());
    running.input.lock().set_aside = Some(bytes);
}

/// Lets go of a large question until its next try, with what it counts.
pub(super) fn leave_in_store(row: &mut Arc<TurnRow>, turn: &mut Turn, running: &Running) {
    set_aside(row, turn, running);
    let mut slot = running.input.lock();
    if slot.set_aside.is_some() {
        slot.permit = None;
    }
}

/// The request for the agent. If the question was set aside, only the agent has it from now on.
pub(super) fn hand_over(prepared: &mut Prepared, running: &Running) -> Prepared {
    let mut slot = running.input.lock();
    let request = match slot.set_aside {
        Some(_) => mem::take(&mut prepared.request),
        None => prepared.request.clone(),
    };
    let counted = CountedRequest { request, _permit: slot.permit.take() };
    Prepared { request: Bytes::from_owner(counted), ..*prepared }
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
        turn: &mut Turn,
        prepared: &mut Option<Prepared>,
        what: Reload,
        (sink, running): (&Sink<'_>, &Running),
    ) -> store::Result<()> {
        let Some(bytes) = running.input.lock().set_aside else { return Ok(()) };
        if row.brought.is_none() {
            return self.load_attached(row, turn, prepared, what, bytes, (sink, running)).await;
        }
        let permit = match what {
            Reload::Question => {
                tokio::time::timeout(AT_END, self.input_budget.take(&Payer::of(row), bytes)).await.ok()
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
            if let Some((prompt, brought)) = self.read_surely(move |tx| tx.asked(&id)).await? {
                let row = Arc::make_mut(row);
                (row.prompt, row.brought) = (prompt, brought);
            }
            return Ok(());
        }
        let (id, session, settings) = (row.id.clone(), row.session.clone(), self.settings.clone());
        let read = self.read_surely(move |tx| {
            Ok((tx.turn(&id)?, tx.history(&session, settings.history_messages, settings.history_bytes)?))
        });
        let (Some(stored), history) = read.await? else { return Ok(()) };
        let row = Arc::make_mut(row);
        (row.prompt, row.brought) = (stored.prompt, stored.brought);
        turn.context = told::context(&self.settings.context, self.settings.names, row);
        turn.prompt = told::spoken(row);
        if let Some(brought) = &row.brought {
            (turn.parts, turn.params) = (brought.parts.clone(), brought.params.clone());
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
        turn: &mut Turn,
        prepared: &mut Option<Prepared>,
        what: Reload,
        bytes: usize,
        (sink, running): (&Sink<'_>, &Running),
    ) -> store::Result<()> {
        match (what, prepared) {
            (Reload::Question, _) => running.input.lock().set_aside = None,
            (Reload::Request | Reload::All, Some(prepared)) => {
                running.input.put(self.room_for_input(row, bytes, (sink, running)).await);
                self.load_request(row, prepared).await?;
            }
            (Reload::Request | Reload::All, None) => {
                running.input.lock().set_aside = None;
                turn.prompt = told::spoken(row);
                Box::pin(self.fetch_media(row, turn, running, sink)).await;
            }
        }
        Ok(())
    }

    async fn load_request(&self, row: &TurnRow, prepared: &mut Prepared) -> store::Result<()> {
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
        (sink, running): (&Sink<'_>, &Running),
    ) -> Option<InputPermit> {
        let payer = Payer::of(row);
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
