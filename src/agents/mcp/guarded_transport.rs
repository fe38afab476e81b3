//! A transport of rmcp, guarded against a server that misbehaves.
//!
//! rmcp drops a line that is too long and lets its call wait for ever, starts a task for every notification, and queues
//! answers to a server that never reads them without a limit. So our own reader stands before it, and notifications end
//! here: the last progress of each call is kept, a changed list is remembered, and the rest is dropped. A server that goes
//! too far loses its connection, with a reason that people can read.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    JsonRpcMessage, ProgressNotificationParam, ProgressToken, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;
use talaria_platform::CancellationToken;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use super::server_state::{McpFailure, McpFailureKind};
use crate::util::one_line;

/// Longest line of a server, in bytes. rmcp would drop a longer one without a word.
pub(super) const LINE_BYTES: usize = DEFAULT_MAX_LINE_LENGTH;

/// Most bytes of a server between two of its answers. A chatty one logs a few kilobytes for each call.
const FLOOD_BYTES: usize = 64 * 1024 * 1024;

/// Most requests of a server that have no answer from us yet. We answer at once, so more means that it does not read.
const OWED: usize = 64;

/// Characters of a progress line. More than anybody is shown: secrets are hidden before it is cut to that.
const PROGRESS: usize = 2_000;

/// State of one connection, shared by its transport and its callers.
#[derive(Default)]
pub(super) struct LinkState {
    /// Fired when nothing will come any more.
    gone: CancellationToken,
    /// Why we broke the connection; empty if the server ended it.
    broken: OnceLock<McpFailure>,
    /// Kind of the last request over HTTP that failed. The library hides it in its own errors.
    trouble: Mutex<Option<McpFailureKind>>,
    /// The server says that its list of tools is another now.
    list_changed: AtomicBool,
    /// Calls that want to know their progress.
    progress: Mutex<HashMap<ProgressToken, watch::Sender<String>>>,
    /// Requests of the server without an answer.
    owed: AtomicUsize,
    /// Bytes since the last answer.
    unanswered_bytes: AtomicUsize,
}

impl LinkState {
    /// Ends the connection for this reason, unless it has ended.
    pub(super) fn break_off(&self, kind: McpFailureKind, why: impl Into<String>) {
        if !self.gone.is_cancelled() {
            let _ = self.broken.set(McpFailure::new(kind, why));
        }
        self.gone.cancel();
    }

    /// Ends the connection because a request could not be sent. Returns the failure.
    pub(super) fn break_off_unsent(&self, why: impl Into<String>) -> McpFailure {
        let kind = self.trouble.lock().unwrap_or(McpFailureKind::Ended);
        let failure = McpFailure::new(kind, why);
        self.break_off(failure.kind, failure.reason.clone());
        failure
    }

    /// Remembers the kind of a request that failed.
    pub(super) fn note_trouble(&self, kind: McpFailureKind) {
        *self.trouble.lock() = Some(kind);
    }

    /// Whether nothing will come any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Waits until nothing will come any more.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// The reason for which we broke the connection.
    pub(super) fn failure(&self) -> Option<&McpFailure> {
        self.broken.get()
    }

    /// Whether the list of tools has changed since the last call of this.
    pub(super) fn take_list_changed(&self) -> bool {
        self.list_changed.swap(false, Ordering::AcqRel)
    }

    /// Remembers that the list of tools must be read again.
    pub(super) fn set_list_changed(&self) {
        self.list_changed.store(true, Ordering::Release);
    }

    /// Follows the progress of a call until the returned value is dropped.
    pub(super) fn follow(self: &Arc<Self>, token: ProgressToken) -> FollowedCall {
        let (sender, lines) = watch::channel(String::new());
        self.progress.lock().insert(token.clone(), sender);
        FollowedCall { link: self.clone(), token, lines }
    }

    fn tell_progress(&self, progress: &ProgressNotificationParam) {
        if let Some(sender) = self.progress.lock().get(&progress.progress_token) {
            sender.send_replace(progress_line(progress));
        }
    }

