//! Runs the file work of a tool on a thread that may block, and ends it when the call ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use talaria_platform::CancellationToken;

use super::ToolFailure;

/// Set once the call is over; long work looks at it now and then. The thread of a call holds the other end.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Whether the work should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets the flag when the future of the call is dropped.
struct CancelGuard(CancelFlag);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `work` on a blocking thread. When `stop` fires, the flag is set and the end of the work is awaited, so that
/// nothing changes after the call; the work itself says whether it was done or stopped.
pub async fn run_blocking<T: Send + 'static>(
    stop: &CancellationToken,
    work: impl FnOnce(&CancelFlag) -> Result<T, ToolFailure> + Send + 'static,
) -> Result<T, ToolFailure> {
    if stop.is_cancelled() {
        return Err(ToolFailure::Stopped);
    }
    let flag = CancelFlag::default();
    let guard = CancelGuard(flag.clone());
    let mut task = tokio::task::spawn_blocking(move || work(&flag));
    let ended = tokio::select! {
        ended = &mut task => ended,
        () = stop.cancelled() => {
            guard.0.set();
            task.await
        }
    };
    ended.unwrap_or_else(|_| Err(ToolFailure::failed("the tool broke inside; try something else")))
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Work that ends only when it is told to, and says when it begins and ends.
    fn endless(
        begun: oneshot::Sender<()>,
        ended: oneshot::Sender<()>,
    ) -> impl FnOnce(&CancelFlag) -> Result<(), ToolFailure> + Send + 'static {
        move |cancel| {
            let _ = begun.send(());
            while !cancel.is_set() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
            Err(ToolFailure::Stopped)
        }
    }

    #[tokio::test]
    async fn work_ends_when_the_turn_is_stopped() {
        let stop = CancellationToken::new();
        let ((begun, has_begun), (ended, has_ended)) = (oneshot::channel(), oneshot::channel());
        let stopping = async {
            has_begun.await.unwrap();
            stop.cancel();
        };
        let (result, ()) = tokio::join!(run_blocking(&stop, endless(begun, ended)), stopping);
        assert_eq!(result, Err(ToolFailure::Stopped));
        has_ended.await.unwrap();
    }

    #[tokio::test]
    async fn work_ends_when_its_call_is_dropped() {
        let stop = CancellationToken::new();
        let ((begun, has_begun), (ended, has_ended)) = (oneshot::channel(), oneshot::channel());
        tokio::select! {
            _ = run_blocking(&stop, endless(begun, ended)) => panic!("it does not end by itself"),
            begun = has_begun => begun.unwrap(),
        }
        has_ended.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let stop = CancellationToken::new();
        let broken = run_blocking(&stop, |_: &CancelFlag| -> Result<(), ToolFailure> { panic!("a bug") });
        assert!(matches!(broken.await, Err(ToolFailure::Failed(_))));
    }
}
