//! An inbox in memory that keeps the promises of a real one.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{BoxFuture, EventBatch, Inbox, InboxError, RoomEvent, RoomEventKind, RoomInvite};

/// An [`Inbox`] for tests: accepts batches whole or not at all, stores each event once, and can be told to fail. Use
/// one inbox over a restart of the platform, as the store outlives the process.
#[derive(Default)]
pub struct MemoryInbox {
    state: Mutex<InboxState>,
    /// Counts changes, so that tests can wait for one instead of sleeping.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct InboxState {
    fails: bool,
    events: Vec<RoomEvent>,
    refused: Vec<RoomEvent>,
    parked: Vec<(String, String)>,
    notes: Vec<(String, String)>,
    cursor: Option<String>,
}

impl MemoryInbox {
    /// Makes an empty inbox that works.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every call fail from now on, as if the disk were full, until [`recover`](Self::recover).
    pub fn fail(&self) {
        self.state().fails = true;
    }

    /// Makes every call work again.
    pub fn recover(&self) {
        self.state().fails = false;
    }

    /// The accepted events, oldest first, each once.
    pub fn events(&self) -> Vec<RoomEvent> {
        self.state().events.clone()
    }

    /// The accepted messages with exactly this text. More than one means that the adapter gave one
    /// message several ids.
    pub fn messages(&self, text: &str) -> Vec<RoomEvent> {
        self.state().events.iter().filter(|event| says(event, text)).cloned().collect()
    }

    /// Whether a message with this text was offered while the inbox failed.
    pub fn refused(&self, text: &str) -> bool {
        self.state().refused.iter().any(|event| says(event, text))
    }

    /// The position of the last accepted batch that had one.
    pub fn position(&self) -> Option<String> {
        self.state().cursor.clone()
    }

    /// Returns as soon as `found` returns something. `found` is called now and after every change.
    pub async fn until<T>(&self, found: impl Fn(&Self) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            // Cannot fail: `self` holds the sender.
            let _ = changes.changed().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock()
    }

    fn working(&self) -> Result<MutexGuard<'_, InboxState>, InboxError> {
        let state = self.state();
        if state.fails { Err(InboxError("the test said so".to_owned())) } else { Ok(state) }
    }

    fn take(&self, batch: EventBatch) -> Result<(), InboxError> {
        let result = match self.working() {
            Ok(mut state) => {
                state.take(batch);
                Ok(())
            }
            Err(error) => {
                self.state().refused.extend(batch.events);
                Err(error)
            }
        };
        self.changes.send_modify(|changes| *changes += 1);
        result
    }
}

impl InboxState {
    fn take(&mut self, batch: EventBatch) {
        for event in batch.events {
            let known = |old: &RoomEvent| old.id == event.id && old.place.room == event.place.room;
            if !self.events.iter().any(known) {
                self.events.push(event);
            }
        }
        for (key, value) in batch.parked {
            put(&mut self.parked, &key, &value);
        }
        self.parked.retain(|(_, value)| !value.is_empty());
        for (key, value) in batch.notes {
            put(&mut self.notes, &key, &value);
        }
        if batch.cursor.is_some() {
            self.cursor = batch.cursor;
        }
    }
}

impl Inbox for MemoryInbox {
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>> {
        Box::pin(async { Ok(self.working()?.cursor.clone()) })
    }

    fn accept(&self, batch: EventBatch) -> BoxFuture<'_, Result<(), InboxError>> {
        Box::pin(async { self.take(batch) })
    }

    fn may_join(&self, _invite: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>> {
        Box::pin(async { Ok(true) })
    }

    fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>> {
        Box::pin(async { Ok(self.working()?.parked.clone()) })
    }

    fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>> {
        Box::pin(async move {
            let state = self.working()?;
            Ok(state.notes.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone()))
        })
    }

    fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>> {
        Box::pin(async move {
            put(&mut self.working()?.notes, key, value);
            Ok(())
        })
    }
}

/// Replaces the value of `key` in its place, or adds the pair at the end.
fn put(rows: &mut Vec<(String, String)>, key: &str, value: &str) {
    match rows.iter_mut().find(|(known, _)| known == key) {
        Some((_, old)) => value.clone_into(old),
        None => rows.push((key.to_owned(), value.to_owned())),
    }
}

fn says(event: &RoomEvent, text: &str) -> bool {
    matches!(&event.kind, RoomEventKind::Message(message) if message.text == text)
}
