//! Who reads a turn while it runs, and for a while after: the logs by turn, and what it means that a reader leaves.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::brought::Patience;
use super::log::TurnLog;
use super::{Brought, Turns};
use crate::metrics::Open;
use crate::session::{SessionId, TurnId};
use crate::store::{self, TurnRow};

/// How long the log of a turn that a program asked for stays after its end. Whoever comes later gets the stored text.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Bytes of all the logs that stay after their end; the oldest go first.
const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// The logs of this process.
#[derive(Default)]
pub(super) struct Logs {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<TurnId, Watched>,
    /// Logs that ended and stay for a while, oldest first.
    kept: VecDeque<Ended>,
    kept_bytes: usize,
}

#[derive(Clone)]
struct Ended {
    id: TurnId,
    log: Arc<TurnLog>,
    at: Instant,
    size: usize,
}

struct Watched {
    log: Arc<TurnLog>,
    session: SessionId,
    /// `None` for a turn of a room, which goes on whoever reads.
    patience: Option<Patience>,
    readers: usize,
    /// Counts the readers that came, so that a timer sees whether anybody did since it was set.
    came: u64,
    /// Let go at the end.
    permit: Option<Box<dyn Any + Send>>,
}

/// One reader of a turn. Dropping it is leaving.
pub struct Watch {
    turns: Arc<Turns>,
    id: TurnId,
    /// What it reads.
    pub log: Arc<TurnLog>,
    _counted: Open,
}

impl Logs {
    /// The log of a turn that is about to run, or already waits to.
    pub fn open(&self, row: &TurnRow, cap: usize) -> Arc<TurnLog> {
        let patience = row.brought.as_deref().map(|brought: &Brought| brought.patience);
        let fresh =
            || Arc::new(if patience.is_some() { TurnLog::for_readers(cap) } else { TurnLog::new(cap) });
        let mut inner = self.lock();
        let watched = inner.open.entry(row.id.clone()).or_insert_with(|| Watched {
            log: fresh(),
            session: row.session.clone(),
            patience,
            readers: 0,
            came: 0,
            permit: None,
        });
        // The store failed it, and it is tried again.
        if watched.log.is_ended() {
            watched.log = fresh();
        }
        watched.log.clone()
    }

    /// The log of a turn, if it is still there.
    pub fn of(&self, id: &TurnId) -> Option<Arc<TurnLog>> {
        self.lock().open.get(id).map(|watched| watched.log.clone())
    }

    /// The turn is over, or goes on in another process: its log stays for a while if anybody may ask for it.
    pub fn close(&self, id: &TurnId) {
        let mut inner = self.lock();
        let Some(watched) = inner.open.get_mut(id) else { return };
        watched.permit = None;
        if watched.patience.is_none() || watched.log.is_suspended() {
            inner.open.remove(id);
            return;
        }
        let (log, size) = (watched.log.clone(), watched.log.size());
        inner.kept.push_back(Ended { id: id.clone(), log, at: Instant::now(), size });
        inner.kept_bytes += size;
        while let Some(oldest) = inner.kept.front().cloned()
            && (oldest.at.elapsed() > KEPT || inner.kept_bytes > KEPT_BYTES)
        {
            inner.kept.pop_front();
            inner.kept_bytes -= oldest.size;
            let still = |watched: &Watched| Arc::ptr_eq(&watched.log, &oldest.log);
            if inner.open.get(&oldest.id).is_some_and(still) {
                inner.open.remove(&oldest.id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change under this lock is complete in itself.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    /// Announces a turn of a program that is about to be committed: whoever asks for it twice at the same moment must
    /// find it. `permit` is let go when it ends.
    pub fn announce(self: &Arc<Self>, row: &TurnRow, permit: impl Any + Send) {
        self.logs.open(row, self.settings.turn_bytes);
        if let Some(watched) = self.logs.lock().open.get_mut(&row.id) {
            watched.permit = Some(Box::new(permit));
        }
    }

    /// It was committed, in this session.
    pub fn place(&self, id: &TurnId, session: &SessionId) {
        if let Some(watched) = self.logs.lock().open.get_mut(id) {
            watched.session = session.clone();
        }
    }

    /// It was not committed after all.
    pub fn retract(&self, id: &TurnId) {
        let watched = self.logs.lock().open.remove(id);
        if let Some(watched) = watched {
            watched.log.end();
        }
    }

    /// Reads a turn, if this process knows it: it waits, runs, or ended a short while ago.
    pub fn watch(self: &Arc<Self>, id: &TurnId) -> Option<Watch> {
        let mut inner = self.logs.lock();
        let watched = inner.open.get_mut(id)?;
        watched.readers += 1;
        watched.came += 1;
        let counted = Open::new(&self.metrics.readers);
        Some(Watch { turns: self.clone(), id: id.clone(), log: watched.log.clone(), _counted: counted })
    }

    /// Asks one turn to end, whether it runs or waits.
    pub async fn stop(&self, session: &SessionId, id: &TurnId) -> store::Result<()> {
        let turn = id.clone();
        self.store.write(move |tx| tx.ask_to_stop(&turn)).await?;
        self.stop_turn(session, id);
        Ok(())
    }

    /// A turn that was begun before this process: nobody reads it yet.
    pub(super) fn taken_up(self: &Arc<Self>, row: &TurnRow) {
        self.logs.open(row, self.settings.turn_bytes);
        self.left(&row.id, 0);
    }

    /// So many readers are gone. Without any, the turn goes on for as long as its program has patience.
    fn left(self: &Arc<Self>, id: &TurnId, readers: usize) {
        let mut inner = self.logs.lock();
        let Some(watched) = inner.open.get_mut(id) else { return };
        watched.readers -= readers.min(watched.readers);
        let Some(patience) = watched.patience.and_then(Patience::lasts) else { return };
        if watched.readers > 0 || watched.log.is_ended() {
            return;
        }
        let (turns, id, came) = (self.clone(), id.clone(), watched.came);
        drop(inner);
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(patience) => {}
                () = turns.draining.cancelled() => return,
            }
            let alone = |watched: &&Watched| watched.came == came;
            let session =
                turns.logs.lock().open.get(&id).filter(alone).map(|watched| watched.session.clone());
            if let Some(session) = session
                && let Err(error) = turns.stop(&session, &id).await
            {
                tracing::error!(%error, turn = id.short(), "a turn that nobody reads could not be stopped");
            }
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.turns.left(&self.id, 1);
    }
}
