//! Values that agents keep of a turn between its tries.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// One value of each type, shared by all tries of a turn in this process and dropped with the turn, however it ends.
///
/// An agent uses types of its own, so the fallback and the agent inside it do not meet here.
#[derive(Clone, Default)]
pub struct AgentScratch(Arc<Mutex<Vec<Arc<dyn Any + Send + Sync>>>>);

impl AgentScratch {
    /// The value of this type; a default one is stored first if there is none.
    pub fn get_or_default<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut values = self.0.lock();
        if let Some(value) = find(&values) {
            return value;
        }
        let value = Arc::new(T::default());
        values.push(value.clone());
        value
    }

    /// The value of this type, if there is one.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        find(&self.0.lock())
    }
}

fn find<T: Any + Send + Sync>(values: &[Arc<dyn Any + Send + Sync>]) -> Option<Arc<T>> {
    values.iter().find_map(|value| value.clone().downcast().ok())
}

impl fmt::Debug for AgentScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentScratch").finish_non_exhaustive()
    }
}
