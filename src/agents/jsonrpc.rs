//! JSON-RPC over the standard input and output of a process, one message per line: for codex and for ACP agents.
//!
//! The peer may misbehave, and nothing of it may hang us or grow our memory:
//!
//! * Notifications and requests of the peer come in one ordered, bounded queue ([`RpcIncoming`]). When it is full we stop
//!   reading, and the pipe slows the peer down. While something of ours waits (an answer, a line to be written), the
//!   reader goes on up to twice the limit, because the answer stands behind the messages that fill the queue. Beyond
//!   that a call ends by its deadline. So the consumer of the queue should not wait for calls between two messages.
//! * An answer does not wait in the queue. Its [`position`](RpcAnswer::position) tells which messages came before it.
//! * A line that is no message (a banner, half an object, more bytes than the limit) is skipped, counted and never
//!   answered. A peer that sends nothing else for a long while loses its connection.
//! * Every call has a deadline, and writing has one too. A call that nobody waits for any more is not written at all, if
//!   its turn has not come yet. A late answer, and one that nobody asked for, is ignored.
//! * When the process is gone, every call that waits fails with its exit status and the end of its standard error.

mod failure;
mod incoming_queue;
mod line_reader;
mod lossy_json;
mod peer_process;
mod reader;
#[cfg(test)]
mod tests;
mod waiting_calls;
mod wire;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use talaria_platform::spawn_task;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};

use self::incoming_queue::IncomingQueue;
use self::peer_process::PeerProcess;
use self::waiting_calls::WaitingCalls;
use self::wire::OutgoingMessage;
use self::writer::{OutgoingLine, WRITE_TIME};
use crate::agents::process::{ManagedProcess, ProcessExit};

pub use failure::{BreakCause, ProcessFailure, RpcError, RpcFault};
pub use incoming_queue::{IncomingMessage, PackedMessage, RpcIncoming};
pub use wire::{RequestId, RpcDialect};

/// Lines of ours that wait for the writer. Small: a caller that waits here learns by its deadline that the peer does not
/// read.
const OUTGOING: usize = 32;

/// Limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcLimits {
    /// Longest line in either direction. Default 8 MiB: the longest honest lines carry a picture in base64.
    pub line_bytes: usize,
    /// Messages in the queue. Default 1024: a few seconds of a model's deltas on all threads of a process.
    pub queue: usize,
    /// Bytes in the queue. Default 16 MiB: twice the longest line, so that a long one need not wait for an empty queue.
    pub queue_bytes: usize,
    /// Bytes in a row that are no message, before we break off. Default 512 MiB: more than any line that is written by
    /// mistake, and less than a second of one processor.
    pub noise_bytes: usize,
}

impl Default for RpcLimits {
    fn default() -> Self {
        Self {
            line_bytes: 8 * 1024 * 1024,
            queue: 1024,
            queue_bytes: 16 * 1024 * 1024,
            noise_bytes: 512 * 1024 * 1024,
        }
    }
}

/// A connection to a process. Cheap to clone; the process is ended in order when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct RpcClient {
    core: Arc<ClientCore>,
}

/// The caller's side of a connection. Dropping it ends the process, which ends both tasks.
#[derive(Debug)]
struct ClientCore {
    link: Arc<RpcLink>,
    /// To the writer.
    outgoing: mpsc::Sender<OutgoingLine>,
    dialect: RpcDialect,
    line_bytes: usize,
}

/// State that the client shares with the reader and the writer.
#[derive(Debug)]
struct RpcLink {
    peer: PeerProcess,
    calls: WaitingCalls,
    incoming: Arc<IncomingQueue>,
    /// Set once by the reader, as the last thing that it does.
    gone: watch::Sender<Option<ProcessFailure>>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcAnswer {
    /// The result as the peer wrote it; null if it wrote none.
    pub result: Value,
    /// Number of incoming messages that came before the answer: those whose own position is lower.
    pub position: u64,
    /// The whole answer as the peer wrote it.
    pub line: Vec<u8>,
}

impl RpcClient {
    /// Takes over a started process, whose standard input must be piped. Must be called within a runtime.
    pub fn start(
        mut process: ManagedProcess,
        dialect: RpcDialect,
        limits: RpcLimits,
    ) -> (RpcClient, RpcIncoming) {
        match (process.take_stdout(), process.take_stdin()) {
            (Some(stdout), Some(stdin)) => {
                Self::over(stdout, stdin, PeerProcess::running(process), dialect, limits)
            }
            // Somebody else talks to it: the connection is gone at once.
            (stdout, stdin) => {
                drop((stdout, stdin));
                let (reader, writer) = (tokio::io::empty(), tokio::io::sink());
                Self::over(reader, writer, PeerProcess::running(process), dialect, limits)
            }
        }
    }

