//! Readers of turns: keeps the log of each turn while it runs and for a while after, and stops a turn that nobody
//! reads.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::input_slot::InputSlot;
use super::{RunningTurn, STORE_PAUSE, Turns, source};
use crate::agent::{PriorAsk, SessionMessage};
use crate::ids::{SessionId, TurnId};
use crate::metrics::GaugeGuard;
use crate::store::{self, TurnRow};
use crate::turn_log::{LogBudget, LogReader, TurnLog};
use crate::turn_source::WhenUnread;

/// Time that the log of an app's turn stays after its end. Later readers get the stored text.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Most bytes of all logs that stay after their end; the oldest go first. A small part of the budget of all logs, so
/// that growing logs find capacity.
const KEPT_BYTES: usize = 8 * 1024 * 1024;

/// Bytes counted for each kept log beside its content.
const KEPT_EACH: usize = 1024;

/// The logs of this process, by turn.
#[derive(Default)]
pub(super) struct TurnLogs {
    inner: Mutex<TurnLogsState>,
    /// Memory budget of all these logs.
    budget: Arc<LogBudget>,
}

#[derive(Default)]
struct TurnLogsState {
    open: HashMap<TurnId, WatchedTurn>,
    /// Logs that ended and stay for a while, oldest first.
    kept: VecDeque<EndedLog>,
    kept_bytes: usize,
    /// The process ends: turns that have not ended yet go on in the next process.
    suspended: bool,
    /// Asks that earlier processes opened or resolved, for turns whose logs are not open yet.
    asked_before: HashMap<TurnId, Vec<PriorAsk>>,
}

#[derive(Clone)]
struct EndedLog {
    id: TurnId,
    log: Arc<TurnLog>,
    at: Instant,
    size: usize,
}

struct WatchedTurn {
    log: Arc<TurnLog>,
    session: SessionId,
    /// When to stop the turn if nobody reads it. `None` for a turn of a room: it needs no reader.
    patience: Option<WhenUnread>,
    readers: usize,
    /// Counts the readers that ever came, so that a timer sees whether one came since it was set.
    came: u64,
    /// The turn is being stopped because nobody reads it: from now on nobody may.
    stopping: bool,
    /// Asks that earlier processes opened or resolved in this turn.
    asked_before: Arc<[PriorAsk]>,
    /// Held for the caller until the end, such as its slot among running turns.
    permit: Option<Box<dyn Any + Send>>,
}

impl WatchedTurn {
    /// An empty log with the settings of this turn.
    fn fresh(&self, cap: usize, budget: &Arc<LogBudget>) -> Arc<TurnLog> {
        new_log(self.patience, cap, self.asked_before.clone(), budget.clone())
    }
}

fn new_log(
    patience: Option<WhenUnread>,
    cap: usize,
    asked_before: Arc<[PriorAsk]>,
    budget: Arc<LogBudget>,
) -> Arc<TurnLog> {
    let log = match patience {
        None => TurnLog::new(cap),
        // Started to go on without readers.
        Some(WhenUnread::Endless) => TurnLog::for_readers(cap),
        Some(WhenUnread::None | WhenUnread::AWhile) => TurnLog::for_readers(cap).waiting_for_readers(),
    };
    Arc::new(log.after(asked_before).within(budget))
}

/// The turn is being stopped because nobody read it for too long, so it takes no more readers.
#[derive(Debug)]
pub struct TooLate;

/// One reader of a turn, from [`Turns::watch`] to the drop.
pub struct TurnWatch {
    turns: Arc<Turns>,
    id: TurnId,
    /// The log that it reads.
    pub log: Arc<TurnLog>,
    reader: LogReader,
    _counted: GaugeGuard,
}

impl TurnWatch {
    /// Marks the reader as one that takes the events one by one: from now on the turn waits for it.
    pub fn streams(&mut self) {
        self.reader.streams();
    }
}

