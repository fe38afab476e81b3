//! Tells agents that a session is over, after the transaction that ended it.
//!
//! The transaction stores whom to tell. A call that a process did not come to is made by the next one, and a call that
//! was interrupted is made again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::Turns;
use crate::ids::SessionId;
use crate::store::{self, DueEnd};

/// Timeout of an agent that frees a session. Sessions that end later wait for their call meanwhile.
const DEADLINE: Duration = Duration::from_secs(10);

/// Agents that are told at once: the end of a process takes seconds.
const AT_ONCE: usize = 16;

impl Turns {
    /// Tells agents of every session that is over. Called after a commit that ended one, and at the start for those that
    /// an earlier process left. Does not wait.
    pub fn end_sessions(self: &Arc<Self>) {
        let turns = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = turns.tell_ends().await {
                tracing::warn!(%error, "agents are told later that a session is over");
            }
        });
    }

    /// Tells agents of every session that is over, like [`Turns::end_sessions`], and returns when they have been told.
    pub async fn end_sessions_now(&self) {
        if let Err(error) = self.tell_ends().await {
            tracing::warn!(%error, "agents are told later that a session is over");
        }
    }

    /// Tells agents of sessions that expire, until the process is about to end.
    pub(super) fn end_expired_sessions(self: &Arc<Self>) {
        let (turns, expired) = (Arc::downgrade(self), self.store.expired());
        let draining = self.draining.clone();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = draining.cancelled() => return,
                    () = expired.notified() => {}
                }
                let Some(turns) = turns.upgrade() else { return };
                turns.end_sessions();
            }
        });
    }

    /// Tells agents of sessions that ended while a turn of them ran. Called when a session has nothing to do.
    pub(super) fn end_waiting_sessions(self: &Arc<Self>) {
        if self.ends_wait.swap(false, Ordering::AcqRel) {
            self.end_sessions();
        }
    }

    async fn tell_ends(&self) -> store::Result<()> {
        // One round after the other, so that no agent is told twice.
        let _turn = self.telling_ends.lock().await;
        let due = self.store.read(|tx| tx.due_ends()).await?;
        let mut told = stream::iter(due).map(|due| self.tell_end(due)).buffer_unordered(AT_ONCE);
        while told.try_next().await?.is_some() {}
        Ok(())
    }

    /// Tells the agent of one session that it is over, unless the session has something to do.
    async fn tell_end(&self, due: DueEnd) -> store::Result<()> {
        if self.draining.is_cancelled() || self.is_busy(&due.session) {
            return Ok(());
        }
        let (about, name) = (due.clone(), due.ended.agent.clone());
        let Some(ended) = self.store.write(move |tx| tx.begin_end(&about)).await? else { return Ok(()) };
        let Some(agent) = self.agents().taking(&name).cloned() else {
            tracing::info!(agent = %name, "a session is over, and its agent is no longer configured");
            return self.store.write(move |tx| tx.end_was_told(&due)).await;
        };
        tokio::select! {
            told = tokio::time::timeout(DEADLINE, agent.end(ended)) => {
                if told.is_err() {
                    tracing::warn!(agent = %name, "the agent did not free a session in time");
                }
            }
            // The next process tells it again.
            () = self.draining.cancelled() => return Ok(()),
        }
        self.store.write(move |tx| tx.end_was_told(&due)).await
    }

    /// Whether a session has turns to run. Its agents are told later then, when it has none.
    fn is_busy(&self, session: &SessionId) -> bool {
        if !self.lines().contains_key(session) {
            return false;
        }
        self.ends_wait.store(true, Ordering::Release);
        // The last turn may have ended before the flag was set.
        self.lines().contains_key(session)
    }
}
