//! A place in the pool, and a process in it.

use std::sync::Arc;
use std::time::Duration;

use talaria_platform::CancellationToken;

use super::{AcpPool, AcpProcess, PlaceKey, idle};

/// A place for one process. Dropping it frees the place; by then its process must have ended.
pub struct ProcessPlace {
    pub(super) pool: Arc<AcpPool>,
    pub(super) key: PlaceKey,
    /// Whether dropping it frees the place.
    is_held: bool,
}

/// A process that a turn has. Dropping it ends the process in order, and frees the place after that.
pub struct PooledProcess {
    /// Both are there until the process is handed on or ended.
    inner: Option<(ProcessPlace, AcpProcess)>,
}

impl ProcessPlace {
    pub(super) fn new(pool: Arc<AcpPool>, key: PlaceKey) -> Self {
        Self { pool, key, is_held: true }
    }

    /// Puts a process that was started into the place.
    pub fn fill(self, process: AcpProcess) -> PooledProcess {
        let marker = process.marker.clone();
        if let Some(place) = self.pool.places.lock().get_mut(&self.key) {
            place.marker = Some(marker);
        }
        PooledProcess::new(self, process)
    }

    /// Leaves the place to the idle process in it.
    pub(super) fn leave(mut self) {
        self.is_held = false;
    }
}

impl Drop for ProcessPlace {
    fn drop(&mut self) {
        if self.is_held {
            self.pool.places.lock().remove(&self.key);
            self.pool.freed.notify_waiters();
        }
    }
}

impl PooledProcess {
    pub(super) fn new(place: ProcessPlace, process: AcpProcess) -> Self {
        Self { inner: Some((place, process)) }
    }

    /// The process. `None` only after it was handed on.
    pub fn process(&mut self) -> Option<&mut AcpProcess> {
        self.inner.as_mut().map(|(_, process)| process)
    }

    /// Whether the process is gone.
    pub fn is_gone(&self) -> bool {
        self.inner.as_ref().is_none_or(|(_, process)| process.rpc.is_gone())
    }

    /// Keeps the process for the next turn of its session, for this long, or until `stop` fires.
    pub fn rest(mut self, patience: Duration, stop: CancellationToken) {
        let Some((place, process)) = self.inner.take() else { return };
        if process.rpc.is_gone() || stop.is_cancelled() {
            drop(Self { inner: Some((place, process)) });
            return;
        }
        idle::rest(place, process, patience, stop);
    }

    /// Ends the process in order and waits until the place is free.
    pub async fn end(mut self) {
        if let Some(ending) = self.begin_end() {
            let _ = ending.await;
        }
    }

    fn begin_end(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let (place, process) = self.inner.take()?;
        let pool = place.pool.clone();
        if let Some(place) = pool.places.lock().get_mut(&place.key) {
            place.is_ending = true;
            place.open = process.session.as_ref().map(|session| session.id.clone());
        }
        Some(pool.spawn("acp-end", async move {
            process.end().await;
            drop(place);
        }))
    }
}

impl Drop for PooledProcess {
    fn drop(&mut self) {
        drop(self.begin_end());
    }
}