impl TurnLogs {
    /// Returns the log of a turn that is about to run, or waits to. Opens it if needed.
    pub fn open(&self, row: &TurnRow, cap: usize) -> Arc<TurnLog> {
        let patience = source::when_unread(&row.source);
        let mut inner = self.lock();
        inner.forget_old();
        let TurnLogsState { open, asked_before, suspended, .. } = &mut *inner;
        let watched = open.entry(row.id.clone()).or_insert_with(|| {
            let asked_before: Arc<[PriorAsk]> = asked_before.remove(&row.id).unwrap_or_default().into();
            WatchedTurn {
                log: new_log(patience, cap, asked_before.clone(), self.budget.clone()),
                session: row.session.clone(),
                patience,
                readers: 0,
                came: 0,
                stopping: false,
                asked_before,
                permit: None,
            }
        });
        // The store failed the turn, and the engine tries it again.
        if watched.log.is_ended() {
            watched.log = watched.fresh(cap, &self.budget);
        }
        if *suspended {
            watched.log.suspend();
        }
        watched.log.clone()
    }

    /// Sets the asks that earlier processes opened or resolved, in order. Called once, before any log is open.
    pub fn add_prior_asks(&self, asked: HashMap<TurnId, Vec<PriorAsk>>) {
        self.lock().asked_before = asked;
    }

    /// The log of a turn, if it is still there.
    pub fn of(&self, id: &TurnId) -> Option<Arc<TurnLog>> {
        self.lock().open.get(id).map(|watched| watched.log.clone())
    }

    /// Ends the log: the turn is over, or goes on in another process. Drops the permit first, so that a caller who sees
    /// the end on its stream and asks at once is not refused. A caller who sees the end in the store, a moment earlier,
    /// may be.
    pub fn end(&self, id: &TurnId, log: &TurnLog) {
        let permit = self.lock().open.get_mut(id).and_then(|watched| watched.permit.take());
        drop(permit);
        log.end();
        self.close(id);
    }

    /// Keeps the log for a while if a reader may still ask for it.
    fn close(&self, id: &TurnId) {
        let mut inner = self.lock();
        let Some(watched) = inner.open.get_mut(id) else { return };
        if watched.patience.is_none() || watched.log.is_suspended() {
            inner.open.remove(id);
            return;
        }
        let (log, size) = (watched.log.clone(), watched.log.size() + KEPT_EACH);
        inner.kept.push_back(EndedLog { id: id.clone(), log, at: Instant::now(), size });
        inner.kept_bytes += size;
        inner.forget_old();
    }

    /// Marks a turn as stopping if no reader has come since `came`. Returns its session.
    fn give_up(&self, id: &TurnId, came: u64) -> Option<SessionId> {
        let mut inner = self.lock();
        let watched = inner.open.get_mut(id).filter(|watched| watched.came == came)?;
        watched.stopping = true;
        Some(watched.session.clone())
    }

    /// Takes [`TurnLogs::give_up`] back: the stop could not be stored.
    fn take_up(&self, id: &TurnId) {
        if let Some(watched) = self.lock().open.get_mut(id) {
            watched.stopping = false;
        }
    }

