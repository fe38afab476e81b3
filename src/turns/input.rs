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
use crate::agent::{Message, Part, Prepared, Turn};
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
    let parts = row.brought.iter().flat_map(|brought| &brought.parts).map(|part| match part {
        Part::Text { text } => text.len(),
        Part::ImageUrl { image_url } => image_url.url.len(),
    });
    let said = history.iter().map(|message| message.content.len());
    row.prompt.len() + parts.chain(said).sum::<usize>()
}

/// Lets go of a large question of a program. [`Turns::load_input`] brings it back.
pub(super) fn set_aside(row: &mut Arc<TurnRow>, turn: &mut Turn, running: &Running) {
    let bytes = size(row, &turn.history);
    // What a room attached to its question is not stored. Where somebody else has the row too, it would be copied.
    let is_large = row.brought.is_some() && bytes > LARGE;
    let Some(row) = Arc::get_mut(row).filter(|_| is_large) else { return };
    (row.prompt, row.prepared) = (String::new(), None);
    if let Some(brought) = &mut row.brought {
        (brought.parts, brought.system) = (Vec::new(), None);
    }
    (turn.prompt, turn.context) = (String::new(), String::new());
    (turn.parts, turn.history) = (Vec::new(), Vec::new());
    running.input.lock().set_aside = Some(bytes);
}

/// Lets go of a large question of a program until its next try, with what it counts.
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
        let payer = Payer::of(row);
        let permit = match what {
            Reload::Question => {
                tokio::time::timeout(AT_END, self.input_budget.take(&payer, bytes)).await.ok()
            }
            Reload::Request | Reload::All => tokio::select! {
                biased;
                // It ends, and what is asked of it now is little.
                () = self.interrupted(running, sink) => None,
                permit = self.input_budget.take(&payer, bytes) => Some(permit),
            },
        };
        running.input.put(permit);
        if let (Reload::Request, Some(prepared)) = (what, prepared.as_mut()) {
            let id = row.id.clone();
            let request = self.read_surely(move |tx| tx.request(&id)).await?;
            prepared.request = request.unwrap_or_default().into();
            return Ok(());
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
        turn.parts = row.brought.as_ref().map(|brought| brought.parts.clone()).unwrap_or_default();
        turn.history = history;
        if let Some(prepared) = prepared {
            prepared.request = stored.prepared.map(|stored| stored.request).unwrap_or_default();
        }
        Ok(())
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
