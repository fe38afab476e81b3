//! The pipe to a shim: standard input of the process, and the line whose end ends it.
//!
//! Two hold it: the writer of the input, and the owner of the process, who must be able to close it under the writer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;

/// A pipe that is closed for all its holders at once.
#[derive(Debug)]
pub(super) struct SharedPipe {
    state: Mutex<PipeState>,
}

#[derive(Debug)]
struct PipeState {
    /// `None` once it is closed.
    pipe: Option<ChildStdin>,
    /// A writer that waits for room. Without a wake it would never learn that the pipe was closed.
    waiting: Option<Waker>,
}

impl SharedPipe {
    pub(super) fn new(pipe: Option<ChildStdin>) -> Self {
        Self { state: Mutex::new(PipeState { pipe, waiting: None }) }
    }

    /// Closes the pipe. A write that waits fails.
    pub(super) fn close(&self) {
        let (pipe, waiting) = {
            let mut state = self.state.lock();
            (state.pipe.take(), state.waiting.take())
        };
        drop(pipe);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn poll_with<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.state.lock();
        let Some(pipe) = state.pipe.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let polled = poll(Pin::new(pipe), context);
        state.waiting = polled.is_pending().then(|| context.waker().clone());
        polled
    }
}

/// Standard input of a process. Dropping it, or shutting it down, ends the process in order.
#[derive(Debug)]
pub struct ProcessStdin {
    shared: Arc<SharedPipe>,
}

impl ProcessStdin {
    pub(super) fn new(shared: Arc<SharedPipe>) -> Self {
        Self { shared }
    }
}

impl AsyncWrite for ProcessStdin {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_with(context, |pipe, context| pipe.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_with(context, |pipe, context| pipe.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for ProcessStdin {
    fn drop(&mut self) {
        self.shared.close();
    }
}
