//! Queues of sessions: each session runs its turns one after the other, in a task of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use parking_lot::MutexGuard;
use talaria_platform::spawn_task;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::input_slot::InputSlot;
use super::run::{PriorProgress, TurnPermission};
use super::{STORE_PAUSE, Turns};
use crate::agent::NamedAgent;
use crate::i18n::TextKey;
use crate::ids::{SessionId, TurnId};
use crate::reply::TurnOutcome;
use crate::store::{StoreError, TurnState};

/// The turns of one session.
#[derive(Default)]
pub(super) struct SessionQueue {
    /// Turns that wait, the next one first.
    pub(super) waiting: VecDeque<TurnId>,
    /// The turn that the session's task works on.
    pub(super) running: Option<RunningTurn>,
}

/// The turn that a session's task works on.
#[derive(Clone)]
pub(super) struct RunningTurn {
    pub(super) id: TurnId,
    /// Cancelled when somebody asks to stop the turn.
    pub(super) stop: CancellationToken,
    /// Charge for the input in memory, until the agent has taken it.
    pub(super) input: InputSlot,
    /// The agent that answers it, once it runs: a reload does not change it under way.
    pub(super) agent: Arc<OnceLock<NamedAgent>>,
}

impl Turns {
    /// Puts a committed turn into the queue of its session.
    pub fn enqueue(self: &Arc<Self>, session: &SessionId, turn: TurnId) {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(session) {
            line.waiting.push_back(turn);
            return;
        }
        lines.insert(session.clone(), SessionQueue { waiting: VecDeque::from([turn]), running: None });
        drop(lines);
        let (turns, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move { turns.work(session).await });
    }

    /// Asks one turn to end, if it is running. The caller has stored the stop, so that a waiting turn ends when its time
    /// comes.
    pub fn stop_turn(&self, session: &SessionId, turn: &TurnId) {
        let lines = self.lines();
        let running = lines.get(session).and_then(|line| line.running.as_ref());
        if let Some(running) = running.filter(|running| running.id == *turn) {
            running.stop.cancel();
        }
    }

    /// Number of turns that run, and of turns that wait behind another one of their session.
    pub fn count(&self) -> (usize, usize) {
        let lines = self.lines();
        let running = lines.values().filter(|line| line.running.is_some()).count();
        (running, lines.values().map(|line| line.waiting.len()).sum())
    }

    /// Waits until no session has anything to do.
    pub async fn idle(&self) {
        self.lines_are(HashMap::is_empty).await;
    }

    /// Waits until one session has nothing to do.
    pub async fn idle_in(&self, session: &SessionId) {
        self.lines_are(|lines| !lines.contains_key(session)).await;
    }

    /// Waits until the queues satisfy a condition. Only the end of a queue wakes it, not a new one.
    async fn lines_are(&self, so: impl Fn(&HashMap<SessionId, SessionQueue>) -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if so(&self.lines()) {
                return;
            }
            ended.await;
        }
    }

    /// The body of a session's task: runs one turn after the other until none waits. Rare branches are boxed, because
    /// otherwise every session that streams would hold memory for them.
    async fn work(self: Arc<Self>, session: SessionId) {
        while let Some(running) = self.next_turn(&session) {
            let span = tracing::info_span!("turn", id = running.id.short(), session = %session);
            let id = running.id.clone();
            // A panic in an agent must not take the session's other turns with it.
            let turns = self.clone();
            let ended = spawn_task("turn", async move { turns.run(&running).await }.instrument(span)).await;
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(StoreError::Closed)) => {
                    self.lines().remove(&session);
                    break;
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, turn = id.short(), "a turn waits for the store");
                    Box::pin(self.again(&session, id.clone())).await;
                    self.reopen(&id);
                }
                Err(error) => {
                    tracing::error!(%error, turn = id.short(), "a turn broke");
                    Box::pin(self.fail_broken(&id)).await;
                }
            }
        }
        self.ended.notify_waiters();
        self.end_waiting_sessions();
        self.start_due_reviews();
    }

    /// Puts a turn that the store failed back to the head of its queue. It goes on from its stored state, as after a
    /// crash.
    async fn again(&self, session: &SessionId, id: TurnId) {
        tokio::select! {
            () = tokio::time::sleep(STORE_PAUSE) => {}
            () = self.draining.cancelled() => {}
        }
        if let Some(line) = self.lines().get_mut(session) {
            line.waiting.push_front(id);
        }
    }

    /// Takes the next turn of a session as the running one. `None` if there is none; then the queue is removed.
    fn next_turn(&self, session: &SessionId) -> Option<RunningTurn> {
        let mut lines = self.lines();
        let line = lines.get_mut(session)?;
        line.running = None;
        let next = if self.draining.is_cancelled() { None } else { line.waiting.pop_front() };
        let Some(id) = next else {
            lines.remove(session);
            return None;
        };
        let (stop, input, agent) = (CancellationToken::new(), InputSlot::default(), Arc::default());
        let running = RunningTurn { id, stop, input, agent };
        line.running = Some(running.clone());
        Some(running)
    }

    /// Ends a turn whose task panicked, with its stored text.
    async fn fail_broken(&self, id: &TurnId) {
        let wanted = id.clone();
        let kept = self.store.read(move |tx| {
            Ok((tx.turn(&wanted)?, tx.checkpointed(&wanted)?, tx.anchor(&wanted)?.is_some()))
        });
        let Ok((Some(turn), already_shown, anchored)) = kept.await else { return };
        let edited = anchored;
        let turn = Arc::new(turn);
        if !matches!(turn.state, TurnState::Queued | TurnState::Dispatched | TurnState::Streaming) {
            return;
        }
        let words = TextKey::TurnBroken.with("turn", id.short());
        let log = self.logs.open(&turn, self.settings.turn_bytes);
        let before = PriorProgress {
            already_shown,
            anchored,
            edited,
            history: 0,
            permission: TurnPermission::Granted,
        };
        if let Err(error) = self.finish(&turn, &log, before, TurnOutcome::Failed { words }).await {
            tracing::error!(%error, "a broken turn could not be ended");
        }
        self.logs.end(id, &log);
        if let Some(account) = self.account_of(&turn.source) {
            account.wake();
        }
    }

    pub(super) fn lines(&self) -> MutexGuard<'_, HashMap<SessionId, SessionQueue>> {
        self.lines.lock()
    }
}