    /// Counts bytes that came in. False if they are too many.
    fn takes(&self, bytes: usize) -> bool {
        self.unanswered_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes <= FLOOD_BYTES
    }
}

/// A call whose progress is followed.
pub(super) struct FollowedCall {
    link: Arc<LinkState>,
    token: ProgressToken,
    /// The last line; others before it may be skipped.
    pub lines: watch::Receiver<String>,
}

impl Drop for FollowedCall {
    fn drop(&mut self) {
        self.link.progress.lock().remove(&self.token);
    }
}

fn progress_line(progress: &ProgressNotificationParam) -> String {
    let amount = match progress.total {
        Some(total) => format!("{} of {total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(|message| one_line(message, PROGRESS)) {
        Some(message) if !message.is_empty() => message,
        Some(_) | None => amount,
    }
}

/// A transport between rmcp and a server.
pub(super) struct GuardedTransport<T> {
    inner: T,
    link: Arc<LinkState>,
}

impl<T> GuardedTransport<T> {
    pub(super) fn new(inner: T, link: Arc<LinkState>) -> Self {
        Self { inner, link }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for GuardedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let is_answer = matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let (sending, link) = (self.inner.send(item), self.link.clone());
        async move {
            let sent = sending.await;
            if is_answer {
                link.owed.fetch_sub(1, Ordering::AcqRel);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let received = tokio::select! {
                received = self.inner.receive() => received,
                () = self.link.gone() => None,
            };
            let Some(message) = received else {
                self.link.gone.cancel();
                return None;
            };
            if let Some(message) = self.judge(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.link.gone.cancel();
        self.inner.close().await
    }
}

impl<T> GuardedTransport<T> {
    /// The message, if rmcp is to get it.
    fn judge(&self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                self.link.unanswered_bytes.store(0, Ordering::Release);
                Some(message)
            }
            JsonRpcMessage::Request(_) => {
                if self.link.owed.fetch_add(1, Ordering::AcqRel) >= OWED {
                    self.link
                        .break_off(McpFailureKind::Faulty, "it sends requests and does not read the answers");
                    return None;
                }
                Some(message)
            }
            JsonRpcMessage::Notification(notification) => {
                match notification.notification {
                    ServerNotification::ProgressNotification(progress) => {
                        self.link.tell_progress(&progress.params);
                    }
                    ServerNotification::ToolListChangedNotification(_) => self.link.set_list_changed(),
                    // Logs, resources and prompts: nobody asked for them.
                    _ => {}
                }
                None
            }
        }
    }
}

/// Reads the output of a server, and fails when a line or the whole is too long.
pub(super) struct BoundedReader<R> {
    inner: R,
    link: Arc<LinkState>,
    /// Bytes of the current line.
    line: usize,
}

impl<R> BoundedReader<R> {
    pub(super) fn new(inner: R, link: Arc<LinkState>) -> Self {
        Self { inner, link, line: 0 }
    }

    /// Counts new bytes. The error is the reason that people read.
    fn count(&mut self, bytes: &[u8]) -> Result<(), String> {
        for (at, part) in bytes.split(|byte| *byte == b'\n').enumerate() {
            // The line break counts for rmcp.
            self.line = if at == 0 { self.line + part.len() } else { part.len() };
            if self.line >= LINE_BYTES {
                return Err(format!("it sent a message of more than {} MiB", LINE_BYTES / (1024 * 1024)));
            }
        }
        if self.link.takes(bytes.len()) {
            return Ok(());
        }
        Err(format!("it sent more than {} MiB without an answer", FLOOD_BYTES / (1024 * 1024)))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if polled.is_ready()
            && let Err(why) = self.count(buffer.filled().get(before..).unwrap_or_default())
        {
            self.link.break_off(McpFailureKind::Faulty, why.clone());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::async_rw::AsyncRwTransport;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    type TestTransport = GuardedTransport<
        AsyncRwTransport<
            RoleClient,
            BoundedReader<tokio::io::ReadHalf<DuplexStream>>,
            tokio::io::WriteHalf<DuplexStream>,
        >,
    >;

    /// A transport, its state, and the server's end of it.
    fn transport() -> (TestTransport, Arc<LinkState>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (link, (read, write)) = (Arc::<LinkState>::default(), tokio::io::split(ours));
        let inner = AsyncRwTransport::new(BoundedReader::new(read, link.clone()), write);
        (GuardedTransport::new(inner, link.clone()), link, theirs)
    }

    fn line(message: serde_json::Value) -> String {
        format!("{message}\n")
    }

    #[tokio::test]
    async fn noise_is_skipped_and_notifications_never_reach_the_library() {
        let (mut transport, link, mut server) = transport();
        let token = ProgressToken(rmcp::model::NumberOrString::Number(7));
        let mut call = link.follow(token);
        let lines = [
            "Welcome to my server!\n\n{\"not\": \"closed\n".to_owned(),
            line(
                json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" } }),
            ),
            line(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })),
            line(
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 7, "progress": 1, "total": 4 } }),
            ),
            line(
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 7, "progress": 2, "message": "half\nway" } }),
            ),
            line(json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
        ];
        server.write_all(lines.concat().as_bytes()).await.unwrap();
        let message = transport.receive().await.unwrap();
        assert!(matches!(message, JsonRpcMessage::Response(_)), "{message:?}");
        assert!(link.take_list_changed() && !link.take_list_changed());
        assert_eq!(*call.lines.borrow_and_update(), "half way");
        drop(server);
        assert!(transport.receive().await.is_none());
        assert!(link.is_gone() && link.failure().is_none());
    }

    #[tokio::test]
    async fn a_line_without_an_end_breaks_the_connection_with_a_reason() {
        let (mut transport, link, mut server) = transport();
        let writing = tokio::spawn(async move {
            let chunk = vec![b'x'; 64 * 1024];
            while server.write_all(&chunk).await.is_ok() {}
        });
        assert!(transport.receive().await.is_none());
        assert_eq!(
            link.failure(),
            Some(&McpFailure::new(McpFailureKind::Faulty, "it sent a message of more than 16 MiB"))
        );
        drop(transport);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_flood_of_lines_breaks_the_connection_with_a_reason() {
        let (mut transport, link, mut server) = transport();
        let writing = tokio::spawn(async move {
            let chunk = format!("{}\n", "noise ".repeat(10_000));
            while server.write_all(chunk.as_bytes()).await.is_ok() {}
        });
        assert!(transport.receive().await.is_none());
        assert_eq!(
            link.failure(),
            Some(&McpFailure::new(McpFailureKind::Faulty, "it sent more than 64 MiB without an answer"))
        );
        drop(transport);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_asks_and_never_reads_is_cut_off() {
        let (mut transport, link, mut server) = transport();
        let ask = line(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
        server.write_all(ask.repeat(OWED + 1).as_bytes()).await.unwrap();
        for _ in 0..OWED {
            assert!(transport.receive().await.is_some());
        }
        assert!(transport.receive().await.is_none());
        assert_eq!(
            link.failure(),
            Some(&McpFailure::new(McpFailureKind::Faulty, "it sends requests and does not read the answers"))
        );
    }

    #[tokio::test]
    async fn an_answer_that_was_sent_is_no_longer_owed() {
        let (mut transport, link, mut server) = transport();
        for _ in 0..OWED * 2 {
            let ask = line(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
            server.write_all(ask.as_bytes()).await.unwrap();
            let JsonRpcMessage::Request(asked) = transport.receive().await.unwrap() else {
                panic!("no request")
            };
            let answer = JsonRpcMessage::response(rmcp::model::ClientResult::empty(()), asked.id);
            transport.send(answer).await.unwrap();
        }
        assert!(!link.is_gone());
        let mut read = [0; 16];
        assert!(server.read(&mut read).await.unwrap() > 0);
    }
}
