//! The ordered queue of the peer's notifications and requests, between the reader and one consumer.
//!
//! It holds lines as they were read, so that its limit in bytes is the memory that it takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::wire::{self, RequestId};

/// How many times the limits may be filled while something of ours waits.
const AHEAD: usize = 2;

/// A notification or a request of the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingMessage {
    /// Number of incoming messages before it.
    pub position: u64,
    /// The method.
    pub method: String,
    /// The parameters as the peer wrote them; null if it wrote none that can be read.
    pub params: Value,
    /// The id of a request, which must be replied to; `None` for a notification.
    pub request: Option<RequestId>,
    /// Bytes of its line.
    pub bytes: usize,
}

/// A message that waits elsewhere for long. It holds its line as it was read: parameters of many small parts take many
/// times the memory of their text once they are read.
#[derive(Debug)]
pub struct PackedMessage {
    position: u64,
    method: String,
    request: Option<RequestId>,
    line: Box<[u8]>,
}

impl PackedMessage {
    /// Packs a message; `line` is its own.
    pub fn new(message: IncomingMessage, line: Vec<u8>) -> Self {
        let IncomingMessage { position, method, request, .. } = message;
        Self { position, method, request, line: line.into() }
    }

    /// Bytes of its line.
    pub fn bytes(&self) -> usize {
        self.line.len()
    }

    /// The id of a request.
    pub fn into_request(self) -> Option<RequestId> {
        self.request
    }

    /// Reads it again.
    pub fn unpack(self) -> IncomingMessage {
        let Self { position, method, request, line } = self;
        IncomingMessage { position, method, params: wire::read_params(&line), request, bytes: line.len() }
    }
}

/// The queue. One reader pushes, one consumer takes.
#[derive(Debug)]
pub(super) struct IncomingQueue {
    limit: usize,
    byte_limit: usize,
    state: Mutex<QueueState>,
    /// Told when there may be room for the reader.
    room: Notify,
    /// Told when there may be something for the consumer.
    filled: Notify,
    /// Lines that were no messages.
    noise: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<QueuedMessage>,
    /// Bytes of all lines in `messages`.
    bytes: usize,
    /// Messages that were ever pushed.
    pushed: u64,
    /// Calls and lines of ours that wait for the peer.
    waiting: usize,
    /// Nothing will come any more.
    is_closed: bool,
    /// The consumer is gone: messages are dropped.
    is_abandoned: bool,
}

/// A message whose parameters were not read yet.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub method: String,
    pub request: Option<RequestId>,
    pub line: Vec<u8>,
}

impl IncomingQueue {
    pub(super) fn new(limit: usize, byte_limit: usize) -> Self {
        Self {
            limit,
            byte_limit,
            state: Mutex::default(),
            room: Notify::new(),
            filled: Notify::new(),
            noise: AtomicU64::new(0),
        }
    }

    /// Adds a message, as soon as there is room for it.
    pub(super) async fn push(&self, message: QueuedMessage) {
        loop {
            {
                let mut state = self.state.lock();
                if state.is_abandoned {
                    state.pushed += 1;
                    return;
                }
                if self.has_room(&state, message.line.len()) {
                    state.pushed += 1;
                    state.bytes += message.line.len();
                    state.messages.push_back(message);
                    self.filled.notify_one();
                    return;
                }
            }
            // A notice that came since the check is kept for us: we are the only reader.
            self.room.notified().await;
        }
    }

    fn has_room(&self, state: &QueueState, bytes: usize) -> bool {
        let times = if state.waiting > 0 { AHEAD } else { 1 };
        state.messages.is_empty()
            || (state.messages.len() < self.limit * times && state.bytes + bytes <= self.byte_limit * times)
    }

    /// Number of messages so far.
    pub(super) fn position(&self) -> u64 {
        self.state.lock().pushed
    }

    /// Says that nothing will come any more.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Lets the reader go beyond the limits while the returned value lives.
    pub(super) fn read_ahead(self: &Arc<Self>) -> ReadAhead {
        self.state.lock().waiting += 1;
        self.room.notify_one();
        ReadAhead(self.clone())
    }

    /// Counts a line that was no message. Returns the number of them.
    pub(super) fn count_noise(&self) -> u64 {
        self.noise.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn noise(&self) -> u64 {
        self.noise.load(Ordering::Relaxed)
    }

    /// The next message with its position; an error if there is none now, which says whether one may come.
    fn take(&self) -> Result<(QueuedMessage, u64), bool> {
        let mut state = self.state.lock();
        let position = state.pushed - state.messages.len() as u64;
        let Some(message) = state.messages.pop_front() else { return Err(!state.is_closed) };
        state.bytes -= message.line.len();
        self.room.notify_one();
        Ok((message, position))
    }

    fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_abandoned = true;
        state.messages.clear();
        state.bytes = 0;
        self.room.notify_one();
    }
}

/// Something of ours that waits for the peer.
#[derive(Debug)]
pub(super) struct ReadAhead(Arc<IncomingQueue>);

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// The notifications and requests of the peer, in order. Dropping it drops all that come later.
#[derive(Debug)]
pub struct RpcIncoming {
    queue: Arc<IncomingQueue>,
}

impl RpcIncoming {
    pub(super) fn new(queue: Arc<IncomingQueue>) -> Self {
        Self { queue }
    }

    /// The next message; `None` when the process is gone and everything was taken. Nothing is lost if the future is
    /// dropped.
    pub async fn next(&mut self) -> Option<IncomingMessage> {
        self.next_line().await.map(|(message, _)| message)
    }

    /// The next message like [`next`](Self::next), and its line as the peer wrote it.
    pub async fn next_line(&mut self) -> Option<(IncomingMessage, Vec<u8>)> {
        loop {
            match self.queue.take() {
                Ok((QueuedMessage { method, request, line }, position)) => {
                    let params = wire::read_params(&line);
                    let bytes = line.len();
                    return Some((IncomingMessage { position, method, params, request, bytes }, line));
                }
                Err(true) => self.queue.filled.notified().await,
                Err(false) => return None,
            }
        }
    }
}

impl Drop for RpcIncoming {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}
