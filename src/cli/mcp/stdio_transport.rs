//! Standard input and output as a transport of rmcp, bounded.
//!
//! rmcp reads on while its answers are not taken, and drops a line that is too long, so that its sender waits for ever.
//! Here the input is read only while few requests wait for their answers, and a line that is too long ends the server.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// Longest line of the client in bytes: the largest call that the gateway takes, escaped, and its frame.
const LINE_BYTES: usize = 4 * 1024 * 1024;

/// Requests without an answer. While there are as many, nothing more is read.
const OPEN: usize = 64;

/// The reason for which the input cannot be read any further.
#[derive(Default)]
pub(super) struct InputProblem(OnceLock<String>);

impl InputProblem {
    /// The reason, if there is one.
    pub(super) fn words(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

/// A transport over two streams.
pub(super) struct StdioTransport<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, LineReader<R>, W>,
    /// Requests that were neither answered nor cancelled.
    open: watch::Sender<HashSet<RequestId>>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> StdioTransport<R, W> {
    pub(super) fn open(input: R, output: W, problem: Arc<InputProblem>) -> Self {
        let input = LineReader { inner: input, line: 0, problem };
        Self { inner: AsyncRwTransport::new(input, output), open: watch::Sender::default() }
    }
}

impl<R, W> Transport<RoleServer> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (sending, open) = (self.inner.send(item), self.open.clone());
        async move {
            let sent = sending.await;
            if let Some(answered) = answered {
                open.send_modify(|open| _ = open.remove(&answered));
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let _ = self.open.subscribe().wait_for(|open| open.len() < OPEN).await;
            let message = self.inner.receive().await?;
            match &message {
                JsonRpcMessage::Request(request) => {
                    self.open.send_modify(|open| _ = open.insert(request.id.clone()));
                }
                JsonRpcMessage::Notification(notification) => match &notification.notification {
                    // rmcp sends no answer to a request that was cancelled.
                    ClientNotification::CancelledNotification(cancelled) => {
                        self.open.send_modify(|open| {
                            if let Some(request) = &cancelled.params.request_id {
                                open.remove(request);
                            }
                        });
                    }
                    ClientNotification::InitializedNotification(_) => {}
                    // rmcp starts a task for each, and we want none of them.
                    _ => continue,
                },
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Reads a stream, and ends it at a line that is too long.
struct LineReader<R> {
    inner: R,
    /// Bytes of the current line.
    line: usize,
    problem: Arc<InputProblem>,
}

impl<R: AsyncRead + Unpin> AsyncRead for LineReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        for byte in &buffer.filled()[before..] {
            self.line = if *byte == b'\n' { 0 } else { self.line + 1 };
            if self.line > LINE_BYTES {
                let words = format!("a line of standard input is longer than {LINE_BYTES} bytes");
                let _ = self.problem.0.set(words.clone());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, words)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rmcp::model::{EmptyResult, ServerResult};
    use serde_json::json;
    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn transport() -> (StdioTransport<DuplexStream, DuplexStream>, DuplexStream, DuplexStream) {
        let ((client_in, server_in), (server_out, client_out)) = (duplex(LINE_BYTES * 2), duplex(LINE_BYTES));
        (StdioTransport::open(server_in, server_out, Arc::default()), client_in, client_out)
    }

    async fn write(client: &mut DuplexStream, message: serde_json::Value) {
        client.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Number of requests that are read while nobody answers any.
    async fn reads(transport: &mut StdioTransport<DuplexStream, DuplexStream>) -> usize {
        let mut count = 0;
        // The paused clock jumps as soon as nothing else can happen.
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(1), transport.receive()).await
        {
            count += usize::from(matches!(message, JsonRpcMessage::Request(_)));
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_read_only_while_few_of_them_wait_for_answers() {
        let (mut transport, mut client, _out) = transport();
        for id in 0..OPEN + 10 {
            write(&mut client, json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).await;
        }
        assert_eq!(reads(&mut transport).await, OPEN);
        for id in [3, 5] {
            let answer = ServerResult::EmptyResult(EmptyResult {});
            transport.send(JsonRpcMessage::response(answer, RequestId::Number(id))).await.unwrap();
        }
        assert_eq!(reads(&mut transport).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_waits_for_no_answer() {
        let (mut transport, mut client, _out) = transport();
        for id in 0..OPEN * 3 {
            write(&mut client, json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).await;
            let cancel = json!({ "requestId": id });
            write(
                &mut client,
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }),
            )
            .await;
        }
        assert_eq!(reads(&mut transport).await, OPEN * 3);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_input_with_a_reason() {
        let (mut transport, mut client, _out) = transport();
        client.write_all(&vec![b'x'; LINE_BYTES]).await.unwrap();
        client.write_all(b"\n").await.unwrap();
        write(&mut client, json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
        assert!(transport.receive().await.is_some(), "noise is skipped");
        client.write_all(&vec![b'x'; LINE_BYTES + 1]).await.unwrap();
        assert!(transport.receive().await.is_none());
    }
}
