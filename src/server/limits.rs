//! Limits the turns of HTTP callers, and the open requests of each app.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ApiError, Caller};

/// `Retry-After` when a limit is reached.
const AGAIN: Duration = Duration::from_secs(2);

/// Open requests of an app per turn that it may have: a turn may have several readers.
const READERS: usize = 4;

/// Limits on turns, running or waiting, and on the requests of apps.
pub struct TurnLimits {
    all: Arc<Semaphore>,
    each: usize,
    /// By app name. Only apps with a valid token get here, so their number is bounded.
    apps: Mutex<HashMap<String, AppSlots>>,
}

#[derive(Clone)]
struct AppSlots {
    turns: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// Permit for one turn. Held until the turn ends.
pub type TurnPermit = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl TurnLimits {
    /// Limits of turns: in total, and of one app.
    pub fn new((all, each): (usize, usize)) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, apps: Mutex::default() }
    }

    /// Takes a permit for one turn of a caller.
    pub fn take(&self, caller: &Caller) -> Result<TurnPermit, ApiError> {
        let busy = |_| Self::too_many_turns();
        let own = match caller.is_owner() {
            true => None,
            false => Some(self.app(caller).turns.try_acquire_owned().map_err(busy)?),
        };
        Ok((self.all.clone().try_acquire_owned().map_err(busy)?, own))
    }

    /// Error for a caller that gets no permit for a turn.
    pub fn too_many_turns() -> ApiError {
        ApiError::busy("Too many turns run at once; ask again in a moment", AGAIN)
    }

    /// Takes a permit for one request of an app, held until its response is read, so that one app cannot take
    /// all connections.
    pub(super) fn request(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, ApiError> {
        let busy = |_| ApiError::busy("Too many requests of this app are open; close some of them", AGAIN);
        self.app(caller).requests.try_acquire_owned().map_err(busy)
    }

    fn app(&self, caller: &Caller) -> AppSlots {
        let mut apps = self.apps.lock();
        let app = apps.entry(caller.app().to_owned()).or_insert_with(|| AppSlots {
            turns: Arc::new(Semaphore::new(self.each)),
            requests: Arc::new(Semaphore::new(self.each.saturating_mul(READERS).min(Semaphore::MAX_PERMITS))),
        });
        app.clone()
    }
}