    /// Suspends every log that has not ended, because the process ends: the next one resumes these turns.
    pub fn suspend_all(&self) {
        let mut inner = self.lock();
        inner.suspended = true;
        for watched in inner.open.values_mut().filter(|watched| !watched.log.is_ended()) {
            watched.log.suspend();
            watched.permit = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, TurnLogsState> {
        self.inner.lock()
    }
}

impl TurnLogsState {
    /// Drops logs whose time is over, and the oldest while there are too many bytes.
    fn forget_old(&mut self) {
        while let Some(oldest) = self.kept.front().cloned()
            && (oldest.at.elapsed() > KEPT || self.kept_bytes > KEPT_BYTES)
        {
            self.kept.pop_front();
            self.kept_bytes -= oldest.size;
            let still = |watched: &WatchedTurn| Arc::ptr_eq(&watched.log, &oldest.log);
            if self.open.get(&oldest.id).is_some_and(still) {
                self.open.remove(&oldest.id);
            }
        }
    }
}

impl Turns {
    /// Opens the log of an app's turn that is about to be committed, so that a second request at the same moment finds
    /// it. `permit` is dropped when the turn ends.
    pub fn announce(self: &Arc<Self>, row: &TurnRow, permit: impl Any + Send) {
        self.logs.open(row, self.settings.turn_bytes);
        if let Some(watched) = self.logs.lock().open.get_mut(&row.id) {
            watched.permit = Some(Box::new(permit));
        }
    }

    /// Cuts a history to the newest messages that an agent can ever be sent: nobody would read the rest again.
    pub fn newest(&self, mut history: Vec<SessionMessage>) -> Vec<SessionMessage> {
        let (most, mut bytes_left) = (self.settings.history_messages, self.settings.history_bytes);
        let fits = |message: &&SessionMessage| {
            bytes_left.checked_sub(message.content.len()).is_some_and(|left| {
                bytes_left = left;
                true
            })
        };
        let kept = history.iter().rev().take(most).take_while(fits).count();
        history.split_off(history.len() - kept)
    }

    /// Sets the session of an announced turn, after its commit.
    pub fn place(&self, id: &TurnId, session: &SessionId) {
        if let Some(watched) = self.logs.lock().open.get_mut(id) {
            watched.session = session.clone();
        }
    }

    /// Takes back an announced turn that was not committed.
    pub fn retract(&self, id: &TurnId) {
        let watched = self.logs.lock().open.remove(id);
        if let Some(watched) = watched {
            watched.log.end();
        }
    }

    /// Registers a reader of a turn. `None` if this process does not know the turn: it neither waits, runs, nor ended
    /// recently.
    pub fn watch(self: &Arc<Self>, id: &TurnId) -> Result<Option<TurnWatch>, TooLate> {
        let mut inner = self.logs.lock();
        let Some(watched) = inner.open.get_mut(id) else { return Ok(None) };
        // A log that has ended never changes, so everybody may read it.
        if watched.stopping && !watched.log.is_ended() {
            return Err(TooLate);
        }
        watched.readers += 1;
        watched.came += 1;
        let counted = GaugeGuard::new(&self.metrics.readers);
        let log = watched.log.clone();
        let reader = LogReader::new(log.clone());
        Ok(Some(TurnWatch { turns: self.clone(), id: id.clone(), log, reader, _counted: counted }))
    }

    /// The log of a turn, for a look that does not count as a reader.
    pub fn log_of(&self, id: &TurnId) -> Option<Arc<TurnLog>> {
        self.logs.of(id)
    }

    /// Number of turns known to this process that have not ended.
    pub fn open_logs(&self) -> usize {
        self.logs.lock().open.values().filter(|watched| !watched.log.is_ended()).count()
    }

    /// Cancelled when the process is about to end.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Asks one turn to end. A waiting turn ends at once.
    pub async fn stop(self: &Arc<Self>, session: &SessionId, id: &TurnId) -> store::Result<()> {
        let turn = id.clone();
        self.store.write(move |tx| tx.ask_to_stop(&turn)).await?;
        self.stop_turn(session, id);
        self.end_waiting(session, id);
        Ok(())
    }

    /// Takes a waiting turn out of its session's line and ends it, beside the turn that the session runs.
    fn end_waiting(self: &Arc<Self>, session: &SessionId, id: &TurnId) {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(session) else { return };
        let Some(at) = line.waiting.iter().position(|waiting| waiting == id) else { return };
        line.waiting.remove(at);
        drop(lines);
        let (turns, session) = (self.clone(), session.clone());
        // Stopped from the start: it must not wait for memory for a prompt that nobody will send.
        let stop = CancellationToken::new();
        stop.cancel();
        let running =
            RunningTurn { id: id.clone(), stop, input: InputSlot::default(), agent: Arc::default() };
        let span = tracing::info_span!("turn", id = id.short(), session = %session);
        let ending = async move {
            if let Err(error) = turns.run(&running).await {
                tracing::error!(%error, "a turn that was not to run waits for the store");
                turns.enqueue(&session, running.id);
            }
        };
        self.tasks.spawn(ending.instrument(span));
    }

    /// Stops a turn, unless a reader has come since `came`. Decided inside the transaction that stores the stop: a
    /// reader that comes before it keeps the turn, and a later reader is turned away from a turn that is about to end.
    async fn stop_unread(self: &Arc<Self>, id: &TurnId, came: u64) -> store::Result<()> {
        let (logs, turn) = (self.logs.clone(), id.clone());
        let stopped = self.store.write(move |tx| {
            let Some(session) = logs.give_up(&turn, came) else { return Ok(None) };
            tx.ask_to_stop(&turn)?;
            Ok(Some(session))
        });
        match stopped.await {
            Ok(Some(session)) => {
                self.stop_turn(&session, id);
                self.end_waiting(&session, id);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                self.logs.take_up(id);
                Err(error)
            }
        }
    }

    /// Opens the log of a turn from an earlier process and starts its timer: nobody reads it yet.
    pub(super) fn taken_up(self: &Arc<Self>, row: &TurnRow) {
        self.logs.open(row, self.settings.turn_bytes);
        self.reader_left(&row.id, 0);
    }

    /// Opens a new log for a turn that the store failed and that is tried again; new readers read this try.
    pub(super) fn reopen(self: &Arc<Self>, id: &TurnId) {
        let cap = self.settings.turn_bytes;
        if let Some(watched) = self.logs.lock().open.get_mut(id)
            && watched.log.is_ended()
        {
            watched.log = watched.fresh(cap, &self.logs.budget);
        }
        self.reader_left(id, 0);
    }

    /// Removes `readers` readers. If none is left, the turn goes on only for as long as its `WhenUnread` allows.
    fn reader_left(self: &Arc<Self>, id: &TurnId, readers: usize) {
        let mut inner = self.logs.lock();
        let Some(watched) = inner.open.get_mut(id) else { return };
        watched.readers -= readers.min(watched.readers);
        let Some(patience) = watched.patience.and_then(WhenUnread::lasts) else { return };
        if watched.readers > 0 || watched.log.is_ended() {
            return;
        }
        let (turns, id, came, log) = (self.clone(), id.clone(), watched.came, watched.log.clone());
        drop(inner);
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(patience) => {}
                () = log.ended() => return,
                () = turns.draining.cancelled() => return,
            }
            while let Err(error) = turns.stop_unread(&id, came).await {
                tracing::error!(%error, turn = id.short(), "a turn that nobody reads could not be stopped");
                tokio::select! {
                    () = tokio::time::sleep(STORE_PAUSE) => {}
                    () = turns.draining.cancelled() => return,
                }
            }
        });
    }
}

impl Drop for TurnWatch {
    fn drop(&mut self) {
        self.turns.reader_left(&self.id, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports at its drop whether the log had ended.
    struct Permit(Arc<TurnLog>, std::sync::mpsc::Sender<bool>);

    impl Drop for Permit {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.is_ended());
        }
    }

    #[test]
    fn there_is_room_for_another_turn_before_anybody_hears_of_the_end() {
        let (logs, id) = (TurnLogs::default(), TurnId("run_1".to_owned()));
        let (sender, let_go) = std::sync::mpsc::channel();
        let log = new_log(None, 1000, Arc::default(), Arc::default());
        let watched = WatchedTurn {
            log: log.clone(),
            session: SessionId("s".to_owned()),
            patience: None,
            readers: 0,
            came: 0,
            stopping: false,
            asked_before: Arc::default(),
            permit: Some(Box::new(Permit(log.clone(), sender))),
        };
        logs.lock().open.insert(id.clone(), watched);
        logs.end(&id, &log);
        assert!(log.is_ended());
        assert_eq!(let_go.try_iter().collect::<Vec<_>>(), [false]);
    }
}
