//! Limits the number of commands that run at the same time, over all agents and sessions.

use std::sync::Arc;

use talaria_platform::CancellationToken;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agents::tools::ToolFailure;

/// Commands that run at the same time. One turn may ask for many at once, and each may take a core and much memory of
/// the machine that the gateway runs on. Enough for several people who work at once.
const COMMANDS: usize = 8;

/// Line of the step of a command that waits for its slot.
const WAITING: &str = "waits until another command has ended";

/// The slots for commands. One for all agents; cheap to clone.
#[derive(Clone, Debug)]
pub struct CommandSlots(Arc<Semaphore>);

impl Default for CommandSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(COMMANDS)))
    }
}

impl CommandSlots {
    /// Takes a slot until the returned value is dropped. If all are taken, says so with `progress`, and waits until the
    /// turn is stopped or reaches its time limit, which fires `stop`.
    pub(super) async fn take(
        &self,
        progress: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<OwnedSemaphorePermit, ToolFailure> {
        if let Ok(slot) = self.0.clone().try_acquire_owned() {
            return Ok(slot);
        }
        progress(WAITING);
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(ToolFailure::Stopped),
            slot = self.0.clone().acquire_owned() => slot.map_err(|_| ToolFailure::Stopped),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn one_command_too_many_says_so_and_waits_for_a_slot_or_a_stop() {
        let (slots, stop) = (CommandSlots::default(), CancellationToken::new());
        let said = Mutex::new(Vec::new());
        let progress = |line: &str| said.lock().push(line.to_owned());
        let mut taken = Vec::new();
        for _ in 0..COMMANDS {
            taken.push(slots.take(&progress, &stop).await.unwrap());
        }
        assert!(said.lock().is_empty());
        let waiting = slots.take(&progress, &stop);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert_eq!(*said.lock(), [WAITING]);
        taken.pop();
        let slot = waiting.await.unwrap();
        let another = slots.take(&progress, &stop);
        tokio::pin!(another);
        assert!(futures_util::poll!(&mut another).is_pending());
        stop.cancel();
        assert_eq!(another.await.unwrap_err(), ToolFailure::Stopped);
        drop((slot, taken));
    }
}
