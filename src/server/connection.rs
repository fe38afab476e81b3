//! The byte stream beneath HTTP: enforces timeouts on slow peers, and answers requests that are not HTTP in our
//! own form.
//!
//! hyper would count the pause between two requests as part of reading the next head, has no limit for a peer
//! that does not read, and closes while the peer still sends, which destroys the answer on its way. So these
//! are done here, beneath it. The idle time between two requests is not: hyper does not read then, so nothing
//! here is called; see `connection_limit`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::connection_limit::BusyConnection;
use super::raw_errors;

/// Timeout of a request's head from its first byte, and of the first byte of a new connection.
const HEAD: Duration = Duration::from_secs(10);

/// Longest time in which a peer reads nothing of the bytes written to it. All unread bytes stay in memory.
const STALL: Duration = Duration::from_secs(60);

/// Time that we keep reading after our last byte: closing while the peer still sends would reset the connection
/// and destroy the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ConnectionStage {
    /// Waits for the rest of a head, or for the very first byte.
    Head,
    /// A request is being answered, or its body read by the handler.
    Answering,
    /// Waits for the next request.
    Idle,
}

/// Stage of a connection. Written by the response body and [`TimedConnection`]; read by [`TimedConnection`] and
/// by shutdown.
#[derive(Clone)]
pub struct ConnectionProgress(Arc<ProgressState>);

// All accesses happen in one task, so relaxed ordering is enough.
struct ProgressState {
    stage: AtomicU8,
    /// The peer has not read everything that was written. The stage can leave `Answering` before that: hyper
    /// drops a body once the rest of it is in hyper's own buffer, which may be the whole body.
    untaken: AtomicBool,
    /// `stage` or `untaken` has changed since the last [`ConnectionProgress::has_rested`].
    moved: AtomicBool,
}

/// Keeps the stage at `Answering` until it is dropped.
pub struct AnsweringGuard(ConnectionProgress);

impl ConnectionProgress {
    /// Progress of a new connection.
    pub fn begin() -> Self {
        Self(Arc::new(ProgressState {
            stage: AtomicU8::new(ConnectionStage::Head as u8),
            untaken: AtomicBool::new(false),
            moved: AtomicBool::new(false),
        }))
    }

    /// Marks that a request has arrived.
    pub fn answers(&self) -> AnsweringGuard {
        self.set(ConnectionStage::Answering);
        AnsweringGuard(self.clone())
    }

    /// Whether no answer was under way or unread since the last call of this.
    pub fn has_rested(&self) -> bool {
        let moved = self.0.moved.swap(false, Ordering::Relaxed);
        !moved && self.stage() != ConnectionStage::Answering && !self.0.untaken.load(Ordering::Relaxed)
    }

    fn set(&self, stage: ConnectionStage) {
        self.0.stage.store(stage as u8, Ordering::Relaxed);
        self.0.moved.store(true, Ordering::Relaxed);
    }

    fn set_untaken(&self, untaken: bool) {
        self.0.untaken.store(untaken, Ordering::Relaxed);
        self.0.moved.store(true, Ordering::Relaxed);
    }

    fn stage(&self) -> ConnectionStage {
        match self.0.stage.load(Ordering::Relaxed) {
            stage if stage == ConnectionStage::Head as u8 => ConnectionStage::Head,
            stage if stage == ConnectionStage::Idle as u8 => ConnectionStage::Idle,
            _ => ConnectionStage::Answering,
        }
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.set(ConnectionStage::Idle);
    }
}

/// Body of an answer. Keeps the connection busy until the whole body was fetched or dropped.
pub struct TrackedBody {
    body: Body,
    _lasts: (AnsweringGuard, BusyConnection),
}

