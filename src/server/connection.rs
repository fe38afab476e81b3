//! The connection beneath HTTP: whoever is slow loses it, and what is no HTTP is answered in our form.
//!
//! hyper itself would count the time between two requests as that of the next one's head, knows no bound for a reader
//! that takes nothing, and closes while somebody still sends, which destroys the answer on its way. So that is done
//! here, beneath it. How long a connection may be idle between two requests is not: hyper does not read then, so
//! nothing here is called; see `connection_limit`.

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

/// How long the head of a request may take, from its first byte; and a new connection until it has sent one.
const HEAD: Duration = Duration::from_secs(10);

/// How long somebody may take nothing of what is written to him. He would hold on to all that he has not read.
const STALL: Duration = Duration::from_secs(60);

/// How long we listen to what is still sent after our last word, so that it is read and not cut off.
const LINGER: Duration = Duration::from_secs(2);

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ConnectionStage {
    /// Waits for the rest of a head, or for the very first one.
    Head,
    /// A request is answered, or still read by whoever answers it.
    Answering,
    /// Waits for the next request.
    Idle,
}

/// How far a connection has come. Moved on by who answers and by the wire, looked at by the wire and by who ends it.
#[derive(Clone)]
pub struct ConnectionProgress(Arc<ProgressState>);

// One task does all of it; the order is its own.
struct ProgressState {
    stage: AtomicU8,
    /// Something that is written was not taken yet. An answer is over before that: HTTP lets go of a body once it has
    /// the last of it in its own buffer, which may be all of it.
    untaken: AtomicBool,
    /// One of these has changed since [`ConnectionProgress::has_rested`].
    moved: AtomicBool,
}

/// For as long as an answer takes.
pub struct AnsweringGuard(ConnectionProgress);

impl ConnectionProgress {
    /// Of a connection that is new.
    pub fn begin() -> Self {
        Self(Arc::new(ProgressState {
            stage: AtomicU8::new(ConnectionStage::Head as u8),
            untaken: AtomicBool::new(false),
            moved: AtomicBool::new(false),
        }))
    }

    /// A request is there.
    pub fn answers(&self) -> AnsweringGuard {
        self.set(ConnectionStage::Answering);
        AnsweringGuard(self.clone())
    }

    /// Whether no answer is under way or waits to be taken, nor was since this was asked last.
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

/// The body of an answer, which lasts until all of it is fetched, or it is given up.
pub struct TrackedBody {
    body: Body,
    _lasts: (AnsweringGuard, BusyConnection),
}

impl TrackedBody {
    /// An answer that is under way.
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

/// A connection with its times.
pub struct TimedConnection<I> {
    stream: I,
    progress: ConnectionProgress,
    /// By when something must have come.
    reading: ConnectionDeadline,
    /// Something of a head has come, on this connection.
    begun: bool,
    /// By when something of what is written must have been taken.
    writing: ConnectionDeadline,
    /// Our own words in place of hyper's, as far as they are not written.
    own: Vec<u8>,
    /// Our last word is said.
    closed: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin> TimedConnection<I> {
    /// A new connection.
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

    /// Keeps the time of what waits for its reader.
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

    /// Writes what is our own.
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

    /// Takes what somebody still sends, until he has heard that we are done.
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
            // Whoever reads a body keeps its time.
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
                        // Said if there is room for it; the connection ends either way.
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
            // One after the other, to look at them.
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
                // Nobody ever sent anything.
                return Poll::Ready(Ok(()));
            }
            self.reading.set(LINGER);
        }
        self.poll_linger(context).map(Ok)
    }
}

/// A moment that may be set anew. Takes room only once it was set.
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

    /// Whether it is over; if not, the task is woken then.
    fn passed(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.sleep {
            Some(sleep) if self.set => sleep.as_mut().poll(context).is_ready(),
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests;
