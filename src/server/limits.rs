//! How much may go on at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Caller, Problem};

/// When to come back if there is no room now.
const AGAIN: Duration = Duration::from_secs(2);

/// The turns that programs may have at once, running or waiting.
pub struct Limits {
    all: Arc<Semaphore>,
    each: usize,
    apps: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The right to have one turn more. It ends with the turn.
pub type Permit = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Limits {
    /// So many in all, and so many of one app.
    pub fn new((all, each): (usize, usize)) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, apps: Mutex::default() }
    }

    /// Makes room for one turn of a caller.
    pub fn take(&self, caller: &Caller) -> Result<Permit, Problem> {
        let busy = |_| Problem::busy("Too many turns run at once; ask again in a moment", AGAIN);
        let own = match caller.is_owner() {
            true => None,
            false => {
                let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
                let own = apps.entry(caller.app().to_owned());
                let own = own.or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone();
                Some(own.try_acquire_owned().map_err(busy)?)
            }
        };
        Ok((self.all.clone().try_acquire_owned().map_err(busy)?, own))
    }
}
