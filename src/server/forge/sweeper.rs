//! Ends forge sessions that nobody uses, and deletes what is left of them: rows, folders, uploaded files.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use talaria_platform::spawn_task;
use tokio::time::MissedTickBehavior;

use crate::server::{ApiError, Server};
use crate::store::{SweepCounts, SweepLimits, unix_now};

/// Interval of sweeps.
const EACH: Duration = Duration::from_secs(60);

/// Sweeps regularly, until the process is about to end.
pub fn sweep_regularly(server: &Arc<Server>) {
    let (server, draining) = (Arc::downgrade(server), server.draining.clone());
    spawn_task("forge-sweeper", async move {
        let mut due = tokio::time::interval_at(tokio::time::Instant::now() + EACH, EACH);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = due.tick() => {}
                () = draining.cancelled() => return,
            }
            let Some(server) = server.upgrade() else { return };
            tokio::select! {
                swept = server.sweep_once() => match swept {
                    Ok(ForgeSweep { soft_closed: 0, hard_deleted: 0 }) => {}
                    Ok(ForgeSweep { soft_closed, hard_deleted }) => {
                        tracing::info!(soft_closed, hard_deleted, "sessions that nobody used were ended");
                    }
                    Err(problem) => tracing::warn!(problem = problem.message, "a sweep of sessions failed"),
                },
                () = draining.cancelled() => return,
            }
        }
    });
}

/// Result of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForgeSweep {
    /// Sessions that were closed because nobody used them.
    pub soft_closed: u64,
    /// Sessions that were deleted.
    pub hard_deleted: u64,
}

impl Server {
    /// Sweeps once, now.
    pub async fn sweep_once(&self) -> Result<ForgeSweep, ApiError> {
        self.sweep_at(unix_now()).await
    }

    /// Sweeps as at this time, in seconds since 1970.
    pub async fn sweep_at(&self, now: i64) -> Result<ForgeSweep, ApiError> {
        let config = &self.settings.forge.config;
        let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        let limits =
            SweepLimits { ttl: seconds(config.session_ttl), hard_ttl: seconds(config.session_hard_ttl) };
        let mut sweep = ForgeSweep::default();
        loop {
            let swept = self.store.write(move |tx| tx.sweep_forge(now, limits)).await?;
            let (SweepCounts { soft_closed, hard_deleted }, more) = swept;
            sweep.soft_closed += soft_closed;
            sweep.hard_deleted += hard_deleted;
            if !more {
                break;
            }
        }
        while self.store.write(move |tx| tx.prune_forge_files(now)).await? {}
        // An agent is told before its folder goes.
        self.turns.end_sessions_now().await;
        self.forge.remove_abandoned(&self.store).await?;
        Ok(sweep)
    }
}
