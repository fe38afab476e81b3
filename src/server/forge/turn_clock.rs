//! The time limit of a turn: when it is over the turn is stopped, and what it has said so far is the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use talaria_platform::spawn_task;

use crate::ids::{SessionId, TurnId};
use crate::server::Server;

/// Whether the time limit of a turn has passed. Cheap to clone.
#[derive(Clone, Default)]
pub struct TurnClock {
    timed_out: Arc<AtomicBool>,
}

impl TurnClock {
    /// Watches a turn until it ends. The watch goes on when the client is gone: the session's idle time begins with the end
    /// of its last turn.
    pub fn start(server: &Arc<Server>, session: SessionId, run: &TurnId, limit: Duration) -> Self {
        let clock = Self::default();
        // A turn that ended long ago has no log, and no time left to limit.
        let Some(log) = server.turns.log_of(run) else { return clock };
        let (server, run, timed_out) = (server.clone(), run.clone(), clock.timed_out.clone());
        spawn_task("limit-a-forge-turn", async move {
            tokio::select! {
                () = log.ended() => {}
                () = tokio::time::sleep(limit) => {
                    timed_out.store(true, Ordering::Release);
                    if let Err(error) = server.turns.stop(&session, &run).await {
                        tracing::warn!(%error, "a turn beyond its time limit could not be stopped");
                    }
                    log.ended().await;
                }
            }
            // Beside the turn's own record; a failure only lets the session end a little earlier.
            let _ = server.store.write(move |tx| tx.touch_forge_session(&session, &run)).await;
        });
        clock
    }

    /// Whether the limit has passed.
    pub fn has_timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Acquire)
    }
}
