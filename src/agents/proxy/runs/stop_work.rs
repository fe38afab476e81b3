//! Work that tells the upstream to stop the run of a turn, because a run goes on without a reader.
//!
//! The try that was stopped waits for it. If the engine cuts that try off first, the work is still here, and the engine
//! takes it over ([`Agent::abandon`](crate::agent::Agent::abandon)).

use std::future::poll_fn;
use std::task::Poll;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;

/// The work of one turn; kept with the turn.
#[derive(Default)]
pub struct StopWork(Mutex<StopState>);

#[derive(Default)]
enum StopState {
    /// The run is not to be stopped.
    #[default]
    Unneeded,
    /// The upstream is yet to be told.
    Left(BoxFuture<'static, ()>),
    /// The upstream was told, or somebody else is telling it.
    Taken,
}

impl StopWork {
    /// Sets the work, unless there was some before. Nothing is done until somebody waits for it.
    pub fn put(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.0.lock();
        if matches!(*state, StopState::Unneeded) {
            *state = StopState::Left(Box::pin(work));
        }
    }

    /// The work that is left.
    pub fn take(&self) -> Option<BoxFuture<'static, ()>> {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            StopState::Unneeded => None,
            StopState::Left(work) => {
                *state = StopState::Taken;
                Some(work)
            }
            StopState::Taken => {
                *state = StopState::Taken;
                None
            }
        }
    }

    /// Works until nothing is left.
    pub async fn done(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            let StopState::Left(work) = &mut *state else { return Poll::Ready(()) };
            let polled = work.as_mut().poll(cx);
            if polled.is_ready() {
                *state = StopState::Taken;
            }
            polled
        })
        .await;
    }
}
