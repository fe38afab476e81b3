//! Has agents end runs that may still go on at their upstreams although the turn is over here.
//!
//! The stop itself is in the store before anything is told to anybody, and the turn stays open until the upstream was told,
//! or for a moment at least. A process that dies in between leaves the rest to the next one.

use std::time::Duration;

use talaria_platform::BoxFuture;

use super::Turns;
use super::turn_run::TurnRun;
use crate::agent::{AgentTurn, SharedAgent};
use crate::store;

/// Time for the work that is left when the process is about to end.
const LAST: Duration = Duration::from_secs(1);

impl TurnRun<'_> {
    /// Ends the run of a turn that was to stop when an earlier process died. That process may not have told the upstream.
    pub async fn end_left_run(&mut self) -> store::Result<()> {
        let Some(prepared) = &self.prepared else { return Ok(()) };
        let (session, agent) = (self.row.session.clone(), prepared.agent.clone());
        let known = self.turns.store.read(move |tx| tx.agent_session(&session, &agent)).await?;
        (self.turn.session, self.turn.upstream) = (known.id, known.upstream);
        self.turns.abandon(&self.agent(), &self.turn).await;
        Ok(())
    }
}

impl Turns {
    /// Has an agent end a run that may still go on, and waits a moment for that.
    pub(super) async fn abandon(&self, agent: &SharedAgent, turn: &AgentTurn) {
        let Some(mut work) = agent.abandon(turn) else { return };
        if tokio::time::timeout(self.settings.stop_grace, &mut work).await.is_err() {
            self.end_later(work);
        }
    }

    /// Goes on with the work of ending a run, on a task of the engine.
    pub(super) fn end_later(&self, mut work: BoxFuture<'static, ()>) {
        tracing::debug!("the upstream of a stopped turn is told in the background");
        let draining = self.draining.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = &mut work => return,
                () = draining.cancelled() => {}
            }
            if tokio::time::timeout(LAST, work).await.is_err() {
                tracing::warn!("a stopped turn may go on at its upstream, which could not be told");
            }
        });
    }
}
