//! How much may go on at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ApiError, Caller};

/// When to come back if there is no room now.
const AGAIN: Duration = Duration::from_secs(2);

/// Requests of an app at once, for each turn that it may have: a turn may have several readers.
const READERS: usize = 4;

/// The turns that programs may have at once, running or waiting, and what apps may ask at once.
pub struct TurnLimits {
    all: Arc<Semaphore>,
    each: usize,
    /// By name. Only apps with a token come so far, so there are never more than those.
    apps: Mutex<HashMap<String, AppSlots>>,
}

#[derive(Clone)]
struct AppSlots {
    turns: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// The right to have one turn more. It ends with the turn.
pub type TurnPermit = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl TurnLimits {
    /// So many in all, and so many of one app.
    pub fn new((all, each): (usize, usize)) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, apps: Mutex::default() }
    }

    /// Makes room for one turn of a caller.
    pub fn take(&self, caller: &Caller) -> Result<TurnPermit, ApiError> {
        let busy = |_| Self::too_many_turns();
        let own = match caller.is_owner() {
            true => None,
            false => Some(self.app(caller).turns.try_acquire_owned().map_err(busy)?),
        };
        Ok((self.all.clone().try_acquire_owned().map_err(busy)?, own))
    }

    /// What whoever finds no room for a turn is told.
    pub fn too_many_turns() -> ApiError {
        ApiError::busy("Too many turns run at once; ask again in a moment", AGAIN)
    }

    /// Makes room for one request of an app, until its answer is read: it must not take all connections there are.
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