impl TrackedBody {
    /// Wraps a body together with the guards that it keeps alive.
    pub fn new(body: Body, lasts: (AnsweringGuard, BusyConnection)) -> Self {
        Self { body, _lasts: lasts }
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A byte stream with timeouts for reading and writing.
pub struct TimedConnection<I> {
    stream: I,
    progress: ConnectionProgress,
    /// Time by which something must have arrived.
    reading: ConnectionDeadline,
    /// The peer has sent something on this connection.
    begun: bool,
    /// Time by which the peer must have read something.
    writing: ConnectionDeadline,
    /// Our own answer in place of hyper's, as far as it is not yet written.
    own: Vec<u8>,
    /// The write half is shut down.
    closed: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin> TimedConnection<I> {
    /// Wraps a new connection; [`HEAD`] starts now.
    pub fn new(stream: I, progress: ConnectionProgress) -> Self {
        let mut reading = ConnectionDeadline::default();
        reading.set(HEAD);
        Self {
            stream,
            progress,
            reading,
            begun: false,
            writing: ConnectionDeadline::default(),
            own: Vec::new(),
            closed: false,
        }
    }

    /// Starts, clears and checks the write deadline by the result of a write.
    fn taken<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.writing.is_set() {
                self.writing.clear();
                self.progress.set_untaken(false);
            }
            return polled;
        }
        if !self.writing.is_set() {
            self.writing.set(STALL);
            self.progress.set_untaken(true);
        }
        match self.writing.passed(context) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }

    /// Writes the rest of our own answer.
    fn poll_own(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let polled = Pin::new(&mut self.stream).poll_write(context, &self.own);
            let written = ready!(self.taken(context, polled))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.own.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards input until the peer closes or [`LINGER`] has passed.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut room = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.reading.passed(context) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
            if self.reading.passed(context) {
                return Poll::Ready(());
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimedConnection<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let stage = self.progress.stage();
        match (&polled, stage) {
            // The handler that reads a body enforces its time limit.
            (_, ConnectionStage::Answering) | (Poll::Ready(Err(_)), _) => {}
            (Poll::Ready(Ok(())), ConnectionStage::Head) => self.begun |= buffer.filled().len() > before,
            (Poll::Ready(Ok(())), ConnectionStage::Idle) => {
                self.progress.set(ConnectionStage::Head);
                self.begun = true;
                self.reading.set(HEAD);
            }
            (Poll::Pending, ConnectionStage::Idle) => {}
            (Poll::Pending, ConnectionStage::Head) => {
                if self.reading.passed(context) {
                    if self.begun {
                        // Written if the socket takes it at once; the connection ends either way.
                        let _ = Pin::new(&mut self.stream).poll_write(context, &raw_errors::too_slow());
                    }
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        polled
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedConnection<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(context))?;
        if self.progress.stage() != ConnectionStage::Answering
            && let Some(automatic) = raw_errors::automatic(bytes)
        {
            let before = bytes.get(..automatic.at).unwrap_or_default();
            self.own = [before, &raw_errors::unreadable(automatic.status)].concat();
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.taken(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.progress.stage() != ConnectionStage::Answering {
            // Written one by one, because each is inspected for an automatic answer of hyper.
            let first = slices.iter().find(|slice| !slice.is_empty());
            return self.poll_write(context, first.map_or(&[], |slice| &**slice));
        }
        ready!(self.poll_own(context))?;
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.taken(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(context))?;
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.taken(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            ready!(self.poll_own(context))?;
            let polled = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.taken(context, polled))?;
            self.closed = true;
            if !self.begun {
                // The peer never sent anything, so no input can destroy an answer.
                return Poll::Ready(Ok(()));
            }
            self.reading.set(LINGER);
        }
        self.poll_linger(context).map(Ok)
    }
}

/// A timer that can be set again. Allocates only when it is first set.
#[derive(Default)]
struct ConnectionDeadline {
    sleep: Option<Pin<Box<Sleep>>>,
    set: bool,
}

impl ConnectionDeadline {
    fn set(&mut self, after: Duration) {
        let at = Instant::now() + after;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.set = true;
    }

    fn clear(&mut self) {
        self.set = false;
    }

    fn is_set(&self) -> bool {
        self.set
    }

    /// Whether the time has come; if not, the task is woken at that time.
    fn passed(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.sleep {
            Some(sleep) if self.set => sleep.as_mut().poll(context).is_ready(),
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests;
