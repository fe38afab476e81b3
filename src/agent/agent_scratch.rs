//! What an agent keeps of a turn between two tries, and lets go with it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A slot for one value of any type. It lives as long as the turn does in this process, over all of its tries, so what is in it
/// is dropped when the turn is over, whoever ended it.
#[derive(Clone, Default)]
pub struct AgentScratch(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl AgentScratch {
    /// What is in it, put there now if it is empty. Of another kind there is always a new one: nobody finds what
    /// another agent has kept.
    pub fn get_or<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> Arc<T> {
        let kept = self.0.get_or_init(|| Arc::new(make())).clone();
        kept.downcast().unwrap_or_else(|_| Arc::new(make()))
    }

    /// What is in it, if it is of this kind.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.get().cloned()?.downcast().ok()
    }
}

impl fmt::Debug for AgentScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentScratch").finish_non_exhaustive()
    }
}