    /// A connection over two pipes, for tests that play the peer.
    #[cfg(test)]
    pub fn piped(
        from_peer: impl AsyncRead + Send + Unpin + 'static,
        to_peer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (RpcClient, RpcIncoming) {
        Self::over(from_peer, to_peer, PeerProcess::only_pipes(), RpcDialect::Bare, RpcLimits::default())
    }

    /// A connection over any two pipes.
    fn over<R, W>(
        from_peer: R,
        to_peer: W,
        peer: PeerProcess,
        dialect: RpcDialect,
        limits: RpcLimits,
    ) -> (RpcClient, RpcIncoming)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let incoming = Arc::new(IncomingQueue::new(limits.queue, limits.queue_bytes));
        let calls = WaitingCalls::new(incoming.clone());
        let link = Arc::new(RpcLink { peer, calls, incoming, gone: watch::Sender::new(None) });
        let (outgoing, lines) = mpsc::channel(OUTGOING);
        // Both end by themselves when the process is gone, and it is ended when the last client is dropped.
        drop(spawn_task("rpc-writer", writer::run(to_peer, lines, link.clone())));
        drop(spawn_task("rpc-reader", reader::run(from_peer, link.clone(), limits)));
        let messages = RpcIncoming::new(link.incoming.clone());
        let core = ClientCore { link, outgoing, dialect, line_bytes: limits.line_bytes };
        (RpcClient { core: Arc::new(core) }, messages)
    }

    /// Calls a method and waits for the answer, at most until the deadline. After [`RpcError::Deadline`] nobody knows
    /// whether the peer did it.
    pub async fn call(&self, method: &str, params: Value, deadline: Duration) -> Result<RpcAnswer, RpcError> {
        let mut waiting = self.core.link.calls.register().map_err(RpcError::Gone)?;
        let id = waiting.id();
        let message = OutgoingMessage::call(id, method, params);
        let bytes = self.encode(&message)?;
        let calling = async {
            let (line, written) = OutgoingLine::new(bytes, Some(id));
            // Without a writer the reader is about to tell us that the process is gone.
            let _ = self.core.outgoing.send(line).await;
            drop(written);
            waiting.answer().await
        };
        match tokio::time::timeout(deadline, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(RpcError::Deadline),
        }
    }

    /// Sends a notification, and returns once it is written.
    pub async fn notify(&self, method: &str, params: Option<Value>) -> Result<(), RpcError> {
        self.send(&OutgoingMessage::notification(method, params)).await
    }

    /// Answers a request of the peer, and returns once the answer is written.
    pub async fn reply(&self, id: RequestId, answer: Result<Value, RpcFault>) -> Result<(), RpcError> {
        self.send(&OutgoingMessage::reply(id, answer)).await
    }

    /// Ends the process in order and waits until it has ended.
    pub async fn end(&self) -> ProcessExit {
        let exit = self.core.link.peer.end().await;
        self.gone().await;
        exit
    }

    /// Resolves when the process is gone, with its exit status and the end of its standard error. By then every call
    /// has failed, and [`RpcIncoming`] holds the last messages.
    pub async fn gone(&self) -> ProcessFailure {
        let mut gone = self.core.link.gone.subscribe();
        // The sender lives as long as we do.
        gone.wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|failure| failure.clone())
            .unwrap_or_else(ProcessFailure::unknown)
    }

    /// Whether the process is gone.
    pub fn is_gone(&self) -> bool {
        self.core.link.gone.borrow().is_some()
    }

    /// By what the process is known, with everything that it started; `None` for pipes.
    pub fn marker(&self) -> Option<&str> {
        self.core.link.peer.marker()
    }

    /// The last bytes of the process' standard error so far, as text.
    pub fn stderr_tail(&self) -> String {
        self.core.link.peer.stderr_tail()
    }

    /// Number of lines so far that were no messages.
    pub fn noise(&self) -> u64 {
        self.core.link.incoming.noise()
    }

    /// Hands a message to the writer and waits until it is written.
    async fn send(&self, message: &OutgoingMessage<'_>) -> Result<(), RpcError> {
        let _writing = self.core.link.incoming.read_ahead();
        let (line, written) = OutgoingLine::new(self.encode(message)?, None);
        let sending = async {
            let is_written = match self.core.outgoing.send(line).await {
                Ok(()) => written.await.is_ok(),
                Err(_) => false,
            };
            if is_written { Ok(()) } else { Err(RpcError::Gone(self.gone().await)) }
        };
        match tokio::time::timeout(WRITE_TIME, sending).await {
            Ok(sent) => sent,
            Err(_) => Err(RpcError::Deadline),
        }
    }

    fn encode(&self, message: &OutgoingMessage<'_>) -> Result<Vec<u8>, RpcError> {
        let line = message.to_line(self.core.dialect);
        if line.len() > self.core.line_bytes {
            return Err(RpcError::TooLarge { bytes: line.len(), limit: self.core.line_bytes });
        }
        Ok(line)
    }
}

impl Drop for ClientCore {
    fn drop(&mut self) {
        self.link.peer.close(None);
    }
}

impl OutgoingLine {
    /// A line and the news that it is written. The writer drops the line unwritten if nobody waits for that news, or for
    /// the answer to this call.
    fn new(bytes: Vec<u8>, call: Option<i64>) -> (Self, oneshot::Receiver<()>) {
        let (written, is_written) = oneshot::channel();
        (Self { bytes, call, written }, is_written)
    }
}
